"""Adding partitions to topics.

    CreatePartitions  37   versions 0–3

Codes and messages are Apache Kafka's: also whoever repeats a request whose answer was lost gets INVALID_PARTITIONS. As in Kafka,
keys may change their partition, groups rebalance once their members refresh their metadata, and committed offsets stay.
POLICY_VIOLATION: the topic (`holdfast.partitions`) or this server (`topics.partitions`) keeps the count.

New partitions have as many replicas as the others. Brokers that are named for them are assigned as in CreateTopics (`topics`).
"""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from holdfast.gateways.kafka.api import Api, RequestContext, ResponseFields
from holdfast.gateways.kafka.backend import KafkaBackend
from holdfast.gateways.kafka.errors import ApiError, code_of, not_authorized
from holdfast.gateways.kafka.manual_assignment import assigned_agents, check_equal_sizes
from holdfast.gateways.kafka.placement_wait import PLACED_WAIT_MS, wait_until, wait_until_placed
from holdfast.gateways.kafka.replication_factor import live_agents
from holdfast.kafka.api_keys import ApiKey
from holdfast.kafka.error_codes import ErrorCode
from holdfast.kernel.placement import Placement
from holdfast.log.topics import Topic, check_growth, with_partitions
from holdfast.security.acls import Operation, ResourceType
from holdfast.vocabulary.errors import HoldfastError


async def create_partitions(call: RequestContext, request: Any) -> ResponseFields:
    """Add partitions, topic by topic, and wait a moment until they are writable."""
    backend, counts = call.backend, Counter(topic.name for topic in request.topics)
    grown: dict[str, int] = {}

    async def grow(wanted: Any) -> ResponseFields:
        code, text = ErrorCode.NONE, None
        try:
            if counts[wanted.name] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            if not call.allows(Operation.ALTER, ResourceType.TOPIC, wanted.name):
                raise not_authorized(ResourceType.TOPIC)
            topic = await _grow(backend, wanted, request.validate_only)
            grown[topic.name] = topic.partitions
        except HoldfastError as error:
            code, text = code_of(error), str(error)
        return {"name": wanted.name, "error_code": code, "error_message": text}

    unique = {topic.name: topic for topic in request.topics}
    results = await call.gather(grow, unique.values())
    if grown and not request.validate_only:
        wait_ms = min(request.timeout.total_seconds() * 1000, PLACED_WAIT_MS)
        # What is not placed in time exists all the same: clients look up leaders anyway.
        await wait_until(backend, partial(_are_known, backend, grown), wait_ms)
        there = [name for name in grown if backend.cluster.topic(name) is not None]
        await wait_until_placed(backend, there, wait_ms)
    return {"results": results}


async def _grow(backend: KafkaBackend, wanted: Any, validate_only: bool) -> Topic:
    topic = await backend.log.topics.get(wanted.name)
    check_growth(topic, wanted.count, backend.topic_settings)
    planned = with_partitions(topic, wanted.count)
    assigned = _assignment(backend, topic, wanted.count, wanted.assignments) if wanted.assignments is not None else None
    if validate_only:
        return planned
    return await backend.log.topics.add_partitions(wanted.name, wanted.count, assigned=assigned)


def _assignment(
    backend: KafkaBackend, topic: Topic, count: int, assignments: Sequence[Any]
) -> dict[int, Placement] | None:
    added = count - topic.partitions
    if len(assignments) != added:
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {added} additional partition(s), but only {len(assignments)} assignment(s) were specified.",
        )
    group = topic.config.agent_group
    assigned = {
        number: assigned_agents(backend, group, tuple(each.broker_ids))
        for number, each in enumerate(assignments, topic.partitions)
    }
    check_equal_sizes(assigned.values(), topic.config.replication_factor)
    return None if live_agents(backend, group) == 1 else assigned


def _are_known(backend: KafkaBackend, grown: dict[str, int]) -> bool:
    """Whether this node has learned of the new counts, or that a topic is gone."""
    found = {name: backend.cluster.topic(name) for name in grown}
    return all(topic is None or topic.partitions >= grown[name] for name, topic in found.items())


APIS: Final = (Api(key=ApiKey.CREATE_PARTITIONS, versions=(0, 3), flexible_from=2, control=create_partitions),)
