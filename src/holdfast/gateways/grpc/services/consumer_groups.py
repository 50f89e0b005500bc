"""Consumer groups: members, lag, and moving their committed offsets."""

from collections.abc import Iterable
from typing import Final

from holdfast.client.admin.groups import GroupProgress
from holdfast.client.admin.groups import OffsetMove as Move
from holdfast.client.admin.positions import EndPosition, Position
from holdfast.gateways.grpc.access import CallAccess
from holdfast.gateways.grpc.records import to_position
from holdfast.gateways.log_access.group_administration import GroupAdministration
from holdfast.gateways.log_access.log_reads import LogReads
from holdfast.gateways.log_access.pages import page_of
from holdfast.security.acls import Operation, ResourceType
from holdfast.v1 import consumer_group_service_pb2 as pb
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.tasks import LoopTurns

_TOGETHER: Final = 100  # topics that are looked at in one turn of the event loop


class ConsumerGroupService:
    """`holdfast.v1.ConsumerGroupService`."""

    def __init__(self, groups: GroupAdministration, reading: LogReads) -> None:
        self._groups, self._reading = groups, reading
        self._turns = LoopTurns()  # of requests that name much

    async def list_consumer_groups(
        self, request: pb.ListConsumerGroupsRequest, access: CallAccess
    ) -> pb.ListConsumerGroupsResponse:
        found = [
            each
            for each in await self._groups.list()
            if access.allows(Operation.DESCRIBE, ResourceType.GROUP, each.group)
        ]
        page = page_of(sorted(found), lambda group: group.group, request)
        groups = [pb.ConsumerGroup(group=each.group, state=each.state) for each in page.items]
        return pb.ListConsumerGroupsResponse(groups=groups, next_page_token=page.next_page_token)

    async def describe_consumer_group(
        self, request: pb.DescribeConsumerGroupRequest, access: CallAccess
    ) -> pb.DescribeConsumerGroupResponse:
        state, found, progress = await self._groups.describe(request.group)
        members = [
            pb.ConsumerGroupMember(
                member_id=each.member_id,
                client_id=each.client_id,
                host=each.host,
                partitions=[
                    pb.TopicPartition(topic=place.topic, partition=place.partition)
                    for place in each.assignment.topic_partitions
                ],
            )
            for each in found.members
        ]
        return pb.DescribeConsumerGroupResponse(
            group=pb.ConsumerGroup(group=request.group, state=state),
            assignor=found.partition_assignor,
            members=members,
            partitions=_progress(progress, access),
        )

    async def get_consumer_group_lag(
        self, request: pb.GetConsumerGroupLagRequest, access: CallAccess
    ) -> pb.GetConsumerGroupLagResponse:
        shown = _progress((await self._groups.describe(request.group)).progress, access)
        return pb.GetConsumerGroupLagResponse(total_lag=sum(each.lag for each in shown), partitions=shown)

    async def commit_offsets(self, request: pb.CommitOffsetsRequest, access: CallAccess) -> pb.CommitOffsetsResponse:
        await self._require_read(access, [each.topic for each in request.offsets])
        for number, each in enumerate(request.offsets):
            if number % _TOGETHER == 0:
                await self._turns.next()
            if each.offset < 0:
                raise InvalidError(f"offsets[{number}].offset", each.offset, "at least 0")
            await self._reading.topic(each.topic, each.partition)
        offsets = [(each.topic, each.partition, each.offset) for each in request.offsets]
        return pb.CommitOffsetsResponse(moves=_moves(await self._groups.commit(request.group, offsets)))

    async def reset_offsets(self, request: pb.ResetOffsetsRequest, access: CallAccess) -> pb.ResetOffsetsResponse:
        await self._require_read(access, request.topics)
        target = request.WhichOneof("target")
        if target is None:
            raise InvalidError("target", "none", "to or shift")
        if not request.topics:
            raise InvalidError("topics", "none", "at least one topic")
        moves = await self._groups.reset(
            request.group,
            topics=list(request.topics),
            partitions=list(request.partitions),
            to=_given(request) if target == "to" else None,
            shift=request.shift if target == "shift" else None,
            dry_run=request.dry_run,
        )
        return pb.ResetOffsetsResponse(moves=_moves(moves))

    async def _require_read(self, access: CallAccess, topics: Iterable[str]) -> None:
        for number, topic in enumerate(dict.fromkeys(topics)):
            if number % _TOGETHER == 0:
                await self._turns.next()
            access.require(Operation.READ, ResourceType.TOPIC, topic)

    async def seek_offset(self, request: pb.SeekOffsetRequest, access: CallAccess) -> pb.SeekOffsetResponse:
        moves = await self._groups.reset(
            request.group, topics=[request.topic], partitions=[request.partition], to=_given(request), shift=None
        )
        return pb.SeekOffsetResponse(move=_moves(moves)[0])

    async def delete_consumer_group(
        self, request: pb.DeleteConsumerGroupRequest, access: CallAccess
    ) -> pb.DeleteConsumerGroupResponse:
        await self._groups.delete(request.group)
        return pb.DeleteConsumerGroupResponse()


def _given(request: pb.ResetOffsetsRequest | pb.SeekOffsetRequest) -> Position:
    """The position of a request, which must have one."""
    if request.to.WhichOneof("at") is None or (request.to.HasField("edge") and not request.to.edge):
        raise InvalidError("to", "none", "an offset, a time or an edge")
    return to_position("to", request.to, EndPosition())


def _progress(rows: Iterable[GroupProgress], access: CallAccess) -> list[pb.PartitionProgress]:
    """The rows of topics that the caller may see."""
    return [
        pb.PartitionProgress(
            topic=row.topic,
            partition=row.partition,
            committed_offset=row.committed,
            end_offset=row.end,
            lag=row.lag,
            member_id=row.member or "",
        )
        for row in rows
        if access.allows(Operation.DESCRIBE, ResourceType.TOPIC, row.topic)
    ]


def _moves(moves: Iterable[Move]) -> list[pb.OffsetMove]:
    return [
        pb.OffsetMove(topic=each.topic, partition=each.partition, from_offset=each.committed, to_offset=each.to)
        for each in moves
    ]
