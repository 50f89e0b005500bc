"""Moving partitions and changing their replicas. The cluster places partitions by itself, unless asked.

    AlterPartitionReassignments  45   versions 0–1   (1 to 3 replicas, the leader first)
    ListPartitionReassignments   46   version 0

A reassignment stays, as `holdfast transfer` does, until `holdfast rebalance` withdraws it. It is under way until the leader is the
first of its agents and the set that serves is theirs. A factor is the topic's: it changes when all partitions are given another
number of replicas in one request, by the commit that assigns them; if one of them is refused, all are. Cancelling withdraws the
assignment and leaves the factor.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from holdfast.gateways.kafka.api import Api, RequestContext, ResponseFields
from holdfast.gateways.kafka.backend import KafkaBackend
from holdfast.gateways.kafka.errors import CLUSTER_NOT_AUTHORIZED, ApiError
from holdfast.gateways.kafka.leaders import nodes_of
from holdfast.gateways.kafka.manual_assignment import assigned_agents
from holdfast.kafka.api_keys import ApiKey
from holdfast.kafka.error_codes import ErrorCode
from holdfast.kernel.placement import Placement, TopicAssignment
from holdfast.log.topic_config import replication_changes
from holdfast.log.topics import UnknownTopicError, with_settings
from holdfast.security.acls import Operation
from holdfast.vocabulary.errors import InvalidError

_Refusal = tuple[ErrorCode, str | None]
_DONE: Final = (ErrorCode.NONE, None)
_UNKNOWN: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")


async def alter_partition_reassignments(call: RequestContext, request: Any) -> ResponseFields:
    """Assign partitions to agents, which take them over by transfers, or withdraw assignments that are under way."""
    if not call.allows_cluster(Operation.ALTER):
        return {**CLUSTER_NOT_AUTHORIZED, "responses": ()}
    administration = call.backend.administration
    # Once for all: a tool that moves thousands of partitions names them in one request.
    assigned = await administration.assignments()
    moving: dict[str, set[int]] = {}
    for each in await administration.reassignments():
        moving.setdefault(each.topic, set()).add(each.partition)
    factor_may_change = getattr(request, "allow_replication_factor_change", True)
    responses = []
    async for topic in call.each(request.topics):
        name, wanted = topic.name, topic.partitions
        changing = _TopicChange(call, name, assigned.get(name, {}), moving.get(name, ()))
        responses.append({"name": name, "partitions": await changing.results(wanted, factor_may_change)})
    return {
        "allow_replication_factor_change": factor_may_change,
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "responses": responses,
    }


class _TopicChange:
    """What one request changes of a topic: all that can be done, by one assignment and, with another factor, one alteration."""

    def __init__(self, call: RequestContext, name: str, assigned: TopicAssignment, moving: Collection[int]) -> None:
        self._call, self._backend = call, call.backend
        self._name, self._assigned, self._moving = name, assigned, moving
        self._topic = call.backend.cluster.topic(name)
        self._factor: dict[str, object | None] = {}  # settings to change

    async def results(self, wanted: Sequence[Any], factor_may_change: bool) -> list[ResponseFields]:
        refused: dict[int, _Refusal] = {}
        changes: dict[int, Placement] = {}
        same = self._same_count(wanted)
        async for each in self._call.each(wanted):
            number = each.partition_index
            try:
                change = self._change(number, each.replicas)
                if each.replicas is not None:
                    self._check_factor(same, len(each.replicas), factor_may_change)
            except ApiError as error:
                refused[number] = error.code, str(error)
            else:
                if change is not None:
                    changes[number] = change
        if self._factor and refused:
            number, (_, text) = next(iter(refused.items()))
            why = f"The replication factor is changed for all partitions or none, and partition {number} was refused: {text}"
            refused = dict.fromkeys(changes, (ErrorCode.INVALID_REPLICATION_FACTOR, why)) | refused
        elif changes or self._factor:
            refused |= await self._apply(changes)
        results: list[ResponseFields] = []
        async for each in self._call.each(wanted):
            code, text = refused.get(each.partition_index, _DONE)
            results.append({"partition_index": each.partition_index, "error_code": code, "error_message": text})
        return results

    def _change(self, number: int, replicas: Sequence[int] | None) -> Placement | None:
        """What to assign the partition to; empty: withdraw what is assigned; None: it is as wanted."""
        topic, cluster = self._topic, self._backend.cluster
        if topic is None or not 0 <= number < topic.partitions:
            raise ApiError(*_UNKNOWN)
        if replicas is None:
            if number not in self._moving:
                raise ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress.")
            return ()
        wanted = assigned_agents(self._backend, topic.config.agent_group, replicas)
        if number in self._assigned:  # perhaps to one that is away, which would take it when it returns
            return None if self._assigned[number] == wanted else wanted
        now = nodes_of(cluster, cluster.leader(self._name, number), cluster.replicas(topic.id, number))
        return None if (now.leader, now.replicas) == (replicas[0], tuple(replicas)) else wanted

    def _same_count(self, wanted: Sequence[Any]) -> int | None:
        """How many replicas the request gives every partition of the topic; None: not to all, or not as many."""
        given = {each.partition_index: len(each.replicas or ()) for each in wanted}
        counts = set(given.values())
        whole = self._topic is not None and given.keys() == set(range(self._topic.partitions))
        return counts.pop() if whole and len(counts) == 1 else None

    def _check_factor(self, same: int | None, count: int, may_change: bool) -> None:
        """Refuse another number of replicas for some partitions, or one that the topic cannot have."""
        topic = self._topic
        assert topic is not None
        now = topic.config.replication_factor
        if count == now or self._factor:
            return
        if not may_change:
            raise ApiError(
                ErrorCode.INVALID_REPLICATION_FACTOR, f"The replication factor is changed from {now} to {count}"
            )
        if count != same:
            raise ApiError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"invalid number of replicas {count}: must be {now}, the topic's replication factor, unless one request gives "
                f"all {topic.partitions} partitions of {self._name} as many",
            )
        wish: dict[str, object | None] = {"replication_factor": count if count > 1 else None}
        factor = replication_changes(topic.config, wish, default_factor=count)
        try:
            with_settings(topic, factor)
        except InvalidError as error:
            raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, str(error)) from None
        self._factor = factor

    async def _apply(self, changes: Mapping[int, Placement]) -> dict[int, _Refusal]:
        """Those that could not be done after all."""
        numbers = range(self._topic.partitions) if self._topic is not None and self._factor else changes
        try:
            await self._backend.administration.assign(self._name, changes, settings=self._factor)
        except UnknownTopicError:  # deleted since
            return dict.fromkeys(numbers, _UNKNOWN)
        except InvalidError as error:
            return dict.fromkeys(numbers, (ErrorCode.INVALID_REPLICA_ASSIGNMENT, str(error)))
        return {}


async def list_partition_reassignments(call: RequestContext, request: Any) -> ResponseFields:
    """What is assigned to agents that do not have it yet, or not as leader."""
    if not call.allows_cluster(Operation.DESCRIBE):
        return {**CLUSTER_NOT_AUTHORIZED, "topics": ()}
    backend = call.backend
    named = None if request.topics is None else {each.name: set(each.partition_indexes) for each in request.topics}
    topics: dict[str, list[ResponseFields]] = {}
    for each in await backend.administration.reassignments():
        if named is None or each.partition in named.get(each.topic, ()):
            now, then = _nodes(backend, each.replicas), _nodes(backend, each.assigned)
            coming = [node for node in then if node not in now]
            topics.setdefault(each.topic, []).append(
                {
                    "partition_index": each.partition,
                    "replicas": (*now, *coming),
                    "adding_replicas": coming,
                    "removing_replicas": [node for node in now if node not in then],
                }
            )
    listed = [{"name": name, "partitions": partitions} for name, partitions in topics.items()]
    return {"error_code": ErrorCode.NONE, "error_message": None, "topics": listed}


def _nodes(backend: KafkaBackend, agents: Sequence[str]) -> list[int]:
    found = (backend.cluster.node(agent) for agent in agents)
    return [node for node in found if node is not None]


APIS: Final = (
    Api(
        key=ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        versions=(0, 1),
        flexible_from=0,
        control=alter_partition_reassignments,
    ),
    Api(
        key=ApiKey.LIST_PARTITION_REASSIGNMENTS, versions=(0, 0), flexible_from=0, control=list_partition_reassignments
    ),
)
