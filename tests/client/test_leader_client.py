"""Appends at leaders against a real broker: lost answers, refusals, a leader that forgot, and one that does not answer."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
from kio.schema.metadata.v12.request import MetadataRequest
from tests.support.broker import Broker
from tests.support.librdkafka_client import read_all, values

from holdfast.client.addresses import BrokerAddress
from holdfast.client.connection import BrokerConnection
from holdfast.client.leader_client import AppendedBatch, LeaderClient, UnknownAppendError
from holdfast.client.loop_thread import run
from holdfast.kafka.enums import Acks
from holdfast.log.batches import Record, encode
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import HoldfastError, InvalidError, UnavailableError

CLOCK = RealClock()
LOST = UnavailableError("broker", "the answer was lost")
REFUSED = InvalidError("records", "REFUSED", "accepted")


class UnluckyClient(LeaderClient):
    """The broker appends, and instead of its answer comes the next of `answers`."""

    def __init__(self, broker: Broker, *answers: HoldfastError) -> None:
        super().__init__(broker.bootstrap, clock=CLOCK, timeout_ms=30_000)
        self.answers = list(answers)

    async def _produce_one(self, *args: Any) -> AppendedBatch:
        appended = await super()._produce_one(*args)
        if self.answers:
            raise self.answers.pop(0)
        return appended


def address_of(server: asyncio.Server) -> BrokerAddress:
    return BrokerAddress("127.0.0.1", server.sockets[0].getsockname()[1])


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A broker that is frozen."""
    with suppress(ConnectionError):
        await reader.read()
    writer.close()


def with_client(
    client: LeaderClient, name: str, work: Callable[[Callable[[bytes], Awaitable[int]]], Awaitable[None]]
) -> None:
    """Run `work` with a function that appends one value."""

    async def run_it() -> None:
        topic = await client.topic(name)

        async def append(value: bytes) -> int:
            batch = encode([Record(0, CLOCK.now_ms(), None, value)])
            return (await client.append(topic, 0, batch, acks=Acks.ALL)).base_offset

        try:
            await work(append)
        finally:
            await client.close()

    run(run_it())


def test_a_number_whose_outcome_is_unknown_is_not_used_for_the_next_batch(broker: Broker) -> None:
    name = broker.create_topic("lane")

    async def work(append: Callable[[bytes], Awaitable[int]]) -> None:
        with pytest.raises(UnknownAppendError, match="REFUSED"):
            await append(b"one")
        assert await append(b"two") == 1

    with_client(UnluckyClient(broker, LOST, REFUSED), name, work)
    assert values(read_all(broker, name)) == [b"one", b"two"]


def test_a_lost_answer_appends_once(broker: Broker) -> None:
    name = broker.create_topic("lane")

    async def work(append: Callable[[bytes], Awaitable[int]]) -> None:
        assert [await append(b"one"), await append(b"two")] == [0, 1]

    with_client(UnluckyClient(broker, LOST, LOST), name, work)
    assert values(read_all(broker, name)) == [b"one", b"two"]


def test_a_leader_that_expects_another_number_gets_the_batch_under_another_id(broker: Broker) -> None:
    name = broker.create_topic("lane")
    client = UnluckyClient(broker)

    async def work(append: Callable[[bytes], Awaitable[int]]) -> None:
        await append(b"one")
        (lane,) = client._lanes.values()
        lane.sequence += 5  # as if the leader before had acknowledged more, which was lost with it
        assert await append(b"two") == 1

    with_client(client, name, work)
    assert values(read_all(broker, name)) == [b"one", b"two"]


def test_a_leader_that_does_not_answer_leaves_time_for_the_next_one(broker: Broker) -> None:
    name = broker.create_topic("lane")
    client = LeaderClient(broker.bootstrap, clock=CLOCK, timeout_ms=8_000)

    async def work(append: Callable[[bytes], Awaitable[int]]) -> None:
        async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
            client._metadata_cache.addresses[77] = address_of(server)
            client._metadata_cache.leaders[name, 0] = 77
            assert await append(b"one") == 0

    with_client(client, name, work)
    assert values(read_all(broker, name)) == [b"one"]


async def test_requests_behind_one_that_is_not_answered_wait_no_longer_than_it_does() -> None:
    opened: list[asyncio.StreamWriter] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        opened.append(writer)
        await silent(reader, writer)

    request = MetadataRequest(topics=(), allow_auto_topic_creation=False, include_topic_authorized_operations=False)
    async with await asyncio.start_server(listen, "127.0.0.1", 0) as server:
        connection = BrokerConnection(address_of(server), timeout_s=0.2)
        found = await asyncio.gather(*(connection.request(request) for _ in range(20)), return_exceptions=True)
        assert all(isinstance(each, UnavailableError) for each in found)
        assert (0 < len(opened) < 20, connection.pending) == (True, 0), (
            "one after the other they would take 20 times as long"
        )


def test_a_connection_that_waits_for_an_answer_does_not_hold_up_the_next_request() -> None:
    address = BrokerAddress("127.0.0.1", 9)
    client = LeaderClient(str(address), clock=CLOCK, timeout_ms=30_000)
    first = client._connection(address)
    assert client._connection(address) is first, "nobody uses it"
    first.pending += 1
    second = client._connection(address)
    assert second is not first
    second.pending += 2
    for _ in range(40):
        client._connection(address).pending += 1
    assert sorted(each.pending for each in client._pools[address]) == [2] * 5 + [3] * 11
