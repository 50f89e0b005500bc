"""Consumer groups: members, lag, and moving their committed offsets."""

from collections.abc import Sequence

import msgspec
from litestar import delete, get, post
from litestar.params import FromPath, FromQuery, JSONBody

from holdfast.client.admin.groups import GroupProgress, OffsetMove
from holdfast.client.admin.positions import parse_position
from holdfast.gateways.http.access import require, visible
from holdfast.gateways.http.routes.bodies import RequestBody
from holdfast.gateways.http.routes.confirmations import ConfirmationsDependency, principal_of
from holdfast.gateways.http.routes.dependencies import HttpRequest
from holdfast.gateways.http.routes.log_dependencies import LOG_PATH, LogDependency
from holdfast.gateways.log_access.group_administration import OFFSET_MAX
from holdfast.security.acls import Operation, ResourceType
from holdfast.security.confirmations import Action
from holdfast.vocabulary.errors import InvalidError

GROUPS_PATH = f"{LOG_PATH}/consumer-groups"
GROUP_PATH = GROUPS_PATH + "/{group:str}"


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
async def get_groups(log: LogDependency, request: HttpRequest) -> list[GroupSummary]:
    """Every group of the cluster that the caller may see, by name."""
    found = visible(request, ResourceType.GROUP, await log.groups.list(), lambda each: each.group)
    return [GroupSummary(group_id=group, state=state) for group, state in found]


@get(GROUP_PATH, tags=["consumer groups"], summary="Describe a group")
async def get_group(log: LogDependency, request: HttpRequest, group: FromPath[str]) -> GroupDescription:
    """State, members and progress."""
    found = await _describe(log, group)
    return msgspec.structs.replace(found, partitions=_visible_rows(request, found.partitions))


@get(f"{GROUP_PATH}/lag", tags=["consumer groups"], summary="Lag of a group")
async def get_lag(log: LogDependency, request: HttpRequest, group: FromPath[str]) -> GroupLag:
    """How many records the group has not read yet, of topics that the caller may see."""
    found = await _describe(log, group)
    partitions = _visible_rows(request, found.partitions)
    return GroupLag(group_id=group, total_lag=sum(each.lag or 0 for each in partitions), partitions=partitions)


def _visible_rows(request: HttpRequest, rows: Sequence[PartitionProgress]) -> list[PartitionProgress]:
    return visible(request, ResourceType.TOPIC, rows, lambda row: row.topic)


@post(f"{GROUP_PATH}/reset", tags=["consumer groups"], summary="Reset a group", status_code=200)
async def reset(
    request: HttpRequest,
    log: LogDependency,
    confirmations: ConfirmationsDependency,
    group: FromPath[str],
    data: JSONBody[ResetRequest],
    force: FromQuery[bool] = False,
    confirmation_token: FromQuery[str] = "",
) -> list[Move]:
    """Move the committed offsets of a group without members. With `dryRun` nothing is moved, and nothing to be confirmed."""
    for topic in data.topics:
        require(request, Operation.READ, ResourceType.TOPIC, topic)
    if (data.to is None) == (data.shift is None):
        raise InvalidError("reset", "both" if data.to is not None else "neither", "either to or shift")
    if not data.topics:
        raise InvalidError("topics", "none", "at least one topic")
    to = None if data.to is None else parse_position(data.to, option="to", now_ms=log.backend.clock.now_ms())
    if not data.dry_run:
        await confirmations.check(
            Action.RESET_GROUP, group, force=force, token=confirmation_token, principal=principal_of(request)
        )
    moves = await log.groups.reset(
        group, topics=data.topics, partitions=data.partitions, to=to, shift=data.shift, dry_run=data.dry_run
    )
    return [_move(each) for each in moves]


@post(f"{GROUP_PATH}/seek", tags=["consumer groups"], summary="Move a group in one partition", status_code=200)
async def seek(
    log: LogDependency, request: HttpRequest, group: FromPath[str], data: JSONBody[SeekRequest]
) -> list[Move]:
    """Move the committed offset of one partition. 409 while the group has members."""
    require(request, Operation.READ, ResourceType.TOPIC, data.topic)
    to = parse_position(str(data.offset), option="offset", now_ms=log.backend.clock.now_ms())
    moves = await log.groups.reset(group, topics=[data.topic], partitions=[data.partition], to=to, shift=None)
    return [_move(each) for each in moves]


@post(f"{GROUPS_PATH}/commit", tags=["consumer groups"], summary="Commit offsets", status_code=200)
async def commit(log: LogDependency, request: HttpRequest, data: JSONBody[CommitRequest]) -> list[Move]:
    """Commit offsets of a group without members: for readers that keep their position here and read over HTTP."""
    require(request, Operation.READ, ResourceType.GROUP, data.group_id)
    for each in data.offsets:
        require(request, Operation.READ, ResourceType.TOPIC, each.topic)
    for number, each in enumerate(data.offsets):
        if not 0 <= each.offset <= OFFSET_MAX:
            raise InvalidError(f"offsets[{number}].offset", each.offset, "0 to 2^63 - 1")
        await log.reading.topic(each.topic, each.partition)
    offsets = [(each.topic, each.partition, each.offset) for each in data.offsets]
    return [_move(each) for each in await log.groups.commit(data.group_id, offsets)]


@delete(GROUP_PATH, tags=["consumer groups"], summary="Delete a group")
async def delete_group(
    request: HttpRequest,
    log: LogDependency,
    confirmations: ConfirmationsDependency,
    group: FromPath[str],
    force: FromQuery[bool] = False,
    confirmation_token: FromQuery[str] = "",
) -> None:
    """Delete a group without members, and its offsets. Where `confirmations.required` says so, it takes `force` and a token."""
    await confirmations.check(
        Action.DELETE_GROUP, group, force=force, token=confirmation_token, principal=principal_of(request)
    )
    await log.groups.delete(group)


async def _describe(log: LogDependency, group: str) -> GroupDescription:
    state, found, progress = await log.groups.describe(group)
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
        state=state,
        protocol=found.partition_assignor,
        members=members,
        partitions=[PartitionProgress.of(row) for row in progress],
    )


def _move(each: OffsetMove) -> Move:
    return Move(topic=each.topic, partition=each.partition, from_offset=each.committed, to_offset=each.to)


HANDLERS = (get_groups, get_group, get_lag, reset, seek, commit, delete_group)
