"""Settings of topics and brokers under Kafka's names (`config_names` is the table).

    DescribeConfigs         32   versions 1–4
    AlterConfigs            33   versions 0–2   (replaces all settings of a topic)
    IncrementalAlterConfigs 44   versions 0–1   (SET, DELETE; APPEND and SUBTRACT for cleanup.policy)
    ListConfigResources     74   versions 0–1   (version 0 lists client metrics, of which there are none)

Levels of loggers (`broker_loggers`) are those of the node that is asked. Not implemented: changing a broker's settings (the command
line and the configuration file set them), but for throttles, which are accepted without effect. Groups and client metrics have no
settings, nor has the cluster-wide default of brokers (the broker with the empty name).
"""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final

from holdfast.gateways.kafka.api import Api, RequestContext, ResponseChunks, ResponseFields
from holdfast.gateways.kafka.backend import KafkaBackend
from holdfast.gateways.kafka.broker_config import are_throttles, broker_config_entries, note_throttles
from holdfast.gateways.kafka.broker_loggers import alter_loggers, logger_entries
from holdfast.gateways.kafka.config_encoding import DescribedResource, encode_described_configs
from holdfast.gateways.kafka.config_names import (
    ConfigEntry,
    config_type_of,
    field_of,
    read_settings,
    topic_config_entries,
)
from holdfast.gateways.kafka.errors import ApiError, code_of, not_authorized
from holdfast.gateways.kafka.leaders import brokers
from holdfast.gateways.kafka.replication_factor import altered_settings, live_agents
from holdfast.kafka.api_keys import ApiKey
from holdfast.kafka.enums import AlterConfigOperation, ConfigResourceType, ConfigType
from holdfast.kafka.error_codes import ErrorCode
from holdfast.log.topic_config import DEFAULT_GROUP, NAMES
from holdfast.log.topics import Topic, TopicNameError, UnknownTopicError, with_settings
from holdfast.security.acls import CLUSTER_NAME, Operation, ResourceType
from holdfast.vocabulary.errors import HoldfastError, InvalidError

_LARGE_FROM: Final = 300  # resources that are no longer encoded on the loop
_KINDS: Final = ", ".join(f"{each.name} ({each:d})" for each in ConfigResourceType)
_PROTECTED: Final = {ConfigResourceType.TOPIC: ResourceType.TOPIC, ConfigResourceType.GROUP: ResourceType.GROUP}
_WITHOUT_SETTINGS: Final = {ConfigResourceType.GROUP: "groups", ConfigResourceType.CLIENT_METRICS: "client metrics"}


async def describe_configs(call: RequestContext, body: memoryview) -> ResponseChunks:
    """Settings with their values, sources and documentation."""
    large = call.backend.large_requests
    async with large.slot(call, body):
        return await _describe_configs(call, await large.decode(call, body))


async def _describe_configs(call: RequestContext, request: Any) -> ResponseChunks:
    async def describe(resource: Any) -> DescribedResource:
        kind, name, wanted = resource.resource_type, resource.resource_name, resource.configuration_keys
        try:
            _check_authorized(call, Operation.DESCRIBE_CONFIGS, resource)
            rows = await _rows(call.backend, resource)
        except HoldfastError as error:
            return DescribedResource(kind, name, code=code_of(error), text=str(error))
        return DescribedResource(kind, name, tuple(row for row in rows if row.name in wanted) if wanted else rows)

    # Each once: the settings of a topic are a thousand times as large as its name.
    resources = {(each.resource_type, each.resource_name): each async for each in call.each(request.resources)}
    described = await call.gather(describe, resources.values())
    texts = getattr(request, "include_documentation", False)
    encode = partial(encode_described_configs, call.version, described, synonyms=request.include_synonyms, texts=texts)
    return (await call.backend.large_requests.run(encode, large=len(described) > _LARGE_FROM),)


async def alter_configs(call: RequestContext, request: Any) -> ResponseFields:
    """Replace all settings of topics: settings that are not named return to their default."""
    responses = []
    named = [(each.resource_type, each.resource_name) async for each in call.each(request.resources)]
    duplicates = _duplicates(named)
    async for resource in call.each(request.resources):
        try:
            _check_authorized(call, Operation.ALTER_CONFIGS, resource)
            _check_alterable(resource, duplicates)
            topic = await _topic(call.backend, resource.resource_name)
            changes = _replaced(topic, _read((each.name, each.value) for each in resource.configs))
            await _alter(call.backend, topic, changes, validate_only=request.validate_only)
            responses.append(_result(resource, ErrorCode.NONE, None))
        except HoldfastError as error:
            responses.append(_result(resource, code_of(error), str(error)))
    return {"responses": responses}


async def incremental_alter_configs(call: RequestContext, request: Any) -> ResponseFields:
    """Change some settings of topics, all of a topic's or none."""
    responses = []
    named = [(each.resource_type, each.resource_name) async for each in call.each(request.resources)]
    duplicates = _duplicates(named)
    async for resource in call.each(request.resources):
        try:
            _check_authorized(call, Operation.ALTER_CONFIGS, resource)
            if resource.resource_type == ConfigResourceType.BROKER_LOGGER:
                _check_unique(resource, duplicates)
                _check_is_here(call.backend, resource.resource_name)
                alter_loggers(resource.configs, validate_only=request.validate_only)
                responses.append(_result(resource, ErrorCode.NONE, None))
                continue
            if resource.resource_type == ConfigResourceType.BROKER and are_throttles(resource.configs):
                _check_unique(resource, duplicates)
                await _rows(call.backend, resource)  # there is such a broker
                _note_throttles(resource)
                responses.append(_result(resource, ErrorCode.NONE, None))
                continue
            _check_alterable(resource, duplicates)
            topic = await _topic(call.backend, resource.resource_name)
            changes = _changes(topic, resource.configs)
            await _alter(call.backend, topic, changes, validate_only=request.validate_only)
            responses.append(_result(resource, ErrorCode.NONE, None))
        except HoldfastError as error:
            responses.append(_result(resource, code_of(error), str(error)))
    return {"responses": responses}


async def list_config_resources(call: RequestContext, request: Any) -> ResponseFields:
    """Topics, brokers and their loggers; groups and client metrics with settings, of which there are none."""
    if not call.allows_cluster(Operation.DESCRIBE_CONFIGS):
        return {"error_code": ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "config_resources": ()}
    kinds = getattr(request, "resource_types", (ConfigResourceType.CLIENT_METRICS,)) or tuple(ConfigResourceType)
    if not {*kinds} <= {*ConfigResourceType}:
        return {"error_code": ErrorCode.UNSUPPORTED_VERSION, "config_resources": ()}
    names = {
        ConfigResourceType.TOPIC: [topic.name for topic in call.backend.cluster.topics],
        ConfigResourceType.BROKER: [str(broker.node) for broker in brokers(call.backend)],
        ConfigResourceType.BROKER_LOGGER: [str(broker.node) for broker in brokers(call.backend)],
    }
    listed = [{"resource_name": name, "resource_type": kind} for kind in kinds for name in names.get(kind, ())]
    return {"error_code": ErrorCode.NONE, "config_resources": listed}


def _result(resource: Any, code: ErrorCode, text: str | None) -> dict[str, object]:
    return {
        "error_code": code,
        "error_message": text,
        "resource_type": resource.resource_type,
        "resource_name": resource.resource_name,
    }


async def _topic(backend: KafkaBackend, name: str) -> Topic:
    """Read from the store, so that a client sees its own change."""
    return await backend.log.topics.get(name)


async def _rows(backend: KafkaBackend, resource: Any) -> tuple[ConfigEntry, ...]:
    kind, name = resource.resource_type, resource.resource_name
    if kind == ConfigResourceType.TOPIC:
        topic = await _topic(backend, name)
        return topic_config_entries(topic.config, tuple(topic.overrides))
    if kind in _WITHOUT_SETTINGS:
        return ()
    if kind == ConfigResourceType.BROKER_LOGGER:
        _check_is_here(backend, name)
        return logger_entries()
    if kind != ConfigResourceType.BROKER:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"unsupported resource type {kind}: must be one of {_KINDS}")
    if name == "":
        return ()
    me = backend.me()
    for broker in (*brokers(backend), *((me,) if me is not None else ())):
        if str(broker.node) == name:
            return broker_config_entries(backend, broker)
    raise ApiError(ErrorCode.INVALID_REQUEST, f"unknown broker {name[:80]!r}")


def _check_authorized(call: RequestContext, operation: Operation, resource: Any) -> None:
    """Settings of topics and groups are theirs, all others the cluster's."""
    kind = _PROTECTED.get(resource.resource_type, ResourceType.CLUSTER)
    name = CLUSTER_NAME if kind is ResourceType.CLUSTER else resource.resource_name
    if not call.allows(operation, kind, name):
        raise not_authorized(kind)


def _check_is_here(backend: KafkaBackend, name: str) -> None:
    """Loggers are a process's own: another node has to be asked itself, as clients do."""
    me = backend.me()
    if me is None or name != str(me.node):
        here = "a node without an id yet" if me is None else f"broker {me.node}"
        raise ApiError(ErrorCode.INVALID_REQUEST, f"loggers of broker {name[:80]!r} are not here: this is {here}")


def _check_unique(resource: Any, duplicates: set[object]) -> None:
    kind, name = resource.resource_type, resource.resource_name
    if (kind, name) in duplicates:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"duplicate resource {name!r}")
    names = _duplicates(each.name for each in resource.configs)
    if names:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"duplicate configs: {', '.join(sorted(map(str, names)))}")


def _check_alterable(resource: Any, duplicates: set[object]) -> None:
    kind = resource.resource_type
    _check_unique(resource, duplicates)
    if kind == ConfigResourceType.BROKER:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            "broker settings are read-only: they are set on the command line or in the configuration file",
        )
    if kind in _WITHOUT_SETTINGS:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"{_WITHOUT_SETTINGS[kind]} have no settings here")
    if kind == ConfigResourceType.BROKER_LOGGER:
        raise ApiError(ErrorCode.INVALID_REQUEST, "levels of loggers are changed by IncrementalAlterConfigs alone")
    if kind != ConfigResourceType.TOPIC:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"unsupported resource type {kind}: must be one of {_KINDS}")


def _note_throttles(resource: Any) -> None:
    try:
        note_throttles(resource.resource_name, resource.configs)
    except InvalidError as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from None


def _read(given: Iterable[tuple[str, str | None]]) -> dict[str, object]:
    try:
        return read_settings(given)
    except InvalidError as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from None


def _replaced(topic: Topic, settings: Mapping[str, object]) -> Mapping[str, object | None]:
    """Every setting; None resets it. To Kafka's clients a factor is no setting: it stays, and with it what it means."""
    changes = {name: settings.get(name) for name in NAMES}
    factor = {"durability", "replication_factor"}
    if topic.config.replicated or factor & settings.keys():
        for name in factor - settings.keys():
            del changes[name]
    return changes


def _changes(topic: Topic, configs: Iterable[Any]) -> Mapping[str, object | None]:
    """The effect of the operations; None resets a setting to its default."""
    given: list[tuple[str, str | None]] = []
    reset: dict[str, None] = {}
    for each in configs:
        try:
            operation = AlterConfigOperation(each.config_operation)
            field = field_of(each.name)
        except ValueError:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"unknown operation {each.config_operation}") from None
        except InvalidError as error:
            raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from None
        if operation is AlterConfigOperation.DELETE:
            if field is not None:
                reset[field] = None
        elif operation is AlterConfigOperation.SET:
            given.append((each.name, each.value))
        else:
            given.append((each.name, _in_list(topic, each.name, operation, each.value or "")))
    return {**reset, **_read(given)}


def _in_list(topic: Topic, name: str, operation: AlterConfigOperation, value: str) -> str:
    if config_type_of(name) is not ConfigType.LIST:
        raise ApiError(
            ErrorCode.INVALID_CONFIG, f"{operation.name} needs a list, and {name} is none: use SET or DELETE"
        )
    words = dict.fromkeys(str(getattr(topic.config, field_of(name) or "")).split(","))
    named = [word.strip() for word in value.split(",") if word.strip()]
    if operation is AlterConfigOperation.APPEND:
        words |= dict.fromkeys(named)
    else:
        words = {word: None for word in words if word not in named}
    return ",".join(words)


async def _alter(
    backend: KafkaBackend, topic: Topic, changes: Mapping[str, object | None], *, validate_only: bool
) -> None:
    group = changes["agent_group"] or DEFAULT_GROUP if "agent_group" in changes else topic.config.agent_group
    agents = live_agents(backend, group)
    try:
        changes = altered_settings(topic, changes, agents=agents, settings=backend.settings)
        if validate_only:
            with_settings(topic, changes)
        else:
            await backend.log.topics.alter(topic.name, changes)
    except (UnknownTopicError, TopicNameError):
        raise
    except InvalidError as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from None


def _duplicates(items: Iterable[object]) -> set[object]:
    seen: set[object] = set()
    return {each for each in items if each in seen or seen.add(each)}  # type: ignore[func-returns-value]


APIS: Final = (
    Api(key=ApiKey.DESCRIBE_CONFIGS, versions=(1, 4), flexible_from=4, raw=describe_configs),
    Api(key=ApiKey.ALTER_CONFIGS, versions=(0, 2), flexible_from=2, control=alter_configs),
    Api(key=ApiKey.INCREMENTAL_ALTER_CONFIGS, versions=(0, 1), flexible_from=1, control=incremental_alter_configs),
    Api(key=ApiKey.LIST_CONFIG_RESOURCES, versions=(0, 1), flexible_from=0, control=list_config_resources),
)
