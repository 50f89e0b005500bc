"""Electing leaders, moving partitions, and the metadata quorum. The cluster places and leads partitions by itself, unless asked.

    ElectLeaders                 43   versions 0–2   (ELECTION_NOT_NEEDED where there is a leader)
    AlterPartitionReassignments  45   versions 0–1   (one replica: the agent that is to lead it)
    ListPartitionReassignments   46   version 0
    DescribeQuorum               55   versions 0–2   (UNSUPPORTED_VERSION: cluster metadata is in the store)

Not implemented: more than one replica. A reassignment stays, as `holdfast transfer` does, until `holdfast rebalance` withdraws it.
"""

from collections.abc import Collection, Sequence
from typing import Any, Final

from holdfast.agent.administration import PartitionStatus
from holdfast.gateways.kafka.api import Api, RequestContext, ResponseFields
from holdfast.gateways.kafka.backend import KafkaBackend
from holdfast.gateways.kafka.errors import ApiError
from holdfast.gateways.kafka.leaders import leader_of
from holdfast.kafka.api_keys import ApiKey
from holdfast.kafka.error_codes import ErrorCode
from holdfast.kafka.special_offsets import NO_NODE
from holdfast.vocabulary.errors import InvalidError

_PREFERRED: Final = 0
_Refusal = tuple[ErrorCode, str | None]


async def elect_leaders(call: RequestContext, request: Any) -> ResponseFields:
    """Nothing to elect: for all partitions no result, for named ones the reason."""
    backend, kind = call.backend, getattr(request, "election_type", _PREFERRED)
    results = [
        {"topic": topic.topic, "partition_result": [_elected(backend, kind, topic.topic, n) for n in topic.partitions]}
        for topic in request.topic_partitions or ()
    ]
    return {"error_code": ErrorCode.NONE, "replica_election_results": results}


def _elected(backend: KafkaBackend, kind: int, name: str, number: int) -> ResponseFields:
    code, text = _unknown(backend, name, number)
    if code is ErrorCode.NONE:
        if leader_of(backend.cluster, name, number).node != NO_NODE:
            code, text = ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."
        elif kind == _PREFERRED:
            code, text = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "the partition is offline"
        else:
            code, text = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "set unclean.leader.election.enable on the topic"
    return {"partition_id": number, "error_code": code, "error_message": text}


async def alter_partition_reassignments(call: RequestContext, request: Any) -> ResponseFields:
    """Assign partitions to agents, which take them over by transfers, or withdraw assignments that are under way."""
    backend = call.backend
    responses = []
    for topic in request.topics:
        moving = {each.partition for each in await _moving(backend) if each.topic == topic.name}
        results = [await _reassigned(backend, topic.name, each, moving) for each in topic.partitions]
        responses.append({"name": topic.name, "partitions": results})
    return {"error_code": ErrorCode.NONE, "error_message": None, "responses": responses}


async def _reassigned(backend: KafkaBackend, name: str, wanted: Any, moving: Collection[int]) -> ResponseFields:
    number = wanted.partition_index
    code, text = _unknown(backend, name, number)
    if code is ErrorCode.NONE:
        try:
            await _reassign(backend, name, number, wanted.replicas, is_moving=number in moving)
        except ApiError as error:
            code, text = error.code, str(error)
        except InvalidError as error:
            code, text = ErrorCode.INVALID_REPLICA_ASSIGNMENT, str(error)
    return {"partition_index": number, "error_code": code, "error_message": text}


async def _reassign(
    backend: KafkaBackend, name: str, number: int, replicas: Sequence[int] | None, *, is_moving: bool
) -> None:
    if replicas is None:
        if not is_moving:
            raise ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress.")
        await backend.administration.assign(name, {number: ()})
        return
    if len(replicas) != 1:
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"invalid replicas {list(replicas)}: must be one, the leader"
        )
    agents = {member.node: member.id for member in backend.cluster.members}
    if replicas[0] not in agents:
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"invalid broker {replicas[0]}: must be one of {sorted(agents)}, the live ones",
        )
    if is_moving or leader_of(backend.cluster, name, number).node != replicas[0]:
        await backend.administration.assign(name, {number: (agents[replicas[0]],)})


async def list_partition_reassignments(call: RequestContext, request: Any) -> ResponseFields:
    """What is assigned to an agent that does not lead it yet."""
    backend = call.backend
    named = None if request.topics is None else {each.name: set(each.partition_indexes) for each in request.topics}
    nodes = {member.id: member.node for member in backend.cluster.members}
    topics: dict[str, list[ResponseFields]] = {}
    for each in await _moving(backend):
        if named is None or each.partition in named.get(each.topic, ()):
            leaving = [nodes[each.leader]] if each.leader in nodes else []
            coming = [nodes[agent] for agent in each.assigned if agent in nodes]
            topics.setdefault(each.topic, []).append(
                {
                    "partition_index": each.partition,
                    "replicas": (*leaving, *coming),
                    "adding_replicas": coming,
                    "removing_replicas": leaving,
                }
            )
    listed = [{"name": name, "partitions": partitions} for name, partitions in topics.items()]
    return {"error_code": ErrorCode.NONE, "error_message": None, "topics": listed}


async def _moving(backend: KafkaBackend) -> list[PartitionStatus]:
    return await backend.administration.reassignments()


async def describe_quorum(call: RequestContext, request: Any) -> ResponseFields:
    """Reject: there is no quorum to describe."""
    text = "there is no metadata quorum: cluster metadata is in the store"
    return {"error_code": ErrorCode.UNSUPPORTED_VERSION, "error_message": text, "topics": (), "nodes": ()}


def _unknown(backend: KafkaBackend, name: str, number: int) -> _Refusal:
    topic = backend.cluster.topic(name)
    if topic is None or not 0 <= number < topic.partitions:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
    return ErrorCode.NONE, None


APIS: Final = (
    Api(key=ApiKey.ELECT_LEADERS, versions=(0, 2), flexible_from=2, control=elect_leaders),
    Api(
        key=ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        versions=(0, 1),
        flexible_from=0,
        control=alter_partition_reassignments,
    ),
    Api(
        key=ApiKey.LIST_PARTITION_REASSIGNMENTS, versions=(0, 0), flexible_from=0, control=list_partition_reassignments
    ),
    Api(key=ApiKey.DESCRIBE_QUORUM, versions=(0, 2), flexible_from=0, control=describe_quorum),
)
