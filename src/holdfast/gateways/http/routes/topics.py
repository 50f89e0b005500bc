"""Topics and their partitions: create, list, describe, change, delete."""

from collections.abc import Mapping

import msgspec
from litestar import Response, delete, get, patch, post
from litestar.params import FromPath, FromQuery

from holdfast.gateways.http.access import require, require_create_topic, visible
from holdfast.gateways.http.routes.bodies import RequestBody, decoded_settings
from holdfast.gateways.http.routes.confirmations import ConfirmationsDependency, principal_of
from holdfast.gateways.http.routes.dependencies import HttpRequest
from holdfast.gateways.http.routes.log_dependencies import LOG_PATH, LogDependency
from holdfast.gateways.log_access.off_loop import off_loop
from holdfast.gateways.log_access.topic_administration import SERVER_DEFAULT
from holdfast.log.topics import Topic
from holdfast.security.acls import CLUSTER_NAME, Operation, ResourceType
from holdfast.security.confirmations import Action
from holdfast.vocabulary.errors import InvalidError

TOPICS_PATH = f"{LOG_PATH}/topics"
TOPIC_PATH = TOPICS_PATH + "/{topic:str}"
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


_NEW = msgspec.json.Decoder(NewTopic)
_CHANGE = msgspec.json.Decoder(TopicChange)


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
async def list_topics(log: LogDependency, request: HttpRequest) -> list[TopicSummary]:
    """Every topic that the caller may see, by name."""
    shown = visible(request, ResourceType.TOPIC, await log.topics.list(), lambda topic: topic.name)
    return [TopicSummary.of(topic) for topic in shown]


@post(TOPICS_PATH, tags=["topics"], summary="Create a topic", opt={"body": NewTopic})
async def post_topic(log: LogDependency, request: HttpRequest) -> Response[TopicSummary]:
    """Create a topic and wait until it has leaders. 409 if the name is taken."""
    body = await request.body()
    data = await off_loop(len(body), lambda: decoded_settings(_NEW, body))
    require_create_topic(request, data.name)
    config = {name: _text(value) for name, value in data.config.items()}
    for name, value in (("retention.ms", data.retention_ms), ("cleanup.policy", data.cleanup_policy)):
        if value is not None and config.setdefault(name, _text(value)) != _text(value):
            raise InvalidError(name, config[name], "given once")
    topic = await log.topics.create(
        data.name,
        partitions=_one("partitions", data.partitions, data.partition_count),
        replication_factor=_one("replicationFactor", data.replication_factor, data.replication_factor_),
        config=config,
    )
    return Response(TopicSummary.of(topic), headers={"location": f"{TOPICS_PATH}/{data.name}"})


@get(TOPIC_PATH, tags=["topics"], summary="Describe a topic")
async def get_topic(log: LogDependency, topic: FromPath[str]) -> TopicDescription:
    """A topic with its settings."""
    return await _describe(log, topic)


async def _describe(log: LogDependency, topic: str) -> TopicDescription:
    found = await log.topics.get(topic)
    settings = await log.topics.settings(topic)
    return TopicDescription(
        **msgspec.structs.asdict(TopicSummary.of(found)),
        config={setting.name: setting.value for setting in settings},
        overrides=tuple(setting.name for setting in settings if setting.source == "topic"),
    )


@patch(TOPIC_PATH, tags=["topics"], summary="Change a topic", opt={"body": TopicChange})
async def patch_topic(log: LogDependency, request: HttpRequest, topic: FromPath[str]) -> TopicDescription:
    """Add partitions, change the number of replicas, set or reset settings. Each is one change of its own, in this order."""
    body = await request.body()
    data = await off_loop(len(body), lambda: decoded_settings(_CHANGE, body))
    if data.partitions is not None:
        require(request, Operation.ALTER, ResourceType.TOPIC, topic)
    if data.replication_factor is not None:
        require(request, Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
    if data.config:
        require(request, Operation.ALTER_CONFIGS, ResourceType.TOPIC, topic)
    config = {name: None if value is None else _text(value) for name, value in data.config.items()}
    await log.topics.change(
        topic, partitions=data.partitions, replication_factor=data.replication_factor, config=config
    )
    return await _describe(log, topic)


@delete(TOPIC_PATH, tags=["topics"], summary="Delete a topic")
async def delete_topic(
    request: HttpRequest,
    log: LogDependency,
    confirmations: ConfirmationsDependency,
    topic: FromPath[str],
    force: FromQuery[bool] = False,
    confirmation_token: FromQuery[str] = "",
) -> None:
    """Delete a topic and everything in it. Where `confirmations.required` says so, it takes `force` and a token."""
    await confirmations.check(
        Action.DELETE_TOPIC, topic, force=force, token=confirmation_token, principal=principal_of(request)
    )
    await log.topics.delete(topic)


@get(f"{TOPIC_PATH}/partitions", tags=["topics"], summary="List partitions")
async def get_partitions(log: LogDependency, topic: FromPath[str]) -> list[PartitionDescription]:
    """Leader, epoch, replicas and offsets of each partition; offsets are null while nobody serves it."""
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
            offline=offline,
        )
        for row, offline in await log.topics.partitions(topic)
    ]


def _one(name: str, *given: int | None) -> int:
    """The value that was given under one of two spellings; the server's default if none was."""
    values = {value for value in given if value is not None}
    if len(values) > 1:
        raise InvalidError(name, sorted(values), "given once")
    return next(iter(values), SERVER_DEFAULT)


def _text(value: Setting) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


HANDLERS = (list_topics, post_topic, get_topic, patch_topic, delete_topic, get_partitions)
