"""Electing leaders, moving replicas, and the metadata quorum: the cluster places and leads partitions by itself.

    ElectLeaders                 43   versions 0–2   (ELECTION_NOT_NEEDED where there is a leader)
    AlterPartitionReassignments  45   versions 0–1   (INVALID_REPLICA_ASSIGNMENT, unless nothing would move)
    ListPartitionReassignments   46   version 0      (none)
    DescribeQuorum               55   versions 0–2   (UNSUPPORTED_VERSION: cluster metadata is in the store)

Not implemented: more than one replica, and placing partitions by hand.
"""

from typing import Any, Final

from holdfast.gateways.kafka.api import Api, RequestContext, ResponseFields
from holdfast.gateways.kafka.backend import KafkaBackend
from holdfast.gateways.kafka.leaders import leader_of
from holdfast.kafka.api_keys import ApiKey
from holdfast.kafka.error_codes import ErrorCode
from holdfast.kafka.special_offsets import NO_NODE

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
    """Accept what would move nothing."""
    responses = [
        {"name": topic.name, "partitions": [_reassigned(call.backend, topic.name, each) for each in topic.partitions]}
        for topic in request.topics
    ]
    return {"error_code": ErrorCode.NONE, "error_message": None, "responses": responses}


def _reassigned(backend: KafkaBackend, name: str, wanted: Any) -> ResponseFields:
    number = wanted.partition_index
    code, text = _unknown(backend, name, number)
    if code is not ErrorCode.NONE:
        pass
    elif wanted.replicas is None:
        code, text = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress."
    elif tuple(wanted.replicas) != (leader_of(backend.cluster, name, number).node,):
        code = ErrorCode.INVALID_REPLICA_ASSIGNMENT
        text = "partitions are placed by the cluster, each with one replica: its leader"
    return {"partition_index": number, "error_code": code, "error_message": text}


async def list_partition_reassignments(call: RequestContext, request: Any) -> ResponseFields:
    """None."""
    return {"error_code": ErrorCode.NONE, "error_message": None, "topics": ()}


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
