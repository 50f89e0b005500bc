"""Requests that name much: they are limited, they hold up nobody, and what they name twice is answered once."""

import asyncio
import gc
import time  # noqa: TID251 (of the processor)
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.support.cluster import FEW_SHARDS
from tests.support.kafka_admin import KEYS, Admin, code
from tests.support.kafka_groups import committed, join_request, stable
from tests.support.kafka_wire import FETCH, PRODUCE, KafkaGateway, fetch_request, gateway_on, produce_request
from tests.support.large_requests import arrays, large_request
from tests.support.partitions import batch
from tests.support.waiting import WAIT_S, async_until

from holdfast.gateways.kafka.api import ClientInfo, RequestContext
from holdfast.gateways.kafka.api_table import KAFKA_APIS
from holdfast.kafka.error_codes import ErrorCode
from holdfast.kafka.wire import ENTRIES_MAX, MalformedRequestError, WireReader
from holdfast.vocabulary.errors import UnavailableError

MANY = 10_000
LONGEST_STEP_MS = 50  # of the processor's time; before, each of these took 100 to 600 ms
SHORT = ("Fetch", "ListOffsets", "Metadata", "OffsetCommit", "OffsetFetch", "DescribeGroups", "CreateTopics")


class Steps:
    """The longest step of the event loop, in time of the processor: what other processes do counts for nothing."""

    def __init__(self) -> None:
        self.longest_ms = 0.0

    async def measure(self) -> None:
        while True:
            began_ns = time.thread_time_ns()
            await asyncio.sleep(0)  # noqa: TID251 (no time passes)
            self.longest_ms = max(self.longest_ms, (time.thread_time_ns() - began_ns) / 1e6)


@asynccontextmanager
async def longest_step() -> AsyncIterator[Steps]:
    gc.collect()
    gc.disable()  # it is the tests' heap that would be collected
    steps = Steps()
    measuring = asyncio.ensure_future(steps.measure())
    try:
        yield steps
    finally:
        gc.enable()
        measuring.cancel()


@asynccontextmanager
async def coordinating(directory: Path, **settings: Any) -> AsyncIterator[KafkaGateway]:
    async with gateway_on(directory, topics={"t0": 4, "orders": 4}, **settings) as gateway:
        groups = gateway.node.agent.groups
        await async_until(lambda: groups.leading is not None and len(groups.leading.shards()) == FEW_SHARDS.shards)
        yield gateway


def names() -> list[Any]:
    every = sorted(api.name for api in KAFKA_APIS.values() if list(arrays(api.key)) and api.name != "Produce")
    return [pytest.param(name, marks=() if name in SHORT else pytest.mark.long) for name in every]


@pytest.mark.parametrize("name", names())
async def test_whatever_a_request_names_the_loop_goes_on(tmp_path: Path, name: str) -> None:
    async with coordinating(tmp_path) as gateway:
        for array in arrays(KEYS[name]):
            client = await gateway.client()
            await client.send_bytes(large_request(KEYS[name], array, 1))
            await client.receive()  # what is imported and cached at the first use
            request = large_request(KEYS[name], array, MANY)
            async with longest_step() as steps:
                await client.send_bytes(request)
                await client.receive()
            assert steps.longest_ms < LONGEST_STEP_MS, array


@pytest.mark.parametrize("name", ["Fetch", "Metadata", "OffsetFetch", "Produce"])
async def test_a_request_with_more_entries_than_allowed_closes_its_connection(tmp_path: Path, name: str) -> None:
    async with coordinating(tmp_path, request_entries_max=100, produce_entries_max=100) as gateway:
        for array in arrays(KEYS[name]):
            client = await gateway.client()
            await client.send_bytes(large_request(KEYS[name], array, 95))  # and those around it, and tags
            if name != "Produce":
                await client.receive()
            await client.send_bytes(large_request(KEYS[name], array, 101))
            assert await client.hung_up(), array


@pytest.mark.parametrize("name", ["OffsetFetch", "Metadata", "Produce"])
async def test_tagged_fields_are_entries(tmp_path: Path, name: str) -> None:
    async with coordinating(tmp_path) as gateway:
        client = await gateway.client()
        key, version = KEYS[name], KAFKA_APIS[KEYS[name]].versions[1]
        head = key.to_bytes(2, "big") + version.to_bytes(2, "big") + bytes(4) + b"\0\5tests"
        tags = b"\x80\x89\x7a" + bytes(4_000_000)  # 2,000,000 tags without content
        async with longest_step() as steps:
            await client.send_bytes((len(head) + len(tags)).to_bytes(4, "big") + head + tags)
            assert await client.hung_up()
        assert steps.longest_ms < LONGEST_STEP_MS


def test_a_string_is_no_longer_than_kafkas() -> None:
    longest = (1 << 15) - 1
    reader = WireReader(memoryview(b"\x80\x80\x02" + b"x" * longest), flexible=True)
    assert reader.text() == "x" * longest
    with pytest.raises(MalformedRequestError, match="string length"):
        WireReader(memoryview(b"\x81\x80\x02" + b"x" * (longest + 1)), flexible=True).text()


async def test_a_commit_of_fifty_thousand_partitions_each_of_its_own_topic_is_within_the_limit(tmp_path: Path) -> None:
    assert ENTRIES_MAX >= 2 * 50_000
    async with coordinating(tmp_path) as gateway:
        admin = Admin(gateway, await gateway.client())
        topic = gateway.backend.cluster.topic("t0")
        assert topic is not None
        partitions = [
            {"partition_index": number, "committed_offset": 7, "committed_leader_epoch": -1, "committed_metadata": ""}
            for number in range(4)
        ]
        known = {"topic_id": UUID(topic.id), "partitions": partitions}
        unknown = [{"topic_id": UUID(int=number + 1), "partitions": partitions[:1]} for number in range(49_990)]
        answer = await admin.ask(
            "OffsetCommit", group_id="g", member_id="", generation_id_or_member_epoch=-1, topics=[*unknown, known]
        )
        assert len(answer.topics) == 49_991
        assert {code(each) for each in answer.topics[-1].partitions} == {ErrorCode.NONE}


async def test_what_is_named_twice_is_answered_once(tmp_path: Path) -> None:
    async with coordinating(tmp_path) as gateway:
        admin = Admin(gateway, await gateway.client())
        await committed(admin, "g", {0: 5})
        await stable(admin, "h")
        twice = ["g", "h", "g"]
        described = await admin.ask("DescribeGroups", groups=twice)
        assert [each.group_id for each in described.groups] == ["g", "h"]
        everything = [{"group_id": name, "topics": None} for name in twice]
        fetched = await admin.ask("OffsetFetch", 9, groups=everything)
        assert [each.group_id for each in fetched.groups] == ["g", "h"]
        numbers = [{"name": "orders", "partition_indexes": (0, 1, 0)}]
        fetched = await admin.ask("OffsetFetch", 9, groups=[{"group_id": "g", "topics": numbers}])
        partitions = fetched.groups[0].topics[0].partitions
        assert [(each.partition_index, each.committed_offset) for each in partitions] == [(0, 5), (1, -1)]
        found = await admin.ask("FindCoordinator", key_type=0, coordinator_keys=twice)
        assert [each.key for each in found.coordinators] == ["g", "h"]
        resource = {"resource_type": 2, "resource_name": "t0", "configuration_keys": None}
        configs = await admin.ask("DescribeConfigs", resources=[resource, resource])
        assert len(configs.results) == 1


async def test_a_request_that_waits_for_its_turn_ends_with_its_connection(tmp_path: Path) -> None:
    async with coordinating(tmp_path, large_requests_max=1) as gateway:
        large, call = gateway.backend.large_requests, context(gateway)
        request = large_request(KEYS["DescribeGroups"], ("groups",), MANY)
        async with large.slot(call, memoryview(request)):
            for _ in range(3):
                client = await gateway.client()
                await client.send_bytes(request)
            await async_until(lambda: len(handled()) == 3)
            gateway.hang_up()
            await async_until(lambda: not handled())


def handled() -> list[Any]:
    """The tasks of requests."""
    return [task for task in asyncio.all_tasks() if "InFlightRequest.handle" in repr(task.get_coro())]


def context(gateway: KafkaGateway) -> RequestContext:
    return RequestContext(KAFKA_APIS[KEYS["DescribeGroups"]], 0, 0, "", ClientInfo("", 0), gateway.backend)


async def test_large_requests_are_handled_a_few_at_a_time(tmp_path: Path) -> None:
    async with gateway_on(tmp_path, large_requests_max=2) as gateway:
        await handle_many(gateway)


async def handle_many(gateway: KafkaGateway) -> None:
    large, inside = gateway.backend.large_requests, 0
    most = 0

    async def handle(size: int) -> None:
        nonlocal inside, most
        async with large.slot(context(gateway), memoryview(bytes(size))):
            inside += 1
            most = max(most, inside)
            await large.turns.next()
            inside -= 1

    await asyncio.gather(*(handle(100_000) for _ in range(10)))
    assert most == 2
    await asyncio.gather(*(handle(100) for _ in range(10)))
    assert most == 10


async def test_a_fetch_that_has_waited_does_not_stand_in_line_behind_large_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred consumers woken by a record went on one by one, each in a turn of the loop of its own."""
    monkeypatch.setattr("holdfast.gateways.kafka.api._TURN_NS", 500_000_000)
    async with coordinating(tmp_path) as gateway:
        client, producer = await gateway.client(), await gateway.client()
        await client.send(FETCH, 12, fetch_request("orders", {0: 0}, wait_ms=60_000))
        await async_until(lambda: len(handled()) == 1)
        await asyncio.sleep(0.6)  # noqa: TID251 (longer than a turn)
        async with gateway.backend.large_requests.turns._lock, asyncio.timeout(WAIT_S):
            await producer.ask(PRODUCE, 9, produce_request("orders", {0: batch("x")}))
            await client.receive()


async def test_lookups_that_wait_for_object_storage_take_no_places_from_others(tmp_path: Path) -> None:
    async with coordinating(tmp_path, large_requests_max=1, lookup_slow_ms=50, lookup_ms=120_000) as gateway:
        log, waiting = gateway.backend.log, asyncio.Event()

        async def offset_for_timestamp(*given: object, **named: object) -> None:
            waiting.set()
            await asyncio.get_running_loop().create_future()

        log.offset_for_timestamp = offset_for_timestamp  # type: ignore[method-assign]
        partitions = [{"partition_index": number, "timestamp": 5} for number in range(2_000)]
        asked = {"replica_id": -1, "topics": [{"name": "orders", "partitions": partitions}]}
        await (await gateway.client()).send(KEYS["ListOffsets"], 9, asked)
        await waiting.wait()
        admin = Admin(gateway, await gateway.client())
        async with asyncio.timeout(WAIT_S):
            await admin.ask("DescribeGroups", groups=[f"a-group-{number}" for number in range(MANY)])


async def test_large_metadata_requests_take_places(tmp_path: Path) -> None:
    """Twenty took 400 MB while they took turns."""
    async with coordinating(tmp_path, large_requests_max=1) as gateway:
        large = gateway.backend.large_requests
        request = large_request(KEYS["Metadata"], ("topics",), MANY)
        small, client = await gateway.client(), await gateway.client()
        async with large.slot(context(gateway), memoryview(request)):
            await client.send_bytes(request)
            await small.send_bytes(large_request(KEYS["Metadata"], ("topics",), 1))
            await small.receive()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.receive(), 2)
        await client.receive()


async def test_what_names_nothing_learns_that_its_coordinator_is_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def elsewhere(*given: object) -> None:
        raise UnavailableError("group coordinator", "it is elsewhere")

    async with coordinating(tmp_path) as gateway:
        admin = Admin(gateway, await gateway.client())
        monkeypatch.setattr(gateway.backend.groups, "fetch_offsets", elsewhere)
        monkeypatch.setattr(gateway.backend.groups, "leave", elsewhere)
        fetched = await admin.ask("OffsetFetch", 9, groups=[{"group_id": "g", "topics": []}])
        assert code(fetched.groups[0]) is not ErrorCode.NONE
        left = await admin.ask("LeaveGroup", group_id="g", members=[])
        assert code(left) is not ErrorCode.NONE


async def test_a_member_with_too_many_protocols_is_refused(tmp_path: Path) -> None:
    async with coordinating(tmp_path) as gateway:
        admin = Admin(gateway, await gateway.client())
        protocols = [{"name": f"p{number}", "metadata": b""} for number in range(101)]
        answer = await admin.ask("JoinGroup", **join_request("g", protocols=protocols))
        assert code(answer) is ErrorCode.INVALID_REQUEST
