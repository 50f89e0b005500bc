"""Electing leaders, moving partitions, and the metadata quorum. The cluster places and leads partitions by itself, unless asked.

    ElectLeaders                 43   versions 0–2   (ELECTION_NOT_NEEDED where there is a leader)
    AlterPartitionReassignments  45   versions 0–1   (one replica: the agent that is to lead it)
    ListPartitionReassignments   46   version 0
    DescribeQuorum               55   versions 0–2   (UNSUPPORTED_VERSION: cluster metadata is in the store)

Not implemented: more than one replica. A reassignment stays, as `holdfast transfer` does, until `holdfast rebalance` withdraws it.
"""

from collections.abc import Collection, Sequence
from typing import Any, Final

from holdfast.gateways.kafka.api import Api, RequestContext, ResponseFields
from holdfast.gateways.kafka.backend import KafkaBackend
from holdfast.gateways.kafka.errors import ApiError
from holdfast.gateways.kafka.leaders import leader_of
from holdfast.kafka.api_keys import ApiKey
from holdfast.kafka.error_codes import ErrorCode
from holdfast.kafka.special_offsets import NO_NODE
from holdfast.kernel.placement import Placement, TopicAssignment
from holdfast.log.topics import UnknownTopicError
from holdfast.vocabulary.errors import InvalidError

_PREFERRED: Final = 0
_Refusal = tuple[ErrorCode, str | None]
_UNKNOWN: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")


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
    administration = call.backend.administration
    # Once for all: a tool that moves thousands of partitions names them in one request.
    assigned = await administration.assignments()
    moving: dict[str, set[int]] = {}
    for each in await administration.reassignments():
        moving.setdefault(each.topic, set()).add(each.partition)
    responses = []
    for topic in request.topics:
        name, wanted = topic.name, topic.partitions
        results = await _reassigned(call.backend, name, wanted, assigned.get(name, {}), moving.get(name, ()))
        responses.append({"name": name, "partitions": results})
    return {"error_code": ErrorCode.NONE, "error_message": None, "responses": responses}


async def _reassigned(
    backend: KafkaBackend, name: str, wanted: Sequence[Any], assigned: TopicAssignment, moving: Collection[int]
) -> list[ResponseFields]:
    """All that can be done of a topic, in one commit."""
    refused: dict[int, _Refusal] = {}
    changes: dict[int, Placement] = {}
    for each in wanted:
        number = each.partition_index
        try:
            change = _change(backend, name, number, each.replicas, assigned, moving)
        except ApiError as error:
            refused[number] = error.code, str(error)
        else:
            if change is not None:
                changes[number] = change
    if changes:
        try:
            await backend.administration.assign(name, changes)
        except UnknownTopicError:  # deleted since
            refused |= dict.fromkeys(changes, _UNKNOWN)
        except InvalidError as error:
            refused |= dict.fromkeys(changes, (ErrorCode.INVALID_REPLICA_ASSIGNMENT, str(error)))
    results: list[ResponseFields] = []
    for each in wanted:
        code, text = refused.get(each.partition_index, (ErrorCode.NONE, None))
        results.append({"partition_index": each.partition_index, "error_code": code, "error_message": text})
    return results


def _change(
    backend: KafkaBackend,
    name: str,
    number: int,
    replicas: Sequence[int] | None,
    assigned: TopicAssignment,
    moving: Collection[int],
) -> Placement | None:
    """What to assign the partition to; empty: withdraw what is assigned; None: it is as wanted."""
    topic = backend.cluster.topic(name)
    if topic is None or not 0 <= number < topic.partitions:
        raise ApiError(*_UNKNOWN)
    if replicas is None:
        if number not in moving:
            raise ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress.")
        return ()
    if len(replicas) != 1:
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"invalid replicas {list(replicas)}: must be one, the leader"
        )
    group = topic.config.agent_group
    agents = {member.node: member.id for member in backend.cluster.members if member.group == group}
    if replicas[0] not in agents:
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"invalid broker {replicas[0]}: must be one of {sorted(agents)}, the live ones of group {group}",
        )
    wanted = (agents[replicas[0]],)
    if number in assigned:  # perhaps to one that is away, which would take it when it returns
        return None if assigned[number] == wanted else wanted
    return None if leader_of(backend.cluster, name, number).node == replicas[0] else wanted


async def list_partition_reassignments(call: RequestContext, request: Any) -> ResponseFields:
    """What is assigned to an agent that does not lead it yet."""
    backend = call.backend
    named = None if request.topics is None else {each.name: set(each.partition_indexes) for each in request.topics}
    nodes = {member.id: member.node for member in backend.cluster.members}
    topics: dict[str, list[ResponseFields]] = {}
    for each in await backend.administration.reassignments():
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


async def describe_quorum(call: RequestContext, request: Any) -> ResponseFields:
    """Reject: there is no quorum to describe."""
    text = "there is no metadata quorum: cluster metadata is in the store"
    return {"error_code": ErrorCode.UNSUPPORTED_VERSION, "error_message": text, "topics": (), "nodes": ()}


def _unknown(backend: KafkaBackend, name: str, number: int) -> _Refusal:
    topic = backend.cluster.topic(name)
    if topic is None or not 0 <= number < topic.partitions:
        return _UNKNOWN
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
