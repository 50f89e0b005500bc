"""Creating and deleting topics, and deleting records.

    CreateTopics      19   versions 2–7
    DeleteTopics      20   versions 1–6   (by name, by id from version 6 on)
    DeleteRecords     21   versions 0–2
    CreatePartitions  37   versions 0–3   (always refused: the number of partitions never changes)

Not implemented: more than one replica, and choosing where a partition goes. Replica assignments are accepted only where they say
what would be done anyway: one replica each, on the only broker there is.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from holdfast.gateways.kafka.api import Api, RequestContext, ResponseFields
from holdfast.gateways.kafka.backend import KafkaBackend
from holdfast.gateways.kafka.config_encoding import DEFAULT_CONFIG, DYNAMIC_TOPIC_CONFIG
from holdfast.gateways.kafka.config_names import read_settings, topic_config_entries
from holdfast.gateways.kafka.errors import code_of
from holdfast.gateways.kafka.leaders import brokers
from holdfast.gateways.kafka.placement_wait import PLACED_WAIT_MS, wait_until, wait_until_placed
from holdfast.kafka.error_codes import ErrorCode
from holdfast.log.topics import PARTITIONS_MAX, Topic, TopicExistsError, TopicNameError, UnknownTopicError, check_name
from holdfast.vocabulary.errors import HoldfastError, InvalidError

_BROKER_DEFAULT: Final = -1
_CONCURRENCY_MAX: Final = 16


class _Refused(Exception):  # noqa: N818  (an answer on its way out, never seen by others)
    """What a client asked for and does not get."""

    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(code, text)
        self.code, self.text = code, text


@dataclass(frozen=True, slots=True)
class _TopicResult:
    """What became of a topic."""

    name: str | None
    code: ErrorCode = ErrorCode.NONE
    text: str | None = None
    topic: Topic | None = None


def _failed(name: str | None, error: _Refused | HoldfastError) -> _TopicResult:
    if isinstance(error, _Refused):
        return _TopicResult(name, error.code, error.text)
    return _TopicResult(name, code_of(error), str(error))


async def create_topics(call: RequestContext, request: Any) -> ResponseFields:
    """Create topics, each by itself, and wait a moment until they can be written to."""
    backend, named = call.backend, Counter(topic.name for topic in request.topics)
    slots = asyncio.Semaphore(_CONCURRENCY_MAX)

    async def create(wanted: Any) -> _TopicResult:
        async with slots:
            try:
                if named[wanted.name] > 1:
                    raise _Refused(ErrorCode.INVALID_REQUEST, f"{wanted.name!r} is named more than once")
                return _TopicResult(wanted.name, topic=await _create(backend, wanted, request.validate_only))
            except (_Refused, HoldfastError) as error:
                return _failed(wanted.name, error)

    outcomes = await asyncio.gather(*map(create, {topic.name: topic for topic in request.topics}.values()))
    if not request.validate_only:
        made = [outcome.topic.name for outcome in outcomes if outcome.topic is not None]
        # A topic that is not placed in time exists all the same: clients ask for its leaders anyway.
        await wait_until_placed(backend, made, min(request.timeout.total_seconds() * 1000, PLACED_WAIT_MS))
    return {"topics": [_created(outcome, request.validate_only) for outcome in outcomes]}


async def _create(backend: KafkaBackend, wanted: Any, validate_only: bool) -> Topic:
    name = wanted.name
    check_name(name)
    if validate_only or backend.cluster.topic(name) is not None:
        await _check_free(backend, name)  # what is shown here may be a moment behind
    partitions = _partitions(backend, wanted)
    try:
        config = read_settings((each.name, each.value) for each in wanted.configs)
    except InvalidError as error:
        raise _Refused(ErrorCode.INVALID_CONFIG, str(error)) from None
    if validate_only:
        return backend.log.topics.planned(name, partitions, config)
    return await backend.log.create_topic(name, partitions, config)


async def _check_free(backend: KafkaBackend, name: str) -> None:
    with suppress(UnknownTopicError):
        await backend.log.topics.get(name)
        raise TopicExistsError(name)


def _partitions(backend: KafkaBackend, wanted: Any) -> int:
    """How many partitions the topic gets."""
    count, replicas = wanted.num_partitions, wanted.replication_factor
    if wanted.assignments:
        if (count, replicas) != (_BROKER_DEFAULT, _BROKER_DEFAULT):
            raise _Refused(
                ErrorCode.INVALID_REQUEST,
                "replica assignments and numbers of partitions or replicas exclude each other",
            )
        _check_assignments(backend, wanted.assignments)
        count = len(wanted.assignments)
    elif replicas not in (_BROKER_DEFAULT, 1):
        raise _Refused(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {replicas}: a partition has one replica here, so 1 or -1 is allowed; "
            "holdfast.durability=object survives the loss of an agent",
        )
    elif count == _BROKER_DEFAULT:
        count = backend.settings.auto_create_partitions
    if not 1 <= count <= PARTITIONS_MAX:
        raise _Refused(ErrorCode.INVALID_PARTITIONS, f"{count} partitions: 1 to {PARTITIONS_MAX} are allowed")
    return int(count)


def _check_assignments(backend: KafkaBackend, assignments: Iterable[Any]) -> None:
    asked = {each.partition_index: tuple(each.broker_ids) for each in assignments}
    nodes = [broker.node for broker in brokers(backend)]
    if sorted(asked) != list(range(len(asked))):
        raise _Refused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions are to be numbered from 0 without gaps, each once"
        )
    if len(nodes) != 1 or set(asked.values()) != {(nodes[0],)}:
        raise _Refused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "where partitions go is planned here: name a number of partitions and no brokers",
        )


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
        "replication_factor": 1,
        "configs": [
            {
                "name": row.name,
                "value": row.value,
                "read_only": row.read_only,
                "config_source": DYNAMIC_TOPIC_CONFIG if row.is_set else DEFAULT_CONFIG,
                "is_sensitive": False,
            }
            for row in topic_config_entries(topic.config, tuple(topic.overrides))
        ],
    }


async def delete_topics(call: RequestContext, request: Any) -> ResponseFields:
    """Delete topics, each by itself, and wait a moment until this node no longer shows them."""
    backend = call.backend
    wanted: list[tuple[str | None, UUID | None]]
    if hasattr(request, "topics"):
        wanted = [(topic.name, topic.topic_id) for topic in request.topics]
    else:
        wanted = [(name, None) for name in request.topic_names]
    named, slots = Counter(wanted), asyncio.Semaphore(_CONCURRENCY_MAX)

    async def delete(name: str | None, topic_id: UUID | None) -> ResponseFields:
        async with slots:
            outcome = await _delete(backend, name, topic_id, named[name, topic_id] > 1)
        gone = outcome.topic
        return {
            "name": gone.name if gone is not None else name,
            "topic_id": gone.id if gone is not None else topic_id,
            "error_code": outcome.code,
            "error_message": outcome.text,
        }

    responses = await asyncio.gather(*(delete(name, topic_id) for name, topic_id in named))
    gone = [str(each["topic_id"]) for each in responses if each["error_code"] is ErrorCode.NONE]
    wait_ms = min(request.timeout.total_seconds() * 1000, PLACED_WAIT_MS)
    await wait_until(backend, lambda: all(backend.cluster.name_of(topic_id) is None for topic_id in gone), wait_ms)
    return {"responses": responses}


async def _delete(backend: KafkaBackend, name: str | None, topic_id: UUID | None, twice: bool) -> _TopicResult:
    try:
        if twice:
            raise _Refused(ErrorCode.INVALID_REQUEST, "it is named more than once")
        if (name is None) == (topic_id is None):
            raise _Refused(ErrorCode.INVALID_REQUEST, "a topic is to be named by its name or by its id")
        if name is not None:
            return _TopicResult(name, topic=await backend.log.delete_topic(name))
        assert topic_id is not None
        try:
            found = await backend.log.topics.by_id(topic_id.hex)
            return _TopicResult(name, topic=await backend.log.topics.delete(found.name, topic_id=found.id))
        except UnknownTopicError as error:
            raise _Refused(ErrorCode.UNKNOWN_TOPIC_ID, str(error)) from None
    except (_Refused, HoldfastError) as error:
        return _failed(name, error)


async def create_partitions(call: RequestContext, request: Any) -> ResponseFields:
    """Refuse: which partition a key belongs to would change, and with it the order of its records."""
    results = []
    for wanted in request.topics:
        topic = call.backend.cluster.topic(wanted.name)
        if topic is None:
            error = UnknownTopicError(wanted.name)
            results.append({"name": wanted.name, "error_code": code_of(error), "error_message": str(error)})
            continue
        text = (
            f"{wanted.name} has {topic.partitions} partitions, and that never changes: keys would change places. "
            "Create another topic and copy the records"
        )
        results.append({"name": wanted.name, "error_code": ErrorCode.INVALID_PARTITIONS, "error_message": text})
    return {"results": results}


async def delete_records(call: RequestContext, request: Any) -> ResponseFields:
    """Delete everything below an offset, in the partitions that are led here."""
    backend = call.backend
    slots = asyncio.Semaphore(_CONCURRENCY_MAX)

    async def delete(name: str, wanted: Any) -> ResponseFields:
        code, start = ErrorCode.NONE, -1
        async with slots:
            try:
                start = await _delete_records(backend, name, wanted.partition_index, wanted.offset)
            except (_Refused, HoldfastError) as error:
                code = _failed(name, error).code
        return {"partition_index": wanted.partition_index, "low_watermark": start, "error_code": code}

    topics = []
    for topic in request.topics:
        partitions = await asyncio.gather(*(delete(topic.name, each) for each in topic.partitions))
        topics.append({"name": topic.name, "partitions": partitions})
    return {"topics": topics}


async def _delete_records(backend: KafkaBackend, name: str, number: int, offset: int) -> int:
    topic = backend.cluster.topic(name)
    if topic is not None and topic.config.cleanup_policy == "compact":
        raise _Refused(ErrorCode.POLICY_VIOLATION, "a compacted topic keeps the last record of every key")
    try:
        return await backend.log.delete_records(name, number, offset)
    except (UnknownTopicError, TopicNameError):
        raise
    except InvalidError as error:
        raise _Refused(ErrorCode.OFFSET_OUT_OF_RANGE, str(error)) from None


APIS: Final = (
    Api(key=19, name="CreateTopics", versions=(2, 7), flexible_from=5, control=create_topics),
    Api(key=20, name="DeleteTopics", versions=(1, 6), flexible_from=4, control=delete_topics),
    Api(key=21, name="DeleteRecords", versions=(0, 2), flexible_from=2, control=delete_records),
    Api(key=37, name="CreatePartitions", versions=(0, 3), flexible_from=2, control=create_partitions),
)
