"""Creating and deleting topics, and deleting records.

    CreateTopics      19   versions 2–7
    DeleteTopics      20   versions 1–6   (by name, by id from version 6 on)
    DeleteRecords     21   versions 0–2

`replication_factor` has what a factor means. Brokers that a client names for partitions are assigned to them as by
`holdfast transfer`, in the commit that creates the topic, and stay until `holdfast rebalance`.
"""

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from uuid import UUID

from holdfast.gateways.kafka.api import Api, RequestContext, ResponseFields
from holdfast.gateways.kafka.backend import KafkaBackend
from holdfast.gateways.kafka.config_names import read_settings, topic_config_entries
from holdfast.gateways.kafka.errors import ApiError, code_of, not_authorized
from holdfast.gateways.kafka.manual_assignment import assigned_agents, check_equal_sizes
from holdfast.gateways.kafka.metadata import may_create
from holdfast.gateways.kafka.placement_wait import PLACED_WAIT_MS, wait_until, wait_until_placed
from holdfast.gateways.kafka.replication_factor import BROKER_DEFAULT, live_agents, new_topic_settings
from holdfast.kafka.api_keys import ApiKey
from holdfast.kafka.enums import ConfigSource
from holdfast.kafka.error_codes import ErrorCode
from holdfast.kafka.special_offsets import NO_OFFSET
from holdfast.kernel.placement import Placement
from holdfast.log.errors import HeapTopicError, PendingRangeError
from holdfast.log.topic_config import DEFAULT_GROUP, check_replication, read_config
from holdfast.log.topics import PARTITIONS_MAX, Topic, TopicExistsError, TopicNameError, UnknownTopicError, check_name
from holdfast.security.acls import Operation, ResourceType
from holdfast.vocabulary.errors import HoldfastError, InvalidError


@dataclass(frozen=True, slots=True)
class _TopicResult:
    """The outcome for one topic."""

    name: str | None
    code: ErrorCode = ErrorCode.NONE
    text: str | None = None
    topic: Topic | None = None


async def create_topics(call: RequestContext, request: Any) -> ResponseFields:
    """Create topics, each on its own, and wait a moment until they are writable."""
    backend, counts = call.backend, Counter(topic.name for topic in request.topics)

    async def create(wanted: Any) -> _TopicResult:
        try:
            if counts[wanted.name] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"duplicate topic {wanted.name!r}")
            if not may_create(call, wanted.name):
                raise not_authorized(ResourceType.TOPIC)
            return _TopicResult(wanted.name, topic=await _create(backend, wanted, request.validate_only))
        except HoldfastError as error:
            return _TopicResult(wanted.name, code_of(error), str(error))

    unique = {topic.name: topic for topic in request.topics}
    outcomes = await call.gather(create, unique.values())
    if not request.validate_only:
        created = [outcome.topic.name for outcome in outcomes if outcome.topic is not None]
        # A topic that is not placed in time exists all the same: clients look up its leaders anyway.
        await wait_until_placed(backend, created, min(request.timeout.total_seconds() * 1000, PLACED_WAIT_MS))
    return {"topics": [_created(outcome, request.validate_only) async for outcome in call.each(outcomes)]}


async def _create(backend: KafkaBackend, wanted: Any, validate_only: bool) -> Topic:
    name = wanted.name
    check_name(name)
    if validate_only or backend.cluster.topic(name) is not None:
        await _check_free(backend, name)  # this node may be a moment behind the store
    try:
        given = read_settings((each.name, each.value) for each in wanted.configs)
    except InvalidError as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from None
    group = str(given.get("agent_group", DEFAULT_GROUP))
    assigned = _assignment(backend, wanted, group)
    partitions = len(assigned) or _partitions(backend, wanted.num_partitions)
    factor = check_equal_sizes(assigned.values()) or wanted.replication_factor
    config = new_topic_settings(name, factor, given, agents=live_agents(backend, group), settings=backend.settings)
    try:
        check_replication(read_config(config))
    except InvalidError as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from None
    if validate_only:
        return backend.log.topics.planned(name, partitions, config)
    alone = live_agents(backend, group) == 1
    return await backend.log.topics.create(name, partitions, config, assigned=None if alone else assigned)


async def _check_free(backend: KafkaBackend, name: str) -> None:
    with suppress(UnknownTopicError):
        await backend.log.topics.get(name)
        raise TopicExistsError(name)


def _partitions(backend: KafkaBackend, count: int) -> int:
    """The number of partitions of the new topic."""
    count = backend.settings.auto_create_partitions if count == BROKER_DEFAULT else count
    if not 1 <= count <= PARTITIONS_MAX:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"invalid num_partitions {count}: must be between 1 and {PARTITIONS_MAX}",
        )
    return int(count)


def _assignment(backend: KafkaBackend, wanted: Any, group: str) -> dict[int, Placement]:
    """The agents of the brokers that are named for each partition; none are as a rule."""
    if not wanted.assignments:
        return {}
    if (wanted.num_partitions, wanted.replication_factor) != (BROKER_DEFAULT, BROKER_DEFAULT):
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            "replica assignments exclude a number of partitions or replicas",
        )
    replicas = {each.partition_index: tuple(each.broker_ids) for each in wanted.assignments}
    if sorted(replicas) != list(range(len(wanted.assignments))):
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions must be numbered from 0, without gaps or duplicates"
        )
    _partitions(backend, len(replicas))
    return {number: assigned_agents(backend, group, replicas[number]) for number in sorted(replicas)}


def _created(outcome: _TopicResult, validated: bool) -> ResponseFields:
    topic = outcome.topic
    if topic is None:
        return {
            "name": outcome.name,
            "topic_id": None,
            "error_code": outcome.code,
            "error_message": outcome.text,
            "configs": None,
        }
    return {
        "name": topic.name,
        "topic_id": None if validated else topic.id,
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "num_partitions": topic.partitions,
        "replication_factor": topic.config.replication_factor,
        "configs": [
            {
                "name": row.name,
                "value": row.value,
                "read_only": row.read_only,
                "config_source": ConfigSource.DYNAMIC_TOPIC_CONFIG if row.is_set else ConfigSource.DEFAULT_CONFIG,
                "is_sensitive": False,
            }
            for row in topic_config_entries(topic.config, tuple(topic.overrides))
        ],
    }


async def delete_topics(call: RequestContext, request: Any) -> ResponseFields:
    """Delete topics, each on its own, and wait a moment until this node no longer lists them."""
    backend = call.backend
    wanted: list[tuple[str | None, UUID | None]]
    if hasattr(request, "topics"):
        wanted = [(topic.name, topic.topic_id) for topic in request.topics]
    else:
        wanted = [(name, None) for name in request.topic_names]
    counts = Counter(wanted)

    async def delete(topic: tuple[str | None, UUID | None]) -> ResponseFields:
        name, topic_id = topic
        outcome = await _delete(call, name, topic_id, counts[topic] > 1)
        gone = outcome.topic
        return {
            "name": gone.name if gone is not None else name,
            "topic_id": gone.id if gone is not None else topic_id,
            "error_code": outcome.code,
            "error_message": outcome.text,
        }

    responses = await call.gather(delete, counts)
    gone = [str(each["topic_id"]) for each in responses if each["error_code"] is ErrorCode.NONE]
    wait_ms = min(request.timeout.total_seconds() * 1000, PLACED_WAIT_MS)
    await wait_until(backend, lambda: all(backend.cluster.name_of(topic_id) is None for topic_id in gone), wait_ms)
    return {"responses": responses}


async def _delete(call: RequestContext, name: str | None, topic_id: UUID | None, duplicate: bool) -> _TopicResult:
    backend = call.backend
    try:
        if duplicate:
            raise ApiError(ErrorCode.INVALID_REQUEST, "duplicate topic")
        if (name is None) == (topic_id is None):
            raise ApiError(ErrorCode.INVALID_REQUEST, "a topic needs either a name or an id")
        if name is not None:
            if not call.allows(Operation.DELETE, ResourceType.TOPIC, name):
                raise not_authorized(ResourceType.TOPIC)
            _check_is_no_heap(await backend.log.topics.get(name))
            return _TopicResult(name, topic=await backend.log.delete_topic(name))
        assert topic_id is not None
        try:
            found = await backend.log.topics.by_id(topic_id.hex)
            if not call.allows(Operation.DELETE, ResourceType.TOPIC, found.name):
                raise not_authorized(ResourceType.TOPIC)  # without its name
            _check_is_no_heap(found)
            return _TopicResult(name, topic=await backend.log.topics.delete(found.name, topic_id=found.id))
        except UnknownTopicError as error:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, str(error)) from None
    except HoldfastError as error:
        return _TopicResult(name, code_of(error), str(error))


def _check_is_no_heap(topic: Topic) -> None:
    if topic.is_heap:
        how = "a heap is deleted with a confirmation token: `holdfast heap delete`"
        raise ApiError(ErrorCode.POLICY_VIOLATION, how)


async def delete_records(call: RequestContext, request: Any) -> ResponseFields:
    """Delete the records below an offset, in partitions led here."""
    backend = call.backend

    async def delete(name: str, wanted: Any) -> ResponseFields:
        code, start = ErrorCode.NONE, NO_OFFSET
        try:
            if not call.allows(Operation.DELETE, ResourceType.TOPIC, name):
                raise not_authorized(ResourceType.TOPIC)
            start = await _delete_records(backend, name, wanted.partition_index, wanted.offset)
        except HoldfastError as error:
            code = code_of(error)
        return {"partition_index": wanted.partition_index, "low_watermark": start, "error_code": code}

    topics = []
    async for topic in call.each(request.topics):
        partitions = await call.gather(partial(delete, topic.name), topic.partitions)
        topics.append({"name": topic.name, "partitions": partitions})
    return {"topics": topics}


async def _delete_records(backend: KafkaBackend, name: str, number: int, offset: int) -> int:
    topic = backend.cluster.topic(name)
    if topic is not None and topic.config.cleanup_policy == "compact":
        raise ApiError(ErrorCode.POLICY_VIOLATION, "a compacted topic keeps the last record of every key")
    try:
        return await backend.log.delete_records(name, number, offset)
    except (UnknownTopicError, TopicNameError, HeapTopicError, PendingRangeError):
        raise
    except InvalidError as error:
        raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, str(error)) from None


APIS: Final = (
    Api(key=ApiKey.CREATE_TOPICS, versions=(2, 7), flexible_from=5, control=create_topics),
    Api(key=ApiKey.DELETE_TOPICS, versions=(1, 6), flexible_from=4, control=delete_topics),
    Api(key=ApiKey.DELETE_RECORDS, versions=(0, 2), flexible_from=2, control=delete_records),
)
