"""DescribeLogDirs and AlterReplicaLogDirs: what partitions take, and that they stay where they are, in every version."""

from pathlib import Path
from typing import Any

import pytest
from tests.support.kafka_admin import admin_of, code, versions
from tests.support.partitions import batch

from holdfast.gateways.kafka.log_dirs import _disk_bytes
from holdfast.kafka.error_codes import ErrorCode


def sizes(answer: Any) -> dict[tuple[str, int], int]:
    (result,) = answer.results
    assert code(result) is ErrorCode.NONE
    return {
        (topic.name, each.partition_index): each.partition_size for topic in result.topics for each in topic.partitions
    }


async def test_every_version_returns_published_and_unpublished_bytes(tmp_path: Path) -> None:
    async with admin_of(tmp_path, topics={"orders": 2, "empty": 1}) as admin:
        await admin.backend.log.produce("orders", 0, batch("x" * 1_000))
        await admin.backend.log.flush("orders", 0)
        await admin.backend.log.produce("orders", 0, batch("y" * 1_000))
        led = await admin.backend.log._led("orders", 0)
        assert led.segments.size_bytes > 0
        for version in versions("DescribeLogDirs"):
            answer = await admin.ask("DescribeLogDirs", version, topics=None)
            assert sizes(answer) == {
                ("empty", 0): 0,
                ("orders", 0): led.segments.size_bytes + led.unpublished_bytes,
                ("orders", 1): 0,
            }
            (result,) = answer.results
            assert all(each.offset_lag == 0 for topic in result.topics for each in topic.partitions)
            if version >= 4:
                assert result.total_bytes >= result.usable_bytes > 0
            if version >= 3:
                assert code(answer) is ErrorCode.NONE


async def test_only_requested_partitions_led_here_are_listed(tmp_path: Path) -> None:
    async with admin_of(tmp_path, topics={"orders": 2}) as admin:
        wanted = [{"topic": "orders", "partitions": [1, 7]}, {"topic": "nowhere", "partitions": [0]}]
        assert sizes(await admin.ask("DescribeLogDirs", topics=wanted)) == {("orders", 1): 0}


async def test_a_node_without_an_agent_has_no_directory(tmp_path: Path) -> None:
    async with admin_of(tmp_path, topics={"orders": 1}) as admin:
        admin.backend.log.directory = None
        assert (await admin.ask("DescribeLogDirs", topics=None)).results == ()


def moved(answer: Any) -> dict[tuple[str, int], ErrorCode]:
    return {
        (topic.topic_name, each.partition_index): code(each) for topic in answer.results for each in topic.partitions
    }


async def test_only_a_move_to_where_a_partition_is_succeeds(tmp_path: Path) -> None:
    async with admin_of(tmp_path, topics={"orders": 2}) as admin:
        here = str(admin.backend.log.directory)
        for version in versions("AlterReplicaLogDirs"):
            wanted = [
                {
                    "path": here,
                    "topics": [{"name": "orders", "partitions": [0, 7]}, {"name": "nowhere", "partitions": [0]}],
                },
                {"path": "/elsewhere", "topics": [{"name": "orders", "partitions": [1]}]},
            ]
            assert moved(await admin.ask("AlterReplicaLogDirs", version, dirs=wanted)) == {
                ("orders", 0): ErrorCode.NONE,
                ("orders", 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                ("nowhere", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                ("orders", 1): ErrorCode.LOG_DIR_NOT_FOUND,
            }


async def test_a_partition_led_elsewhere_has_no_replica_to_move(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with admin_of(tmp_path, topics={"orders": 1}) as admin:
        monkeypatch.setattr(admin.backend.log, "size_bytes", lambda name, number: None)
        wanted = [{"path": str(admin.backend.log.directory), "topics": [{"name": "orders", "partitions": [0]}]}]
        answer = await admin.ask("AlterReplicaLogDirs", dirs=wanted)
        assert moved(answer) == {("orders", 0): ErrorCode.REPLICA_NOT_AVAILABLE}


async def test_nothing_is_moved_to_a_node_without_an_agent(tmp_path: Path) -> None:
    async with admin_of(tmp_path, topics={"orders": 1}) as admin:
        admin.backend.log.directory = None
        wanted = [{"path": "None", "topics": [{"name": "orders", "partitions": [0]}]}]
        answer = await admin.ask("AlterReplicaLogDirs", dirs=wanted)
        assert moved(answer) == {("orders", 0): ErrorCode.LOG_DIR_NOT_FOUND}


def test_a_disk_that_cannot_be_read_has_unknown_size(tmp_path: Path) -> None:
    assert _disk_bytes(tmp_path / "gone") == (-1, -1)
