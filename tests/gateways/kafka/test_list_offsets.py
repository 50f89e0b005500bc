"""ListOffsets and OffsetForLeaderEpoch: every version, every time that is none, and leaders nobody knows of."""

import asyncio
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.support.kafka_admin import Admin, admin_of, code, versions
from tests.support.kafka_wire import WireClient
from tests.support.partitions import batch
from tests.support.stalled_gateway import StalledGateway, stalled_gateway
from tests.support.waiting import async_until

from holdfast.kafka.api_keys import ApiKey
from holdfast.kafka.error_codes import ErrorCode
from holdfast.kafka.special_offsets import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
)


def wanted(name: str, times: dict[int, int], epoch: int = -1) -> dict[str, Any]:
    partitions = [
        {"partition_index": number, "timestamp": time_ms, "current_leader_epoch": epoch}
        for number, time_ms in times.items()
    ]
    return {"name": name, "partitions": partitions}


async def filled(admin: Admin, partitions: int = 1) -> int:
    """Records at 0.5, 1, 3, 2 and 3 s, of which the first is deleted; the leader's epoch."""
    for number in range(partitions):
        for at_ms in (500, 1_000, 3_000, 2_000, 3_000):
            await admin.backend.log.produce("orders", number, batch("x", at_ms=at_ms))
        await admin.backend.log.delete_records("orders", number, 1)
    return (await admin.backend.log.describe("orders", 0)).epoch


async def asked(admin: Admin, time_ms: int, version: int | None = None, **given: Any) -> tuple[ErrorCode, int, int]:
    answer = await admin.ask("ListOffsets", version, replica_id=-1, topics=[wanted("orders", {0: time_ms}, **given)])
    (partition,) = answer.topics[0].partitions
    return code(partition), partition.offset, partition.timestamp


async def test_every_version_finds_start_end_and_times(tmp_path: Path) -> None:
    async with admin_of(tmp_path, topics={"orders": 1}) as admin:
        epoch = await filled(admin)
        for version in versions("ListOffsets"):
            found = {
                time_ms: await asked(admin, time_ms, version) for time_ms in (EARLIEST, LATEST, 0, 1_500, 2_500, 9_999)
            }
            assert found == {
                EARLIEST: (ErrorCode.NONE, 1, -1),
                LATEST: (ErrorCode.NONE, 5, -1),
                0: (ErrorCode.NONE, 1, 1_000),
                1_500: (ErrorCode.NONE, 2, 3_000),
                2_500: (ErrorCode.NONE, 2, 3_000),
                9_999: (ErrorCode.NONE, -1, -1),
            }
            if version >= 4:
                answer = await admin.ask(
                    "ListOffsets", version, replica_id=-1, topics=[wanted("orders", {0: LATEST}, epoch)]
                )
                assert answer.topics[0].partitions[0].leader_epoch == epoch


@pytest.mark.parametrize(
    ("time_ms", "since", "offset", "timestamp"),
    [
        (MAX_TIMESTAMP, 7, 2, 3_000),
        (EARLIEST_LOCAL, 8, 1, -1),
        (LATEST_TIERED, 9, -1, -1),
        (EARLIEST_PENDING_UPLOAD, 11, -1, -1),
        (-7, 99, -1, -1),
    ],
)
async def test_special_timestamps_are_supported_from_their_version_on(
    tmp_path: Path, time_ms: int, since: int, offset: int, timestamp: int
) -> None:
    async with admin_of(tmp_path, topics={"orders": 1}) as admin:
        await filled(admin)
        for version in versions("ListOffsets"):
            unsupported = (ErrorCode.UNSUPPORTED_VERSION, -1, -1)
            expected = unsupported if version < since else (ErrorCode.NONE, offset, timestamp)
            assert await asked(admin, time_ms, version) == expected, version


async def test_both_isolation_levels_get_the_same_result(tmp_path: Path) -> None:
    async with admin_of(tmp_path, topics={"orders": 1}) as admin:
        await filled(admin)
        for level in (0, 1):
            answer = await admin.ask(
                "ListOffsets", replica_id=-1, isolation_level=level, topics=[wanted("orders", {0: LATEST})]
            )
            assert answer.topics[0].partitions[0].offset == 5


async def test_many_partitions_are_looked_up_together(tmp_path: Path) -> None:
    async with admin_of(tmp_path, topics={"orders": 3}) as admin:
        await filled(admin, 3)
        times = {0: LATEST, 1: 1_500, 2: MAX_TIMESTAMP}
        answer = await admin.ask("ListOffsets", replica_id=-1, topics=[wanted("orders", times)])
        assert [each.offset for each in answer.topics[0].partitions] == [5, 2, 2]


async def test_an_empty_partition_has_no_record_of_any_time(tmp_path: Path) -> None:
    async with admin_of(tmp_path, topics={"orders": 1}) as admin:
        assert await asked(admin, EARLIEST) == await asked(admin, LATEST) == (ErrorCode.NONE, 0, -1)
        assert await asked(admin, 0) == await asked(admin, MAX_TIMESTAMP) == (ErrorCode.NONE, -1, -1)


async def test_a_wrong_leader_epoch_gets_its_code(tmp_path: Path) -> None:
    async with admin_of(tmp_path, topics={"orders": 1}) as admin:
        epoch = await filled(admin)
        for version in (each for each in versions("ListOffsets") if each >= 4):
            assert (await asked(admin, LATEST, version, epoch=epoch - 1))[0] is ErrorCode.FENCED_LEADER_EPOCH
            assert (await asked(admin, LATEST, version, epoch=epoch + 1))[0] is ErrorCode.UNKNOWN_LEADER_EPOCH
            assert (await asked(admin, LATEST, version, epoch=epoch))[0] is ErrorCode.NONE


async def test_partitions_led_elsewhere_get_their_code_and_the_others_a_result(tmp_path: Path) -> None:
    async with admin_of(tmp_path, topics={"orders": 2}) as admin:
        await filled(admin)
        agent = admin.gateway.node.agent
        assert agent.log._handler is not None
        del agent.log._handler.leading[next(each for each in agent.leading if each.number == 1)]
        answer = await admin.ask(
            "ListOffsets",
            replica_id=-1,
            topics=[wanted("orders", {0: LATEST, 1: LATEST, 7: LATEST}), wanted("nowhere", {0: 5})],
        )
        assert [code(each) for topic in answer.topics for each in topic.partitions] == [
            ErrorCode.NONE,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]


async def test_an_unknown_topic_is_looked_up_once_for_all_its_partitions(tmp_path: Path) -> None:
    async with admin_of(tmp_path) as admin:
        before = admin.gateway.node.store.calls.get("get", 0)
        times = dict.fromkeys(range(100), LATEST)
        answer = await admin.ask("ListOffsets", replica_id=-1, topics=[wanted("nowhere", times), wanted("a/b", times)])
        assert {code(each) for topic in answer.topics for each in topic.partitions} == {
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        }
        assert admin.gateway.node.store.calls.get("get", 0) - before < 10


async def test_a_partition_named_twice_is_refused(tmp_path: Path) -> None:
    async with admin_of(tmp_path, topics={"orders": 2}) as admin:
        topics = [wanted("orders", {0: LATEST, 1: LATEST}), wanted("orders", {0: EARLIEST})]
        answer = await admin.ask("ListOffsets", replica_id=-1, topics=topics)
        assert [code(each) for topic in answer.topics for each in topic.partitions] == [
            ErrorCode.INVALID_REQUEST,
            ErrorCode.NONE,
            ErrorCode.INVALID_REQUEST,
        ]


class Lookups:
    """The lookups of a gateway: how many have ended, and their time limits, which pass when the test says so."""

    def __init__(self, world: StalledGateway, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done = 0
        self._limits: list[asyncio.Timeout] = []
        self._look_up, self._timeout_at = world.log.offset_for_timestamp, asyncio.timeout_at
        monkeypatch.setattr(world.log, "offset_for_timestamp", self._counted)
        monkeypatch.setattr(asyncio, "timeout_at", self._endless)

    async def _counted(self, *args: Any, **options: Any) -> Any:
        reached = await self._look_up(*args, **options)
        self.done += 1
        return reached

    def _endless(self, _: float) -> asyncio.Timeout:
        self._limits.append(self._timeout_at(None))
        return self._limits[-1]

    def time_out(self) -> None:
        """The time of those under way is over."""
        for limit in self._limits:
            with suppress(RuntimeError):  # it has ended
                limit.reschedule(asyncio.get_running_loop().time())


async def looked_up(client: WireClient, *topics: dict[str, Any]) -> list[list[tuple[ErrorCode, int]]]:
    async with asyncio.timeout(5):  # an object that is stalled does not answer at all
        answer = await client.ask(ApiKey.LIST_OFFSETS, 7, {"replica_id": -1, "topics": topics})
    return [[(code(each), each.offset) for each in topic.partitions] for topic in answer.topics]


async def test_an_object_that_does_not_answer_costs_the_lookup_of_its_own_partition_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stalled_gateway(tmp_path, 2, topics=("orders", "clicks")) as world:
        for topic in ("orders", "clicks"):
            for number in range(2):
                await world.publish(number, "old", topic=topic)
        world.stall(0)
        client, lookups = await world.gateway.client(), Lookups(world, monkeypatch)
        asked = (wanted("orders", {0: 500, 1: 500}), wanted("clicks", {0: 500, 1: LATEST}))
        asking = asyncio.ensure_future(looked_up(client, *asked))
        await async_until(lambda: world.objects.waiting and lookups.done == 3)
        lookups.time_out()
        assert await asking == [
            [(ErrorCode.REQUEST_TIMED_OUT, -1), (ErrorCode.NONE, 0)],
            [(ErrorCode.NONE, 0), (ErrorCode.NONE, 1)],
        ]
        world.objects.resume()
        assert await looked_up(client, wanted("orders", {0: 500})) == [[(ErrorCode.NONE, 0)]]


async def test_lookups_that_wait_for_object_storage_do_not_keep_others_from_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stalled_gateway(tmp_path, 3, lookups_max=1, lookup_slow_ms=50) as world:
        for number in range(3):
            await world.publish(number, "old")
        world.stall(0, 1)
        client, lookups = await world.gateway.client(), Lookups(world, monkeypatch)
        asking = asyncio.ensure_future(looked_up(client, wanted("orders", {0: 500, 1: 500, 2: 500})))
        await async_until(lambda: world.objects.waiting == 2 and lookups.done == 1)
        lookups.time_out()
        assert await asking == [[(ErrorCode.REQUEST_TIMED_OUT, -1)] * 2 + [(ErrorCode.NONE, 0)]]


async def test_a_lookup_takes_no_longer_than_its_request_allows(tmp_path: Path) -> None:
    async with stalled_gateway(tmp_path, 1) as world:
        await world.publish(0, "old")
        world.stall(0)
        client = await world.gateway.client()
        topics = [wanted("orders", {0: 500})]
        async with asyncio.timeout(5):
            given = {"replica_id": -1, "topics": topics, "timeout": timedelta(milliseconds=200)}
            answer = await client.ask(ApiKey.LIST_OFFSETS, 10, given)
        assert code(answer.topics[0].partitions[0]) is ErrorCode.REQUEST_TIMED_OUT


# ── leader epochs ──


def ended(name: str, number: int, epoch: int, current: int = -1) -> dict[str, Any]:
    return {
        "topic": name,
        "partitions": [{"partition": number, "leader_epoch": epoch, "current_leader_epoch": current}],
    }


async def test_every_version_returns_the_end_of_an_epoch(tmp_path: Path) -> None:
    async with admin_of(tmp_path, topics={"orders": 1}) as admin:
        epoch = await filled(admin)
        for version in versions("OffsetForLeaderEpoch"):

            async def end(asked: int, current: int = -1, version: int = version) -> tuple[ErrorCode, int, int]:
                answer = await admin.ask("OffsetForLeaderEpoch", version, topics=[ended("orders", 0, asked, current)])
                (partition,) = answer.topics[0].partitions
                assert partition.partition == 0
                return code(partition), partition.leader_epoch, partition.end_offset

            assert await end(epoch, epoch) == (ErrorCode.NONE, epoch, 5)
            assert await end(epoch + 1) == (ErrorCode.NONE, -1, -1)
            assert await end(epoch - 1) == (ErrorCode.NONE, epoch - 1, 0)
            assert await end(epoch, epoch - 1) == (ErrorCode.FENCED_LEADER_EPOCH, -1, -1)
            assert await end(epoch, epoch + 1) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)


async def test_epochs_of_partitions_led_elsewhere_get_their_code(tmp_path: Path) -> None:
    async with admin_of(tmp_path, topics={"orders": 1}) as admin:
        answer = await admin.ask("OffsetForLeaderEpoch", topics=[ended("orders", 7, 1), ended("nowhere", 0, 1)])
        assert [code(topic.partitions[0]) for topic in answer.topics] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2
