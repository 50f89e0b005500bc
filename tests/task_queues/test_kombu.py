"""Kombu's own connections on heaps and topics: queues, exchanges, replies, acknowledgements."""

import asyncio
import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer as KafkaProducer
from confluent_kafka.admin import AdminClient
from kombu import Connection, Consumer, Exchange, Producer, Queue
from tests.support.server_process import ServeProcess
from tests.support.waiting import until

import holdfast.celery
from holdfast.celery.exchanges import TemporaryQueue
from holdfast.celery.inbox import Inbox
from holdfast.log.topics import UnknownTopicError
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import UnavailableError

assert holdfast.celery.__all__  # the import makes `holdfast://` known


@pytest.fixture
def connection(node: ServeProcess, tmp_path: Path) -> Iterator[Connection]:
    options = {"prefix": f"{tmp_path.name}.", "lease": 5}
    with Connection(f"holdfast://{node.kafka}", transport_options=options) as connection:
        yield connection


def unsettled(connection: Connection, queue: str) -> int:
    transport = connection.transport
    stats = transport.heaps.call(transport.heaps.client.stats(transport.settings.prefix + queue))
    return sum(each.ready + each.delayed + each.inflight for each in stats)


def ready(connection: Connection, queue: str) -> int:
    return int(Queue(queue)(connection.default_channel).queue_declare(passive=True).message_count)


def received(connection: Connection, *queues: Queue, count: int, **options: Any) -> list[Any]:
    bodies: list[Any] = []

    def on_message(body: Any, message: Any) -> None:
        bodies.append(body)
        if not options.get("no_ack"):
            message.ack()

    with Consumer(connection.default_channel, list(queues), callbacks=[on_message], **options):
        while len(bodies) < count:
            connection.drain_events(timeout=30)
    return bodies


def test_the_size_of_a_queue_its_purge_and_its_deletion(connection: Connection) -> None:
    channel = connection.default_channel
    queue = Queue("work@home")(channel)
    queue.declare()
    producer = Producer(channel)
    for at in range(3):
        producer.publish({"at": at}, routing_key="work@home", priority=at)
    assert queue.queue_declare(passive=True).message_count == 3
    first = queue.get()
    assert first is not None
    assert first.payload == {"at": 2}, "the most urgent one"
    assert queue.purge() == 2
    assert queue.get() is None
    first.ack()
    queue.delete()
    with pytest.raises(connection.channel_errors):
        queue.queue_declare(passive=True)


def test_a_rejected_message_is_tried_again_or_a_dead_letter(connection: Connection) -> None:
    queue = Queue("failing")(connection.default_channel)
    queue.declare()
    Producer(connection.default_channel).publish("x", routing_key="failing")
    message = queue.get()
    assert message is not None
    message.requeue()
    found: list[Any] = []
    until(lambda: found.append(queue.get()) or found[-1] is not None)  # type: ignore[func-returns-value]
    assert found[-1].delivery_info["redelivered"]
    found[-1].reject()
    transport = connection.transport
    letters = transport.settings.prefix + "failing.dlq"
    until(lambda: len(transport.heaps.call(transport.heaps.client.peek(letters))) == 1)
    assert unsettled(connection, "failing") == 0


def test_a_consumer_without_acknowledgements_leaves_nothing_unsettled(connection: Connection) -> None:
    queue = Queue("careless")
    producer = Producer(connection.default_channel)
    for at in range(3):
        producer.publish(at, routing_key="careless", declare=[queue])
    assert received(connection, queue, count=3, no_ack=True) == [0, 1, 2]
    until(lambda: unsettled(connection, "careless") == 0)


def test_what_a_closed_channel_did_not_acknowledge_is_another_ones_at_once(connection: Connection) -> None:
    producer = Producer(connection.default_channel)
    producer.publish("x", routing_key="returned", declare=[Queue("returned")])
    channel = connection.channel()
    message = Queue("returned")(channel).get()
    assert message is not None
    channel.close()
    again = Queue("returned")(connection.default_channel).get()
    assert again is not None
    assert not again.delivery_info["redelivered"], "it was not worked on"
    again.ack()


def test_temporary_queues_get_what_their_bindings_match_from_their_declaration_on(connection: Connection) -> None:
    fanout, topic = Exchange("news", type="fanout"), Exchange("events", type="topic")
    producer = Producer(connection.default_channel)
    producer.publish("before", exchange=fanout, declare=[fanout])
    queues = [
        Queue("ann", fanout, auto_delete=True),
        Queue("bob", fanout, exclusive=True),
        Queue("cid", topic, routing_key="task.#", auto_delete=True),
        Queue("reply-1", expires=10),
    ]
    for queue in queues:
        queue(connection.default_channel).declare()
    with connection.clone() as other:
        sender = Producer(other.default_channel)
        sender.publish("all", exchange=fanout, declare=[fanout])
        sender.publish("no", exchange=topic, routing_key="worker.online", declare=[topic])
        sender.publish("yes", exchange=topic, routing_key="task.sent", delivery_mode="transient")
        sender.publish("answer", routing_key="reply-1")
    found = received(connection, *queues, count=4, no_ack=True)
    assert sorted(found) == ["all", "all", "answer", "yes"]


def test_a_temporary_queue_is_one_and_the_same_for_all_connections_of_a_process(connection: Connection) -> None:
    queue = Queue("results", routing_key="results", expires=60)  # as Celery's `rpc://`
    first, producer = connection.clone(), Producer(connection.default_channel)
    queue(first.default_channel).declare()
    producer.publish({"n": 1}, routing_key="results")
    until(lambda: queue(first.default_channel).queue_declare(passive=True).message_count == 1)
    with Consumer(connection.default_channel, [queue], callbacks=[lambda body, _: bodies.append(body)], no_ack=True):
        bodies: list[Any] = []
        connection.drain_events(timeout=30)
        first.release()
        producer.publish({"n": 2}, routing_key="results")
        connection.drain_events(timeout=30)
    assert bodies == [{"n": 1}, {"n": 2}]


def test_a_temporary_queue_keeps_nothing_of_connections_that_are_gone() -> None:
    queue, inbox = TemporaryQueue("results"), Inbox()
    queue.consume(inbox, lambda: None)
    del inbox
    gc.collect()
    assert not queue._consumers


def test_a_server_that_is_not_there_is_a_connection_error() -> None:
    connection = Connection("holdfast://127.0.0.1:1", transport_options={"connect_timeout": 0.2})
    with pytest.raises(connection.connection_errors) as raised:
        connection.connect()
    assert isinstance(raised.value, UnavailableError | TimeoutError)


@pytest.mark.parametrize("payload", [b"\xff", b"[1]", b'{"properties": {"body_encoding": "rot13"}, "body": "x"}'])
def test_a_message_that_is_not_kombus_is_a_dead_letter_and_those_behind_it_are_delivered(
    connection: Connection, payload: bytes
) -> None:
    queue = Queue("mixed")
    queue(connection.default_channel).declare()
    heaps, name = connection.transport.heaps, connection.transport.settings.prefix + "mixed"
    producer = Producer(connection.default_channel)
    for _ in range(2):
        heaps.call(heaps.client.enqueue(name, payload, priority=9))
        producer.publish("x", routing_key="mixed")
    got = queue(connection.default_channel).get()
    assert got is not None
    got.ack()
    assert received(connection, queue, count=1) == ["x"]
    until(lambda: unsettled(connection, "mixed") == 0)
    letters = until(lambda: len(found := heaps.call(heaps.client.dead_letters(name))) == 2 and found)
    assert letters
    assert [letter.payload for letter in letters] == [payload] * 2


def test_a_record_that_is_not_kombus_ends_no_temporary_queue(connection: Connection, node: ServeProcess) -> None:
    fanout = Exchange("control", type="fanout")
    queue = Queue("ann", fanout, auto_delete=True)
    queue(connection.default_channel).declare()
    sent = KafkaProducer({"bootstrap.servers": node.kafka})
    for key, value in ((b"", b"{"), (b"\xff", b"{}"), (b"", b"{}"), (b"", b'{"properties": null}')):
        sent.produce(f"{connection.transport.settings.prefix}control.exchange", value, key)
    assert sent.flush(30) == 0
    Producer(connection.default_channel).publish("x", exchange=fanout)
    assert received(connection, queue, count=1, no_ack=True) == ["x"]


def test_a_temporary_queue_goes_on_when_the_topic_of_its_exchange_is_deleted_and_created_again(
    connection: Connection, node: ServeProcess
) -> None:
    fanout = Exchange("control", type="fanout")
    queue = Queue("ann", fanout, auto_delete=True)
    queue(connection.default_channel).declare()
    producer = Producer(connection.default_channel)
    producer.publish("before", exchange=fanout)
    assert received(connection, queue, count=1, no_ack=True) == ["before"]
    admin = AdminClient({"bootstrap.servers": node.kafka})
    for deleted in admin.delete_topics([f"{connection.transport.settings.prefix}control.exchange"]).values():
        deleted.result()
    producer.publish("after", exchange=fanout)
    assert received(connection, queue, count=1, no_ack=True) == ["after"]


def delete_elsewhere(connection: Connection, queue: str) -> None:
    heaps, name = connection.transport.heaps, connection.transport.settings.prefix + queue
    token = heaps.call(heaps.client.confirm("heap.delete", name))
    heaps.call(heaps.client.delete(name, confirmation_token=token))


def test_a_queue_that_was_deleted_elsewhere_is_created_by_its_next_declaration(connection: Connection) -> None:
    queue = Queue("anew")(connection.default_channel)
    queue.declare()
    delete_elsewhere(connection, "anew")
    with pytest.raises(connection.channel_errors):
        queue.queue_declare(passive=True)
    queue.declare()
    assert queue.queue_declare(passive=True).message_count == 0


def test_a_queue_that_was_deleted_elsewhere_is_created_by_its_producer(connection: Connection) -> None:
    queue, producer = Queue("sent"), Producer(connection.default_channel)
    producer.publish("before", routing_key="sent", declare=[queue])
    delete_elsewhere(connection, "sent")
    producer.publish("after", routing_key="sent", declare=[queue])  # Kombu remembers that it was declared
    got = queue(connection.default_channel).get()
    assert got is not None
    got.ack()
    assert got.payload == "after"


def test_a_queue_that_was_deleted_elsewhere_is_created_by_its_consumer(
    connection: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    bodies: list[Any] = []
    queue = Queue("consumed")
    with Consumer(connection.default_channel, [queue], on_message=lambda message: bodies.append(message.payload)):
        delete_elsewhere(connection, "consumed")
        until(lambda: "was deleted" in caplog.text)
        with connection.clone() as other:
            found = Queue("consumed")(other.default_channel)
            until(lambda: other.default_channel._has_queue("consumed"))
            assert found.queue_declare(passive=True).consumer_count == 0
            Producer(other.default_channel).publish("x", routing_key="consumed")
        connection.drain_events(timeout=30)
    assert bodies == ["x"]


def test_a_consumer_that_deletes_its_queue_does_not_create_it_again(connection: Connection) -> None:
    queue = Queue("gone")
    with Consumer(connection.default_channel, [queue]):
        queue(connection.default_channel).delete()
        transport = connection.transport
        heaps, name = transport.heaps, transport.settings.prefix + "gone"
        with pytest.raises(UnknownTopicError):
            heaps.call(heaps.client.pop(name, wait=1))


def test_a_connection_that_nobody_refers_to_gives_its_messages_back(connection: Connection, tmp_path: Path) -> None:
    fanout = Exchange("control", type="fanout")
    queue, temporary = Queue("hoarded"), Queue("ann", fanout, auto_delete=True)

    def consume_and_forget() -> None:
        other = connection.clone()
        bodies: list[Any] = []
        consumer = Consumer(other.default_channel, [queue, temporary], callbacks=[lambda body, _: bodies.append(body)])
        consumer.qos(prefetch_count=10)
        consumer.consume()
        other.drain_events(timeout=30)
        assert bodies

    def readers() -> int:
        async def count() -> int:
            return sum("Exchanges._read" in repr(task.get_coro()) for task in asyncio.all_tasks())

        return int(connection.transport.heaps.call(count()))

    producer = Producer(connection.default_channel)
    for at in range(3):
        producer.publish(at, routing_key="hoarded", declare=[queue])
    before = readers()
    consume_and_forget()
    gc.collect()
    until(lambda: ready(connection, "hoarded") == 3)
    until(lambda: readers() == before)
    producer.publish(3, routing_key="hoarded")
    assert sorted(received(connection, queue, count=4)) == [0, 1, 2, 3]


def test_a_message_that_is_requeued_again_and_again_waits_longer_each_time(connection: Connection) -> None:
    queue = Queue("patient")(connection.default_channel)
    queue.declare()
    Producer(connection.default_channel).publish("x", routing_key="patient")
    waited_ms = []
    for _ in range(6):
        began_ms = RealClock().boot_ms()
        message = until(queue.get)
        waited_ms.append(RealClock().boot_ms() - began_ms)
        assert message is not None
        message.requeue()
    assert waited_ms[5] >= 700, "0.8 s after the fifth failure"


def test_what_one_delivery_says_of_itself_is_not_sent_along_with_the_next_one(connection: Connection) -> None:
    queue = Queue("retried")(connection.default_channel)
    queue.declare()
    producer = Producer(connection.default_channel)
    producer.publish("x", routing_key="retried", headers={"mine": 1, "eta": "2020-01-01T00:00:00"})
    first = queue.get()
    assert first is not None
    assert {"holdfast_eta", "holdfast_lease", "holdfast_attempts", "holdfast_message_id"} < set(first.headers)
    producer.publish("y", routing_key="retried", headers=first.headers)
    first.ack()
    second = queue.get()
    assert second is not None
    second.ack()
    assert second.headers["mine"] == 1
    assert second.headers["holdfast_message_id"] != first.headers["holdfast_message_id"]
    assert "holdfast_eta" not in second.headers


def test_a_message_whose_consumer_raised_counts_as_failed_when_its_channel_is_closed(connection: Connection) -> None:
    Producer(connection.default_channel).publish("x", routing_key="poison", declare=[Queue("poison")])
    other = connection.clone()
    with Consumer(other.default_channel, [Queue("poison")], callbacks=[int]), pytest.raises(TypeError):
        other.drain_events(timeout=30)
    other.close()
    again = Queue("poison")(connection.default_channel).get()
    assert again is not None
    assert again.headers["holdfast_attempts"] == 1, "a message that stops every worker is a dead letter in the end"
    again.ack()
