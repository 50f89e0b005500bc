"""Kombu's own connections on heaps and topics: queues, exchanges, replies, acknowledgements."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kombu import Connection, Consumer, Exchange, Producer, Queue
from tests.support.server_process import ServeProcess
from tests.support.waiting import until

import holdfast.celery
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


def test_a_server_that_is_not_there_is_a_connection_error() -> None:
    connection = Connection("holdfast://127.0.0.1:1", transport_options={"connect_timeout": 0.2})
    with pytest.raises(connection.connection_errors) as raised:
        connection.connect()
    assert isinstance(raised.value, UnavailableError | TimeoutError)
