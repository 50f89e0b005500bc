"""Topics and their partitions: create, list, describe, change, delete."""

from collections.abc import Mapping

import msgspec
from litestar import Response, delete, get, patch, post
from litestar.params import FromPath, JSONBody

from holdfast.client.admin.topics import (
    PartitionRow,
    add_partitions,
    alter_topic_settings,
    create_topic,
    delete_topics,
    partition_rows,
    set_replication_factor,
    topic_settings,
)
from holdfast.client.librdkafka import KafkaClient
from holdfast.gateways.http.routes.bodies import RequestBody
from holdfast.gateways.http.routes.log_dependencies import LOG_PATH, LogDependency
from holdfast.log.topics import Topic, TopicExistsError, UnknownTopicError, check_name
from holdfast.vocabulary.errors import InvalidError

TOPICS_PATH = f"{LOG_PATH}/topics"
TOPIC_PATH = TOPICS_PATH + "/{topic:str}"
_BROKER_DEFAULT = -1
Setting = str | int | float | bool


class NewTopic(RequestBody, frozen=True):
    """A topic to create. `config` has Kafka's names; what is left out follows the server's defaults.

    `partition_count` and `replication_factor` are other spellings of `partitions` and `replicationFactor`.
    """

    name: str
    partitions: int | None = None
    partition_count: int | None = msgspec.field(default=None, name="partition_count")
    replication_factor: int | None = None
    replication_factor_: int | None = msgspec.field(default=None, name="replication_factor")
    retention_ms: int | None = None
    cleanup_policy: str | None = None
    config: Mapping[str, Setting] = {}


class TopicChange(RequestBody, frozen=True):
    """Fields that are left out are unchanged; a setting that is null gets its default."""

    partitions: int | None = None
    replication_factor: int | None = None
    config: Mapping[str, Setting | None] = {}


class TopicSummary(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A topic in a listing."""

    name: str
    id: str
    partitions: int
    replication_factor: int
    durability: str
    cleanup_policy: str

    @classmethod
    def of(cls, topic: Topic) -> "TopicSummary":
        """The summary of a topic."""
        config = topic.config
        return cls(
            name=topic.name,
            id=topic.id,
            partitions=topic.partitions,
            replication_factor=config.replication_factor,
            durability=config.durability,
            cleanup_policy=config.cleanup_policy,
        )


class TopicDescription(TopicSummary, frozen=True, kw_only=True, rename="camel"):
    """A topic with all its settings, by Kafka's names, and those that were set."""

    config: Mapping[str, str | None]
    overrides: tuple[str, ...]


class PartitionDescription(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A partition: its leader, its replicas as node ids, and its offsets. `offline`: why nobody serves it."""

    partition: int
    leader: int | None
    leader_address: str | None
    epoch: int | None
    replicas: list[int]
    in_sync: list[int]
    start_offset: int | None
    end_offset: int | None
    records: int | None
    offline: str


@get(TOPICS_PATH, tags=["topics"], summary="List topics")
async def list_topics(log: LogDependency) -> list[TopicSummary]:
    """Every topic, by name."""
    return [TopicSummary.of(topic) for topic in await log.backend.log.list_topics()]


@post(TOPICS_PATH, tags=["topics"], summary="Create a topic")
async def post_topic(log: LogDependency, data: JSONBody[NewTopic]) -> Response[TopicSummary]:
    """Create a topic and wait until it has leaders. 409 if the name is taken."""
    check_name(data.name)
    config = {name: _text(value) for name, value in data.config.items()}
    for name, value in (("retention.ms", data.retention_ms), ("cleanup.policy", data.cleanup_policy)):
        if value is not None and config.setdefault(name, _text(value)) != _text(value):
            raise InvalidError(name, config[name], "given once")
    created = await log.kafka.call(
        create_topic,
        data.name,
        partitions=_one("partitions", data.partitions, data.partition_count),
        replication_factor=_one("replicationFactor", data.replication_factor, data.replication_factor_),
        config=config,
    )
    if not created:
        raise TopicExistsError(data.name)
    topic = await log.backend.log.topics.get(data.name)
    return Response(TopicSummary.of(topic), headers={"location": f"{TOPICS_PATH}/{data.name}"})


@get(TOPIC_PATH, tags=["topics"], summary="Describe a topic")
async def get_topic(log: LogDependency, topic: FromPath[str]) -> TopicDescription:
    """A topic with its settings."""
    return await _describe(log, topic)


async def _describe(log: LogDependency, topic: str) -> TopicDescription:
    found = await _known(log, topic)
    settings = (await log.kafka.call(topic_settings, [topic]))[topic]
    return TopicDescription(
        **msgspec.structs.asdict(TopicSummary.of(found)),
        config={setting.name: setting.value for setting in settings},
        overrides=tuple(setting.name for setting in settings if setting.source == "topic"),
    )


@patch(TOPIC_PATH, tags=["topics"], summary="Change a topic")
async def patch_topic(log: LogDependency, topic: FromPath[str], data: JSONBody[TopicChange]) -> TopicDescription:
    """Add partitions, change the number of replicas, set or reset settings. Each is one change of its own, in this order."""
    found = await _known(log, topic)
    if data.partitions is not None and data.partitions != found.partitions:
        await log.kafka.call(add_partitions, topic, data.partitions)
    if data.replication_factor is not None and data.replication_factor != found.config.replication_factor:
        await log.kafka.call(set_replication_factor, topic, data.replication_factor)
    if data.config:
        to = {name: _text(value) for name, value in data.config.items() if value is not None}
        unset = [name for name, value in data.config.items() if value is None]
        await log.kafka.call(alter_topic_settings, topic, to=to, unset=unset)
    return await _describe(log, topic)


@delete(TOPIC_PATH, tags=["topics"], summary="Delete a topic")
async def delete_topic(log: LogDependency, topic: FromPath[str]) -> None:
    """Delete a topic and everything in it."""
    await _known(log, topic)
    error = (await log.kafka.call(delete_topics, [topic]))[topic]
    if error is not None:
        raise error


@get(f"{TOPIC_PATH}/partitions", tags=["topics"], summary="List partitions")
async def get_partitions(log: LogDependency, topic: FromPath[str]) -> list[PartitionDescription]:
    """Leader, epoch, replicas and offsets of each partition; offsets are null while nobody serves it."""
    await _known(log, topic)
    cluster = log.backend.cluster

    def offline(number: int) -> str:
        held = cluster.leader(topic, number)
        mark = None if held is None else cluster.offline(held)
        return "" if mark is None else mark.reason

    rows = await log.kafka.call(_rows, topic)
    return [
        PartitionDescription(
            partition=row.partition,
            leader=row.leader,
            leader_address=row.leader_address,
            epoch=row.epoch,
            replicas=row.replicas,
            in_sync=row.in_sync,
            start_offset=row.earliest,
            end_offset=row.latest,
            records=row.records,
            offline=offline(row.partition),
        )
        for row in rows
    ]


def _rows(client: KafkaClient, topic: str) -> list[PartitionRow]:
    return partition_rows(client, client.describe([topic]).values())[topic]


async def _known(log: LogDependency, name: str) -> Topic:
    try:
        check_name(name)
    except InvalidError:
        raise UnknownTopicError(name) from None
    return await log.backend.log.topics.get(name)


def _one(name: str, *given: int | None) -> int:
    """The value that was given under one of two spellings; the server's default if none was."""
    values = {value for value in given if value is not None}
    if len(values) > 1:
        raise InvalidError(name, sorted(values), "given once")
    return next(iter(values), _BROKER_DEFAULT)


def _text(value: Setting) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


HANDLERS = (list_topics, post_topic, get_topic, patch_topic, delete_topic, get_partitions)
