"""Committed offsets over the wire, in every version."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import pytest_asyncio
from tests.support.cluster import FEW_SHARDS
from tests.support.kafka_admin import Admin, admin_of, code, versions
from tests.support.kafka_groups import committed, stable
from tests.support.kafka_wire import version_params
from tests.support.waiting import async_until

from holdfast.kafka.error_codes import ErrorCode

BY_ID = 10


@pytest_asyncio.fixture
async def admin(tmp_path: Path) -> AsyncIterator[Admin]:
    async with admin_of(tmp_path, topics={"orders": 4}) as made:
        agent = made.gateway.node.agent
        await async_until(
            lambda: agent.groups.leading is not None and len(agent.groups.leading.shards()) == FEW_SHARDS.shards
        )
        yield made


def orders_id(admin: Admin) -> UUID:
    topic = admin.backend.cluster.topic("orders")
    assert topic is not None
    return UUID(topic.id)


async def commit(admin: Admin, version: int, topics: list[dict[str, Any]], **changes: Any) -> Any:
    given = {"group_id": "g", "member_id": "", "generation_id_or_member_epoch": -1, "topics": topics}
    return (await admin.ask("OffsetCommit", version, **{**given, **changes})).topics


async def fetch(admin: Admin, version: int, topics: list[dict[str, Any]] | None, group: str = "g") -> Any:
    """The group's part of the answer, wherever the version has it."""
    given = {"group_id": group, "topics": topics, "groups": [{"group_id": group, "topics": topics}]}
    answer = await admin.ask("OffsetFetch", version, **given)
    return answer.groups[0] if version >= 8 else answer


def partition(number: int, offset: int, metadata: str | None = None, epoch: int = 3) -> dict[str, Any]:
    return {
        "partition_index": number,
        "committed_offset": offset,
        "committed_metadata": metadata,
        "committed_leader_epoch": epoch,
    }


@pytest.mark.parametrize("version", version_params(versions("OffsetCommit")))
async def test_offsets_are_committed_partition_by_partition(admin: Admin, version: int) -> None:
    wanted = [partition(0, 5, "mine"), partition(1, 6, "x" * 5_000), partition(9, 1)]
    known, unknown = await commit(
        admin,
        version,
        [
            {"name": "orders", "topic_id": orders_id(admin), "partitions": wanted},
            {"name": "nothing", "topic_id": UUID(int=77), "partitions": [partition(0, 1)]},
        ],
    )
    assert [code(each) for each in known.partitions] == [
        ErrorCode.NONE,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert [each.partition_index for each in known.partitions] == [0, 1, 9]
    expected = ErrorCode.UNKNOWN_TOPIC_ID if version >= BY_ID else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert code(unknown.partitions[0]) is expected
    (topic,) = (await fetch(admin, 7, None)).topics
    (only,) = topic.partitions
    assert (only.partition_index, only.committed_offset, only.metadata) == (0, 5, "mine")
    assert only.committed_leader_epoch == (3 if version >= 6 else -1)


@pytest.mark.parametrize("version", version_params(versions("OffsetFetch")))
async def test_offsets_are_fetched_and_what_was_never_committed_is_minus_one(admin: Admin, version: int) -> None:
    await committed(admin, "g", {0: 5, 2: 7})
    asked = [
        {"name": "orders", "topic_id": orders_id(admin), "partition_indexes": (0, 1, 2)},
        {"name": "nothing", "topic_id": UUID(int=77), "partition_indexes": (0,)},
    ]
    answer = await fetch(admin, version, asked)
    known, unknown = answer.topics
    assert [(each.partition_index, each.committed_offset, each.metadata) for each in known.partitions] == [
        (0, 5, "at 5"),
        (1, -1, ""),
        (2, 7, "at 7"),
    ]
    assert {code(each) for each in known.partitions} == {ErrorCode.NONE}
    (missing,) = unknown.partitions
    assert missing.committed_offset == -1
    assert code(missing) is (ErrorCode.UNKNOWN_TOPIC_ID if version >= BY_ID else ErrorCode.NONE)
    if version >= 2:
        assert code(answer) is ErrorCode.NONE
        (topic,) = (await fetch(admin, version, None)).topics
        assert [(each.partition_index, each.committed_offset) for each in topic.partitions] == [(0, 5), (2, 7)]
        assert (await fetch(admin, version, None, group="nobody")).topics == ()


async def test_offsets_of_several_groups_are_fetched_at_once(admin: Admin) -> None:
    await committed(admin, "g", {0: 5})
    await committed(admin, "h", {0: 6})
    topics = [{"name": "orders", "partition_indexes": (0,)}]
    answer = await admin.ask("OffsetFetch", 9, groups=[{"group_id": name, "topics": topics} for name in ("g", "h")])
    assert [(each.group_id, each.topics[0].partitions[0].committed_offset) for each in answer.groups] == [
        ("g", 5),
        ("h", 6),
    ]


@pytest.mark.parametrize("version", version_params(versions("OffsetCommit")[:-1]))
async def test_members_commit_and_strangers_do_not(admin: Admin, version: int) -> None:
    member = await stable(admin)
    assert await committed(admin, "g", {0: 1}, member, version=version) == [ErrorCode.NONE]
    assert await committed(admin, "g", {0: 2}, version=version) == [ErrorCode.UNKNOWN_MEMBER_ID]
    wrong = {"generation_id_or_member_epoch": 9}
    assert await committed(admin, "g", {0: 2}, member, version=version, **wrong) == [ErrorCode.ILLEGAL_GENERATION]
    assert await committed(admin, "new", {0: 2}, member, version=version) == [ErrorCode.ILLEGAL_GENERATION]
    (topic,) = (await fetch(admin, 7, None)).topics
    assert topic.partitions[0].committed_offset == 1


async def test_a_topic_created_a_moment_ago_may_be_committed(admin: Admin) -> None:
    await admin.backend.log.create_topic("fresh", 1)
    (topic,) = await commit(admin, 9, [{"name": "fresh", "partitions": [partition(0, 1)]}])
    assert code(topic.partitions[0]) is ErrorCode.NONE


async def test_offsets_are_deleted(admin: Admin) -> None:
    async def delete(group: str = "g", name: str = "orders") -> Any:
        topics = [{"name": name, "partitions": [{"partition_index": 0}]}]
        return await admin.ask("OffsetDelete", group_id=group, topics=topics)

    assert code(await delete("nobody")) is ErrorCode.GROUP_ID_NOT_FOUND
    assert code(await delete("")) is ErrorCode.INVALID_GROUP_ID
    await committed(admin, "simple", {0: 1})
    answer = await delete("simple")
    assert (code(answer), code(answer.topics[0].partitions[0])) == (ErrorCode.NONE, ErrorCode.NONE)
    assert (await fetch(admin, 9, None, group="simple")).topics == ()
    await committed(admin, "simple", {0: 1})
    unknown = await delete("simple", "nothing")
    assert code(unknown.topics[0].partitions[0]) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    member = await stable(admin)
    await committed(admin, "g", {0: 1}, member)
    answer = await delete()
    assert code(answer) is ErrorCode.NONE
    assert code(answer.topics[0].partitions[0]) is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


async def test_the_offsets_of_a_deleted_topic_are_gone_when_it_is_created_again(admin: Admin) -> None:
    await committed(admin, "g", {0: 5})
    await admin.backend.log.delete_topic("orders")
    await async_until(lambda: admin.backend.cluster.topic("orders") is None)
    await admin.backend.log.create_topic("orders", 4)
    await async_until(lambda: admin.backend.cluster.topic("orders") is not None)
    answer = await fetch(admin, 9, [{"name": "orders", "partition_indexes": (0,)}])
    assert answer.topics[0].partitions[0].committed_offset == -1
