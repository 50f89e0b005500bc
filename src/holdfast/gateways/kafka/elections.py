"""Electing leaders, and the metadata quorum, which does not exist.

    ElectLeaders     43   versions 0–2   (preferred: whom the plan names; unclean: never)
    DescribeQuorum   55   versions 0–2   (UNSUPPORTED_VERSION: cluster metadata is in the store)

No election writes anything: the preferred leader is the first agent of an assignment, or else of the plan, and agents follow the
plan by themselves. So a request waits for what is under way, and says why where it would wait in vain.
"""

from collections.abc import Mapping
from typing import Any, Final

from holdfast.gateways.kafka.api import Api, RequestContext, ResponseFields
from holdfast.gateways.kafka.backend import KafkaBackend
from holdfast.gateways.kafka.errors import CLUSTER_NOT_AUTHORIZED
from holdfast.gateways.kafka.leaders import leader_of
from holdfast.gateways.kafka.placement_wait import wait_until
from holdfast.kafka.api_keys import ApiKey
from holdfast.kafka.error_codes import ErrorCode
from holdfast.kafka.special_offsets import NO_NODE
from holdfast.log.topics import Topic
from holdfast.security.acls import Operation
from holdfast.vocabulary.types import TopicPartition

_PREFERRED: Final = 0
_WAIT_MAX_MS: Final = 30_000
_Outcome = tuple[ErrorCode, str | None]
_DONE: Final = (ErrorCode.NONE, None)
_NOT_NEEDED: Final = (ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
_UNKNOWN: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")


async def elect_leaders(call: RequestContext, request: Any) -> ResponseFields:
    """Wait for leaders that the plan names, and give the reason where there is nothing to wait for.

    Without named partitions: for those that have replicas and another leader than the preferred one.
    """
    backend, kind = call.backend, getattr(request, "election_type", _PREFERRED)
    named = request.topic_partitions
    if not call.allows_cluster(Operation.ALTER):
        return _not_authorized(named)
    if named is not None:
        wanted = {topic.topic: list(topic.partitions) for topic in named}
    else:
        wanted = {topic.name: list(range(topic.partitions)) for topic in backend.cluster.topics if _replicated(topic)}
    preferred: Mapping[TopicPartition, str] = {}
    if kind == _PREFERRED and any(_replicated(backend.cluster.topic(name)) for name in wanted):
        preferred = await backend.administration.preferred_leaders(wanted)
    deadline_ms = backend.clock.boot_ms() + min(request.timeout.total_seconds() * 1_000, _WAIT_MAX_MS)
    results = []
    async for name, numbers in call.each(wanted.items()):
        elected = []
        async for number in call.each(numbers):
            code, text = _election(backend, kind, name, number, preferred.get(TopicPartition(name, number)))
            if code is ErrorCode.NONE:
                code, text = await _elected(backend, name, number, preferred[TopicPartition(name, number)], deadline_ms)
            if named is not None or code is not ErrorCode.ELECTION_NOT_NEEDED:
                elected.append({"partition_id": number, "error_code": code, "error_message": text})
        if elected or named is not None:
            results.append({"topic": name, "partition_result": elected})
    return {"error_code": ErrorCode.NONE, "replica_election_results": results}


def _not_authorized(named: Any) -> ResponseFields:
    """For the request as a whole, and for each partition: version 0 has no other place."""
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    results = [
        {
            "topic": topic.topic,
            "partition_result": [
                {"partition_id": number, "error_code": code, "error_message": None} for number in topic.partitions
            ],
        }
        for topic in named or ()
    ]
    return {"error_code": code, "replica_election_results": results}


def _replicated(topic: Topic | None) -> bool:
    return topic is not None and topic.config.replicated


def _election(backend: KafkaBackend, kind: int, name: str, number: int, preferred: str | None) -> _Outcome:
    """NONE if the preferred leader is to be waited for, else why not."""
    topic = backend.cluster.topic(name)
    if topic is None or not 0 <= number < topic.partitions:
        return _UNKNOWN
    leader, replicated = leader_of(backend.cluster, name, number).node, _replicated(topic)
    if kind != _PREFERRED:
        if leader != NO_NODE:
            return _NOT_NEEDED
        why = (
            "a majority of its replicas must be back"
            if replicated
            else "set unclean.leader.election.enable on the topic"
        )
        return ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, why
    if not replicated:
        return (
            _NOT_NEEDED
            if leader != NO_NODE
            else (
                ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
                "the partition is offline",
            )
        )
    member = backend.cluster.member(preferred) if preferred is not None else None
    if member is None:
        return ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, f"the preferred leader, {preferred or 'nobody'}, is not live"
    return _NOT_NEEDED if leader == member.node else _DONE


async def _elected(backend: KafkaBackend, name: str, number: int, preferred: str, deadline_ms: float) -> _Outcome:
    """Wait until the preferred leader leads."""

    def leads() -> bool:
        held = backend.cluster.leader(name, number)
        return held is not None and held.holder == preferred

    if await wait_until(backend, leads, deadline_ms - backend.clock.boot_ms()):
        return _DONE
    return ErrorCode.REQUEST_TIMED_OUT, f"the partition is on its way to {preferred}"


async def describe_quorum(call: RequestContext, request: Any) -> ResponseFields:
    """Reject: there is no quorum to describe."""
    if not call.allows_cluster(Operation.DESCRIBE):
        return {**CLUSTER_NOT_AUTHORIZED, "topics": (), "nodes": ()}
    text = "there is no metadata quorum: cluster metadata is in the store"
    return {"error_code": ErrorCode.UNSUPPORTED_VERSION, "error_message": text, "topics": (), "nodes": ()}


APIS: Final = (
    Api(key=ApiKey.ELECT_LEADERS, versions=(0, 2), flexible_from=2, control=elect_leaders),
    Api(key=ApiKey.DESCRIBE_QUORUM, versions=(0, 2), flexible_from=0, control=describe_quorum),
)
