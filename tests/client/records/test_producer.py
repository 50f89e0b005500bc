"""Producer against a real broker: acknowledgements, order, back-pressure, cancellation, errors, and a broker that is killed."""

import asyncio
import os
import signal

import pytest
from tests.support.broker import Broker
from tests.support.server_process import read
from tests.support.waiting import async_until

from holdfast.client import (
    ConnectionSettings,
    Consumer,
    PartlySentError,
    Producer,
    ProducerRecord,
    ProducerSettings,
    RecordMetadata,
    SerializationError,
)
from holdfast.registry import Murmur2Partitioner
from holdfast.vocabulary.errors import ClosedError, HoldfastError, InvalidError, UnavailableError, UsageError

QUICK = ProducerSettings(linger_ms=0)


async def test_a_record_is_acknowledged_with_its_place_and_read_back_as_sent(broker: Broker) -> None:
    topic = broker.create_topic("sent")
    async with Producer(broker.bootstrap, value_serializer="json", key_serializer="str", settings=QUICK) as producer:
        found = await producer.send_and_wait(
            topic, {"total": 5}, "ann", timestamp_ms=1_700_000_000_000, headers=[("trace", b"1"), ("none", None)]
        )
        await producer.send(topic, None, "bob")
    assert found == RecordMetadata(topic, 0, 0, 1_700_000_000_000)
    async with Consumer(broker.bootstrap, topic, value_deserializer="json", key_deserializer="str") as consumer:
        records = [await anext(consumer), await anext(consumer)]
    assert [(each.offset, each.key, each.value) for each in records] == [(0, "ann", {"total": 5}), (1, "bob", None)]
    assert records[0].headers == (("trace", b"1"), ("none", None))
    assert records[0].timestamp_ms == 1_700_000_000_000


async def test_keys_go_where_kafkas_own_partitioner_puts_them(broker: Broker) -> None:
    topic = broker.create_topic("keyed", 5)
    keys = [f"key-{number}" for number in range(20)]
    async with Producer(broker.bootstrap, key_serializer="str") as producer:
        found = await (await producer.send_many(topic, [ProducerRecord(b"", key) for key in keys]))
    murmur2 = Murmur2Partitioner()
    assert [each.partition for each in found] == [murmur2.partition(key, 5) for key in keys]


async def test_everything_that_was_sent_is_there_in_order_when_the_body_ends(broker: Broker) -> None:
    topic = broker.create_topic("ordered")
    small = ProducerSettings(linger_ms=1_000, buffer_records_max=50)
    async with Producer(broker.bootstrap, value_serializer="str", settings=small) as producer:
        futures = [await producer.send(topic, str(number)) for number in range(300)]
        many = await producer.send_many(topic, map(str, range(300, 700)))
        assert not many.done()  # it lingers; flush does not
        await producer.flush()
        assert [each.result().offset for each in futures] == list(range(300))
        assert [each.offset for each in many.result()] == list(range(300, 700))
        await producer.send(topic, "700")
    assert read(broker.bootstrap, topic, 701) == [str(number) for number in range(701)]


async def test_an_interceptor_adds_headers_to_every_record(broker: Broker) -> None:
    topic = broker.create_topic("intercepted")

    def traced(_: str, record: ProducerRecord) -> ProducerRecord:
        return ProducerRecord(record.value, record.key, headers=[*record.headers, ("traceparent", b"00-1")])

    async with Producer(broker.bootstrap, interceptors=[traced], settings=QUICK) as producer:
        await producer.send_and_wait(topic, b"x", headers=[("a", b"b")])
    async with Consumer(broker.bootstrap, topic) as consumer:
        assert (await anext(consumer)).headers == (("a", b"b"), ("traceparent", b"00-1"))


async def test_bad_input_is_refused_before_anything_is_sent(broker: Broker) -> None:
    topic = broker.create_topic("refused")
    async with Producer(broker.bootstrap, settings=QUICK) as producer:
        with pytest.raises(InvalidError, match=r"invalid topic '': must be a name"):
            await producer.send("", b"x")
        with pytest.raises(SerializationError, match="pass bytes, or choose the serializer str or json"):
            await producer.send(topic, "text")
        with pytest.raises(InvalidError, match="must be at most 1048576, the producer's record_bytes_max"):
            await producer.send(topic, b"x" * 1_100_000)
        with pytest.raises(InvalidError, match="invalid partition -1: must be at least 0"):
            await producer.send(topic, b"x", partition=-1)
        with pytest.raises(InvalidError, match="invalid header"):
            await producer.send(topic, b"x", headers=["no pair"])  # type: ignore[list-item]
        sent = await producer.send(topic, b"1")
        with pytest.raises(SerializationError):  # those before it are sent
            await producer.send_many(topic, [b"2", 3])
        await producer.flush()
        assert sent.result().offset == 0
        with pytest.raises(InvalidError, match="has no such partition"):
            await producer.send_and_wait(topic, b"x", partition=7)
        failed = await producer.send_many(topic, [b"3", ProducerRecord(b"x", partition=7)])
        with pytest.raises(PartlySentError, match="1 of 2 records were not acknowledged") as partly:
            await failed
        assert isinstance(partly.value.outcomes[0], RecordMetadata)
        with pytest.raises(HoldfastError, match="has no such partition"):
            await producer.flush()
    with pytest.raises(ClosedError, match="producer is closed"):
        await producer.send(topic, b"late")
    assert read(broker.bootstrap, topic, 3) == ["1", "2", "3"]


async def test_a_producer_is_opened_first_and_once(broker: Broker) -> None:
    producer = Producer(broker.bootstrap)
    with pytest.raises(UsageError, match="open the producer first"):
        await producer.send("t", b"x")
    async with producer:
        pass
    with pytest.raises(UsageError, match="opened once"):
        await producer.__aenter__()


async def test_brokers_that_do_not_answer_are_named_with_the_reason() -> None:
    nowhere = ConnectionSettings("127.0.0.1:1", request_timeout_ms=300)
    with pytest.raises(UnavailableError, match=r"Kafka at 127\.0\.0\.1:1 is unavailable: no answer within 0\.3 s"):
        async with Producer(nowhere):
            pass


async def test_a_broker_that_hangs_and_is_killed_costs_nothing_that_was_accepted(own_broker: Broker) -> None:
    """Back-pressure, cancellation and failover in one life of a broker: bounded buffer, no loss, no duplicate, no reordering."""
    topic = own_broker.create_topic("killed", 2)
    settings = ProducerSettings(linger_ms=1, buffer_records_max=40, buffer_bytes_max=1_000_000)
    accepted: list[tuple[str, int]] = []
    async with Producer(
        own_broker.bootstrap, value_serializer="str", key_serializer="str", settings=settings
    ) as producer:

        async def send(key: str, first: int, last: int) -> None:
            for number in range(first, last):
                await producer.send(topic, f"{key}:{number}", key)
                accepted.append((key, number))

        await asyncio.gather(*(send(key, 0, 50) for key in "abc"))
        os.kill(own_broker.pid, signal.SIGSTOP)
        stuck = [asyncio.create_task(send(key, 50, 200)) for key in "abc"]
        await async_until(lambda: producer._outbox.unacknowledged == 40, what="the buffer is full")
        before = len(accepted)
        cancelled = asyncio.create_task(producer.send(topic, "never", "z"))
        await async_until(lambda: len(producer._waiting) == 4, what="everybody waits for room")
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        assert len(accepted) == before  # nobody got past the limit
        own_broker.restart()
        await asyncio.gather(*stuck)
    await _check(own_broker, topic, accepted)


async def _check(broker: Broker, topic: str, accepted: list[tuple[str, int]]) -> None:
    assert sorted(accepted) == [(key, number) for key in "abc" for number in range(200)]
    found: dict[str, list[int]] = {"a": [], "b": [], "c": []}
    async with Consumer(broker.bootstrap, topic, value_deserializer="str") as consumer:
        while await consumer.fetch(timeout_ms=0) == []:
            pass
        for partition in consumer.assignment:
            await consumer.seek(partition, "earliest")
        while any((await consumer.lag()).values()):
            for record in await consumer.fetch():
                key, _, number = record.value.partition(":")
                found[key].append(int(number))
    assert found == {key: list(range(200)) for key in "abc"}


async def test_a_close_that_is_cancelled_gives_up_and_says_so(own_broker: Broker) -> None:
    topic = own_broker.create_topic("abandoned")
    producer = await Producer(own_broker.bootstrap, settings=QUICK).__aenter__()
    await producer.send_and_wait(topic, b"x")
    os.kill(own_broker.pid, signal.SIGSTOP)
    future = await producer.send(topic, b"y")
    closing = asyncio.create_task(producer.close())
    await async_until(lambda: producer._closed)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    await async_until(future.done, what="the future has its error")
    assert isinstance(future.exception(), HoldfastError)
