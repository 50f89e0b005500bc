"""Brokers, topics and leaders of the cluster.

    Metadata                 3   versions 0–13
    DescribeCluster         60   versions 0–2
    DescribeTopicPartitions 75   version 0

The only replica of a partition is its leader, except at `quorum`: then they are the agents of the set that served last, and in sync
are those that keep up, as mirrored from the store (`log.replica_sets`). A partition that the holder of its lease cannot open has no
leader; its replica, the node that has its last records, is listed as offline, so that clients wait. A leader whose process this
node has seen die is none at once; an agent that has left stays in Metadata's list of brokers for some seconds (`agent.departures`).

A request for a missing topic creates it, where settings and request allow that; the response then waits a moment until it is
writable.

Not implemented: internal topics (there are none: groups are kept in the store), controller endpoints, fenced brokers (an
agent without a session is not listed there).
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple
from uuid import UUID

from holdfast.gateways.kafka.api import Api, RequestContext, ResponseChunks, ResponseFields
from holdfast.gateways.kafka.backend import KafkaBackend
from holdfast.gateways.kafka.errors import ApiError
from holdfast.gateways.kafka.leaders import brokers, listed_brokers, nodes_of
from holdfast.gateways.kafka.metadata_encoding import MetadataTopic, encode_metadata, encode_topics
from holdfast.gateways.kafka.placement_wait import PLACED_WAIT_MS, wait_until_placed
from holdfast.gateways.kafka.replication_factor import BROKER_DEFAULT, live_agents, new_topic_settings
from holdfast.kafka.api_keys import ApiKey
from holdfast.kafka.enums import AUTHORIZED_OPERATIONS_OMITTED, EndpointType
from holdfast.kafka.error_codes import ErrorCode
from holdfast.kafka.special_offsets import NO_NODE
from holdfast.kafka.wire import ENTRIES_MAX, WireReader
from holdfast.log.topics import Topic, TopicExistsError, check_name
from holdfast.security.acls import CLUSTER_NAME, Operation, ResourceType
from holdfast.vocabulary.errors import HoldfastError, InvalidError

_log: Final = logging.getLogger(__name__)

# Kafka's internal topics. Here they do not exist, and a request must not create them.
NEVER_CREATED: Final = frozenset({"__consumer_offsets", "__transaction_state"})

_CREATION_FROM, _TOPIC_OPERATIONS_FROM, _IDS_FROM = 4, 8, 10
_CLUSTER_OPERATIONS_IN: Final = range(8, 11)
_PARTITIONS_MAX: Final = 500  # in one DescribeTopicPartitions response: the client continues at the cursor
_LARGE_FROM: Final = 1_000  # topics that are no longer encoded on the loop: most are known, and cached


class _MetadataRequest(NamedTuple):
    """A request. `topics`: names and ids without duplicates; None is all topics."""

    topics: tuple[tuple[str | None, UUID | None], ...] | None
    may_create: bool
    cluster_operations: bool
    topic_operations: bool


def _read(version: int, body: memoryview, *, flexible: bool, entries_max: int = ENTRIES_MAX) -> _MetadataRequest:
    """By hand: it is every client's second request, which must not wait for the large import of kio."""
    reader = WireReader(body, flexible=flexible, entries_max=entries_max)
    count = reader.nullable_array()
    topics: dict[tuple[str | None, UUID | None], None] = {}
    for _ in range(count):
        topic_id = reader.uuid() if version >= _IDS_FROM else None
        name = reader.string() if version >= _IDS_FROM else reader.text()
        reader.tags()
        by_id = topic_id is not None and topic_id.int != 0  # Java's Admin sends an empty name along
        topics[(None, topic_id) if by_id else (name, None)] = None
    may_create = bool(reader.int8()) if version >= _CREATION_FROM else True
    cluster_operations = bool(reader.int8()) if version in _CLUSTER_OPERATIONS_IN else False
    topic_operations = bool(reader.int8()) if version >= _TOPIC_OPERATIONS_FROM else False
    reader.tags()
    everything = count < 0 or (version == 0 and count == 0)
    return _MetadataRequest(None if everything else tuple(topics), may_create, cluster_operations, topic_operations)


async def metadata(call: RequestContext, body: memoryview) -> ResponseChunks:
    """Brokers, and topics by name, by id, or all of them."""
    async with call.backend.large_requests.slot(call, body):
        return await _metadata(call, body)


async def _metadata(call: RequestContext, body: memoryview) -> ResponseChunks:
    backend, version, large = call.backend, call.version, call.backend.large_requests
    flexible = call.api.is_flexible(version)
    read = partial(_read, version, body, flexible=flexible, entries_max=large.entries_max)
    request = await large.read(call, body, read)
    if request.topics is None:
        listed = [MetadataTopic(topic) for topic in backend.cluster.topics if _may_describe(call, topic.name)]
    else:
        names = [name async for name, _ in call.each(request.topics) if name is not None and _may_describe(call, name)]
        created: dict[str, ErrorCode] = {}
        if request.may_create and backend.settings.auto_create_topics:
            created = await _create_missing(call, names)
        unplaced = [name for name, code in created.items() if code is ErrorCode.LEADER_NOT_AVAILABLE]
        await wait_until_placed(backend, dict.fromkeys([*unplaced, *_recently_created(backend, names)]), PLACED_WAIT_MS)
        listed = [_listed(call, name, topic_id, created) async for name, topic_id in call.each(request.topics)]
    if request.topic_operations:
        listed = [_with_operations(call, each) async for each in call.each(listed)]
    encode = partial(
        encode_metadata,
        version,
        encode_topics(version, backend.cluster, listed),
        brokers=listed_brokers(backend),
        cluster_id=backend.cluster_id,
        controller=controller(backend),
        topics=listed,
        cluster_operations=_cluster_operations(call, asked=request.cluster_operations),
    )
    return (await large.run(encode, large=len(listed) > _LARGE_FROM),)


def controller(backend: KafkaBackend) -> int:
    """The node that clients send admin requests to. Any would do; the planner is unique."""
    nodes = {broker.node for broker in brokers(backend)}
    planner = backend.cluster.planner
    member = backend.cluster.member(planner) if planner is not None else None
    if member is not None and member.node in nodes:
        return member.node
    return min(nodes, default=NO_NODE)


def _may_describe(call: RequestContext, name: str) -> bool:
    return call.allows(Operation.DESCRIBE, ResourceType.TOPIC, name)


def _with_operations(call: RequestContext, listed: MetadataTopic) -> MetadataTopic:
    if listed.topic is None:
        return listed
    return listed._replace(operations=call.operations(ResourceType.TOPIC, listed.topic.name))


def _cluster_operations(call: RequestContext, *, asked: bool) -> int:
    """What the client may do to the cluster: nothing, to who may not look at it."""
    if not asked:
        return AUTHORIZED_OPERATIONS_OMITTED
    return call.operations(ResourceType.CLUSTER, CLUSTER_NAME) if call.allows_cluster(Operation.DESCRIBE) else 0


def _listed(
    call: RequestContext, name: str | None, topic_id: UUID | None, created: dict[str, ErrorCode]
) -> MetadataTopic:
    """A topic of a request as the response lists it. Who may not look at a topic does not learn whether it exists."""
    cluster, denied = call.backend.cluster, ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if name is None:
        known = cluster.name_of(topic_id.hex) if topic_id is not None else None
        topic = cluster.topic(known) if known is not None else None
        if topic is None:
            return MetadataTopic(
                None, topic_id=topic_id.bytes if topic_id else bytes(16), code=ErrorCode.UNKNOWN_TOPIC_ID
            )
        if not _may_describe(call, topic.name):
            return MetadataTopic(None, topic_id=bytes.fromhex(topic.id), code=denied)
        return MetadataTopic(topic)
    if not _may_describe(call, name):
        return MetadataTopic(None, name, code=denied)
    topic = cluster.topic(name)
    if topic is not None:
        return MetadataTopic(topic)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if _is_name(name) else ErrorCode.INVALID_TOPIC_EXCEPTION
    return MetadataTopic(None, name, code=created.get(name, unknown))


async def _create_missing(call: RequestContext, names: Iterable[str]) -> dict[str, ErrorCode]:
    """Create missing topics; the codes for those that this node does not list yet."""
    backend = call.backend
    missing = [name for name in names if backend.cluster.topic(name) is None and name not in NEVER_CREATED]
    missing = [name async for name in call.each(missing) if _is_name(name)]

    async def create(name: str) -> ErrorCode:
        if not may_create(call, name):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        try:
            async with asyncio.timeout(PLACED_WAIT_MS / 1000):
                config = new_topic_settings(
                    name, BROKER_DEFAULT, {}, agents=live_agents(backend), settings=backend.settings
                )
                await backend.log.create_topic(name, backend.settings.auto_create_partitions, config)
        except TopicExistsError:
            pass  # another request was faster
        except ApiError as error:
            _log.warning("auto-creating topic %s failed: %s", name, error)
            return error.code
        except InvalidError:
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        except (HoldfastError, TimeoutError) as error:
            _log.warning("auto-creating topic %s failed: %s", name, str(error) or "timeout")
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION  # retriable
        return ErrorCode.LEADER_NOT_AVAILABLE

    return dict(zip(missing, await call.gather(create, missing), strict=True))


def may_create(call: RequestContext, name: str) -> bool:
    """Whether the client may create a topic of this name."""
    return call.allows_cluster(Operation.CREATE) or call.allows(Operation.CREATE, ResourceType.TOPIC, name)


def _recently_created(backend: KafkaBackend, names: Iterable[str]) -> list[str]:
    """Topics created a moment ago, perhaps by another client: they are about to be placed."""
    topics = (backend.cluster.topic(name) for name in names)
    now_ms = backend.clock.now_ms()
    return [topic.name for topic in topics if topic is not None and 0 <= now_ms - topic.created_at_ms < PLACED_WAIT_MS]


def _is_name(name: str) -> bool:
    try:
        check_name(name)
    except InvalidError:
        return False
    return True


async def describe_cluster(call: RequestContext, request: Any) -> ResponseFields:
    """The brokers and the controller."""
    backend = call.backend
    endpoint_type = getattr(request, "endpoint_type", EndpointType.BROKER)
    if endpoint_type != EndpointType.BROKER:
        known = endpoint_type == EndpointType.CONTROLLER
        return {
            "error_code": ErrorCode.MISMATCHED_ENDPOINT_TYPE if known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            "error_message": f"unsupported endpoint type {endpoint_type}: must be broker ({EndpointType.BROKER:d})",
            "endpoint_type": EndpointType.BROKER,
            "cluster_id": backend.cluster_id,
            "brokers": (),
        }
    return {
        "error_code": ErrorCode.NONE,
        "endpoint_type": EndpointType.BROKER,
        "cluster_id": backend.cluster_id,
        "controller_id": controller(backend),
        "brokers": [
            {"broker_id": each.node, "host": each.host, "port": each.port, "rack": each.rack, "is_fenced": False}
            for each in brokers(backend)
        ],
        "cluster_authorized_operations": _cluster_operations(call, asked=request.include_cluster_authorized_operations),
    }


async def describe_topic_partitions(call: RequestContext, request: Any) -> ResponseFields:
    """Topics by name (all if none is named), sorted, up to the limit of partitions, and the next cursor."""
    cluster, cursor = call.backend.cluster, request.cursor
    names = sorted({topic.name for topic in request.topics} or _all_names(call))
    remaining = min(max(request.response_partition_limit, 1), _PARTITIONS_MAX)
    described: list[ResponseFields] = []
    async for name in call.each(names):
        first = 0
        if cursor is not None:
            if name < cursor.topic_name:
                continue
            first = max(0, cursor.partition_index) if name == cursor.topic_name else 0
        topic = cluster.topic(name) if _may_describe(call, name) else None
        if topic is None:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if _is_name(name) else ErrorCode.INVALID_TOPIC_EXCEPTION
            if not _may_describe(call, name):
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            described.append({"error_code": code, "name": name, "topic_id": None, "partitions": ()})
            continue
        if remaining == 0:
            return {"topics": described, "next_cursor": {"topic_name": name, "partition_index": first}}
        numbers = range(first, min(topic.partitions, first + remaining))
        described.append(_described(call, topic, numbers))
        remaining -= len(numbers)
        if numbers.stop < topic.partitions:
            return {"topics": described, "next_cursor": {"topic_name": name, "partition_index": numbers.stop}}
    return {"topics": described, "next_cursor": None}


def _all_names(call: RequestContext) -> set[str]:
    return {topic.name for topic in call.backend.cluster.topics if _may_describe(call, topic.name)}


def _described(call: RequestContext, topic: Topic, numbers: Sequence[int]) -> ResponseFields:
    return {
        "error_code": ErrorCode.NONE,
        "name": topic.name,
        "topic_id": topic.id,
        "is_internal": False,
        "partitions": [_partition(call.backend, topic, number) for number in numbers],
        "topic_authorized_operations": call.operations(ResourceType.TOPIC, topic.name),
    }


def _partition(backend: KafkaBackend, topic: Topic, number: int) -> ResponseFields:
    cluster = backend.cluster
    held, last_epoch = cluster.leader(topic.name, number), cluster.last_epoch(topic, number)
    nodes = nodes_of(cluster, held, cluster.replicas(topic.id, number), last_epoch=last_epoch)
    return {
        "error_code": ErrorCode.NONE if nodes.leader != NO_NODE else ErrorCode.LEADER_NOT_AVAILABLE,
        "partition_index": number,
        "leader_id": nodes.leader,
        "leader_epoch": nodes.epoch,
        "replica_nodes": nodes.replicas,
        "isr_nodes": nodes.in_sync,
        "eligible_leader_replicas": (),
        "last_known_elr": (),
        "offline_replicas": nodes.offline,
    }


APIS: Final = (
    Api(key=ApiKey.METADATA, versions=(0, 13), flexible_from=9, raw=metadata),
    Api(key=ApiKey.DESCRIBE_CLUSTER, versions=(0, 2), flexible_from=0, control=describe_cluster),
    Api(key=ApiKey.DESCRIBE_TOPIC_PARTITIONS, versions=(0, 0), flexible_from=0, control=describe_topic_partitions),
)
