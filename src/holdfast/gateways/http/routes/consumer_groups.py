"""Consumer groups: members, lag, and moving their committed offsets."""

from collections.abc import Sequence

import msgspec
from litestar import delete, get, post
from litestar.params import FromPath, JSONBody

from holdfast.client.admin.groups import (
    GroupProgress,
    OffsetMove,
    apply_reset,
    committed_offsets,
    delete_groups,
    describe_group,
    list_groups,
    plan_reset,
    progress_of,
    state_name,
)
from holdfast.client.admin.positions import Position, parse_position
from holdfast.client.librdkafka import KafkaClient
from holdfast.client.types import KafkaNotFoundError
from holdfast.gateways.http.routes.bodies import RequestBody
from holdfast.gateways.http.routes.log_dependencies import LOG_PATH, LogDependency
from holdfast.vocabulary.errors import InvalidError

GROUPS_PATH = f"{LOG_PATH}/consumer-groups"
GROUP_PATH = GROUPS_PATH + "/{group:str}"
_OFFSET_MAX = (1 << 63) - 1


class GroupSummary(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A group in a listing."""

    group_id: str
    state: str


class GroupMember(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A member, and what it reads."""

    member_id: str
    client_id: str
    host: str
    partitions: Sequence[str]


class PartitionProgress(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How far a group is in a partition; null where it is not known."""

    topic: str
    partition: int
    committed_offset: int | None
    end_offset: int | None
    lag: int | None
    member_id: str | None

    @classmethod
    def of(cls, row: GroupProgress) -> "PartitionProgress":
        """The progress of a row."""
        return cls(
            topic=row.topic,
            partition=row.partition,
            committed_offset=row.committed,
            end_offset=row.end,
            lag=row.lag,
            member_id=row.member,
        )


class GroupLag(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The lag of a group: of the partitions whose lag is known, and of each."""

    group_id: str
    total_lag: int
    partitions: Sequence[PartitionProgress]


class GroupDescription(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A group with its members and its progress."""

    group_id: str
    state: str
    protocol: str
    members: Sequence[GroupMember]
    partitions: Sequence[PartitionProgress]


class ResetRequest(RequestBody, frozen=True):
    """Where to move the group: `to` a position (earliest, latest, an offset, a time, -1h), or `shift` records from where it is."""

    topics: Sequence[str]
    partitions: Sequence[int] = ()
    to: str | None = None
    shift: int | None = None
    dry_run: bool = False


class SeekRequest(RequestBody, frozen=True):
    """The next offset that the group reads in one partition."""

    topic: str
    partition: int
    offset: str | int


class CommittedOffset(RequestBody, frozen=True):
    """The next offset to read in one partition."""

    topic: str
    partition: int
    offset: int


class CommitRequest(RequestBody, frozen=True):
    """Offsets of a group whose reader is no member of it."""

    group_id: str
    offsets: Sequence[CommittedOffset]


class Move(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A partition whose committed offset moves, from null if there was none."""

    topic: str
    partition: int
    from_offset: int | None
    to_offset: int


@get(GROUPS_PATH, tags=["consumer groups"], summary="List groups")
async def get_groups(log: LogDependency) -> list[GroupSummary]:
    """Every group of the cluster, by name."""
    found = await log.kafka.call(list_groups, ())
    return [GroupSummary(group_id=each.group_id, state=state_name(each)) for each in found]


@get(GROUP_PATH, tags=["consumer groups"], summary="Describe a group")
async def get_group(log: LogDependency, group: FromPath[str]) -> GroupDescription:
    """State, members and progress."""
    return await log.kafka.call(_describe, group)


@get(f"{GROUP_PATH}/lag", tags=["consumer groups"], summary="Lag of a group")
async def get_lag(log: LogDependency, group: FromPath[str]) -> GroupLag:
    """How many records the group has not read yet."""
    found = await log.kafka.call(_describe, group)
    total = sum(each.lag or 0 for each in found.partitions)
    return GroupLag(group_id=group, total_lag=total, partitions=found.partitions)


@post(f"{GROUP_PATH}/reset", tags=["consumer groups"], summary="Reset a group", status_code=200)
async def reset(log: LogDependency, group: FromPath[str], data: JSONBody[ResetRequest]) -> list[Move]:
    """Move the committed offsets of a group without members. With `dryRun` nothing is moved."""
    if (data.to is None) == (data.shift is None):
        raise InvalidError("reset", "both" if data.to is not None else "neither", "either to or shift")
    if not data.topics:
        raise InvalidError("topics", "none", "at least one topic")
    to = None if data.to is None else parse_position(data.to, option="to", now_ms=log.backend.clock.now_ms())
    return await log.kafka.call(_reset, group, data, to)


@post(f"{GROUP_PATH}/seek", tags=["consumer groups"], summary="Move a group in one partition", status_code=200)
async def seek(log: LogDependency, group: FromPath[str], data: JSONBody[SeekRequest]) -> list[Move]:
    """Move the committed offset of one partition. 409 while the group has members."""
    to = parse_position(str(data.offset), option="offset", now_ms=log.backend.clock.now_ms())
    request = ResetRequest(topics=(data.topic,), partitions=(data.partition,))
    return await log.kafka.call(_reset, group, request, to)


@post(f"{GROUPS_PATH}/commit", tags=["consumer groups"], summary="Commit offsets", status_code=200)
async def commit(log: LogDependency, data: JSONBody[CommitRequest]) -> list[Move]:
    """Commit offsets of a group without members: for readers that keep their position here and read over HTTP."""
    for number, each in enumerate(data.offsets):
        if not 0 <= each.offset <= _OFFSET_MAX:
            raise InvalidError(f"offsets[{number}].offset", each.offset, "0 to 2^63 - 1")
        await log.reading.topic(each.topic, each.partition)
    return await log.kafka.call(_commit, data)


@delete(GROUP_PATH, tags=["consumer groups"], summary="Delete a group")
async def delete_group(log: LogDependency, group: FromPath[str]) -> None:
    """Delete a group without members, and its offsets."""
    error = (await log.kafka.call(delete_groups, [group]))[group]
    if error is not None:
        raise error


def _describe(client: KafkaClient, group: str) -> GroupDescription:
    found = describe_group(client, group)
    if found is None:
        raise KafkaNotFoundError("group", group, "does not exist")
    members = [
        GroupMember(
            member_id=each.member_id,
            client_id=each.client_id,
            host=each.host,
            partitions=[f"{place.topic}-{place.partition}" for place in each.assignment.topic_partitions],
        )
        for each in found.members
    ]
    return GroupDescription(
        group_id=group,
        state=state_name(found),
        protocol=found.partition_assignor,
        members=members,
        partitions=[PartitionProgress.of(row) for row in progress_of(client, group, found)],
    )


def _reset(client: KafkaClient, group: str, asked: ResetRequest, to: Position | None) -> list[Move]:
    moves = plan_reset(client, group, topics=asked.topics, partitions=asked.partitions, to=to, shift=asked.shift)
    if not asked.dry_run:
        apply_reset(client, group, moves)
    return [_move(each) for each in moves]


def _commit(client: KafkaClient, asked: CommitRequest) -> list[Move]:
    before = committed_offsets(client, asked.group_id)
    moves = [
        OffsetMove(each.topic, each.partition, before.get((each.topic, each.partition)), each.offset, None)
        for each in asked.offsets
    ]
    apply_reset(client, asked.group_id, moves)
    return [_move(each) for each in moves]


def _move(each: OffsetMove) -> Move:
    return Move(topic=each.topic, partition=each.partition, from_offset=each.committed, to_offset=each.to)


HANDLERS = (get_groups, get_group, get_lag, reset, seek, commit, delete_group)
