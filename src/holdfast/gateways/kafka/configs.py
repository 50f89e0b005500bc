"""Settings of topics and brokers, in Kafka's names (`config_names` is the table).

    DescribeConfigs         32   versions 1–4
    AlterConfigs            33   versions 0–2   (replaces all settings of a topic)
    IncrementalAlterConfigs 44   versions 0–1   (SET, DELETE; APPEND and SUBTRACT for cleanup.policy)

Not implemented: changing a broker's settings (the command line and its file set them), and settings of loggers, groups and client
metrics. A cluster-wide default that brokers share (the broker with the empty name) has no settings.
"""

import asyncio
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any, Final

from holdfast.gateways.kafka.api import Api, RequestContext, ResponseChunks, ResponseFields
from holdfast.gateways.kafka.backend import KafkaBackend
from holdfast.gateways.kafka.broker_config import broker_config_entries
from holdfast.gateways.kafka.config_encoding import (
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
    DescribedResource,
    encode_described_configs,
)
from holdfast.gateways.kafka.config_names import (
    ConfigEntry,
    ConfigType,
    config_type_of,
    field_of,
    read_settings,
    topic_config_entries,
)
from holdfast.gateways.kafka.control import decode
from holdfast.gateways.kafka.errors import code_of
from holdfast.gateways.kafka.leaders import brokers
from holdfast.kafka.error_codes import ErrorCode
from holdfast.log.topic_config import NAMES, read_config
from holdfast.log.topics import Topic, TopicNameError, UnknownTopicError
from holdfast.vocabulary.errors import HoldfastError, InvalidError

_CONCURRENCY_MAX: Final = 16


class AlterOperation(IntEnum):
    """Operations of IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class _Refused(Exception):  # noqa: N818  (an answer on its way out, never seen by others)
    """A resource that cannot be answered for, with what its client is told."""

    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(code, text)
        self.code, self.text = code, text


async def describe_configs(call: RequestContext, body: memoryview) -> ResponseChunks:
    """Settings with their values, where these come from, and what they mean."""
    request = decode(call.api.key, call.version, body)
    slots = asyncio.Semaphore(_CONCURRENCY_MAX)

    async def describe(resource: Any) -> DescribedResource:
        kind, name, wanted = resource.resource_type, resource.resource_name, resource.configuration_keys
        async with slots:
            try:
                rows = await _rows(call.backend, resource)
            except (_Refused, HoldfastError) as error:
                code, text = _told(error)
                return DescribedResource(kind, name, code=code, text=text)
        return DescribedResource(kind, name, tuple(row for row in rows if row.name in wanted) if wanted else rows)

    described = await asyncio.gather(*map(describe, request.resources))
    texts = getattr(request, "include_documentation", False)
    return (encode_described_configs(call.version, described, synonyms=request.include_synonyms, texts=texts),)


async def alter_configs(call: RequestContext, request: Any) -> ResponseFields:
    """Replace all settings of topics: what is not named goes back to its default."""
    responses = []
    twice = _duplicates((each.resource_type, each.resource_name) for each in request.resources)
    for resource in request.resources:
        try:
            _check_alterable(resource, twice)
            settings = _read((each.name, each.value) for each in resource.configs)
            changes = {name: settings.get(name) for name in NAMES}
            await _alter(call.backend, resource.resource_name, changes, validate_only=request.validate_only)
            responses.append(_result(resource, ErrorCode.NONE, None))
        except (_Refused, HoldfastError) as error:
            responses.append(_result(resource, *_told(error)))
    return {"responses": responses}


async def incremental_alter_configs(call: RequestContext, request: Any) -> ResponseFields:
    """Change some settings of topics, all of a topic's together or none."""
    responses = []
    twice = _duplicates((each.resource_type, each.resource_name) for each in request.resources)
    for resource in request.resources:
        try:
            _check_alterable(resource, twice)
            topic = await _topic(call.backend, resource.resource_name)
            changes = _changes(topic, resource.configs)
            await _alter(call.backend, topic.name, changes, validate_only=request.validate_only)
            responses.append(_result(resource, ErrorCode.NONE, None))
        except (_Refused, HoldfastError) as error:
            responses.append(_result(resource, *_told(error)))
    return {"responses": responses}


def _result(resource: Any, code: ErrorCode, text: str | None) -> dict[str, object]:
    return {
        "error_code": code,
        "error_message": text,
        "resource_type": resource.resource_type,
        "resource_name": resource.resource_name,
    }


def _told(error: _Refused | HoldfastError) -> tuple[ErrorCode, str]:
    if isinstance(error, _Refused):
        return error.code, error.text
    return code_of(error), str(error)


async def _topic(backend: KafkaBackend, name: str) -> Topic:
    """As the store has it now: whoever has just changed it sees the change."""
    return await backend.log.topics.get(name)


async def _rows(backend: KafkaBackend, resource: Any) -> tuple[ConfigEntry, ...]:
    kind, name = resource.resource_type, resource.resource_name
    if kind == TOPIC_RESOURCE:
        topic = await _topic(backend, name)
        return topic_config_entries(topic.config, tuple(topic.overrides))
    if kind != BROKER_RESOURCE:
        raise _Refused(
            ErrorCode.INVALID_REQUEST,
            f"resource type {kind} is not offered: topics ({TOPIC_RESOURCE}) and brokers ({BROKER_RESOURCE}) are",
        )
    if name == "":
        return ()
    me = backend.me()
    for broker in (*brokers(backend), *((me,) if me is not None else ())):
        if str(broker.node) == name:
            return broker_config_entries(backend, broker)
    raise _Refused(ErrorCode.INVALID_REQUEST, f"there is no broker {name[:80]!r}")


def _check_alterable(resource: Any, twice: set[object]) -> None:
    kind, name = resource.resource_type, resource.resource_name
    if (kind, name) in twice:
        raise _Refused(ErrorCode.INVALID_REQUEST, f"{name!r} is named more than once")
    if kind == BROKER_RESOURCE:
        raise _Refused(
            ErrorCode.INVALID_REQUEST,
            "settings of a broker are read-only here: its command line and configuration file set them",
        )
    if kind != TOPIC_RESOURCE:
        raise _Refused(ErrorCode.INVALID_REQUEST, f"resource type {kind} is not offered: topics ({TOPIC_RESOURCE}) are")
    names = _duplicates(each.name for each in resource.configs)
    if names:
        raise _Refused(ErrorCode.INVALID_REQUEST, f"named more than once: {', '.join(sorted(map(str, names)))}")


def _read(given: Iterable[tuple[str, str | None]]) -> dict[str, object]:
    try:
        return read_settings(given)
    except InvalidError as error:
        raise _Refused(ErrorCode.INVALID_CONFIG, str(error)) from None


def _changes(topic: Topic, configs: Iterable[Any]) -> Mapping[str, object | None]:
    """What the operations come to; None takes a setting back to its default."""
    given: list[tuple[str, str | None]] = []
    dropped: dict[str, None] = {}
    for each in configs:
        try:
            operation = AlterOperation(each.config_operation)
            field = field_of(each.name)
        except ValueError:
            raise _Refused(ErrorCode.INVALID_REQUEST, f"operation {each.config_operation} is unknown") from None
        except InvalidError as error:
            raise _Refused(ErrorCode.INVALID_CONFIG, str(error)) from None
        if operation is AlterOperation.DELETE:
            if field is not None:
                dropped[field] = None
        elif operation is AlterOperation.SET:
            given.append((each.name, each.value))
        else:
            given.append((each.name, _in_list(topic, each.name, operation, each.value or "")))
    return {**dropped, **_read(given)}


def _in_list(topic: Topic, name: str, operation: AlterOperation, value: str) -> str:
    if config_type_of(name) is not ConfigType.LIST:
        raise _Refused(
            ErrorCode.INVALID_CONFIG, f"{name} is no list: it can be SET and DELETEd, not {operation.name}ed"
        )
    words = dict.fromkeys(str(getattr(topic.config, field_of(name) or "")).split(","))
    named = [word.strip() for word in value.split(",") if word.strip()]
    if operation is AlterOperation.APPEND:
        words |= dict.fromkeys(named)
    else:
        words = {word: None for word in words if word not in named}
    return ",".join(words)


async def _alter(
    backend: KafkaBackend, name: str, changes: Mapping[str, object | None], *, validate_only: bool
) -> None:
    try:
        if validate_only:
            topic = await _topic(backend, name)
            after = {**topic.overrides, **changes}
            read_config({setting: value for setting, value in after.items() if value is not None and setting in NAMES})
        else:
            await backend.log.topics.alter(name, changes)
    except (UnknownTopicError, TopicNameError):
        raise
    except InvalidError as error:
        raise _Refused(ErrorCode.INVALID_CONFIG, str(error)) from None


def _duplicates(named: Iterable[object]) -> set[object]:
    seen: set[object] = set()
    return {each for each in named if each in seen or seen.add(each)}  # type: ignore[func-returns-value]


APIS: Final = (
    Api(key=32, name="DescribeConfigs", versions=(1, 4), flexible_from=4, raw=describe_configs),
    Api(key=33, name="AlterConfigs", versions=(0, 2), flexible_from=2, control=alter_configs),
    Api(key=44, name="IncrementalAlterConfigs", versions=(0, 1), flexible_from=1, control=incremental_alter_configs),
)
