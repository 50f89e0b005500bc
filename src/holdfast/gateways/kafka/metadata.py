"""What the cluster is: brokers, topics, leaders.

    Metadata                 3   versions 0–13
    DescribeCluster         60   versions 0–2
    DescribeTopicPartitions 75   version 0

A partition's only replica is its leader. Asking for a topic that is not there makes it, where the settings and the request allow
that; the answer then waits a moment until it can be written to.

Not implemented: internal topics (there are none: groups are kept in the store), controller endpoints, fenced brokers (an agent
that is gone is not listed), who may do what (everybody may do everything until there is a way to log in).
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from holdfast.gateways.kafka.api import Api, RequestContext, ResponseChunks, ResponseFields
from holdfast.gateways.kafka.backend import KafkaBackend
from holdfast.gateways.kafka.leaders import NO_LEADER, brokers, leader_of
from holdfast.gateways.kafka.metadata_encoding import OPERATIONS_NOT_REQUESTED, MetadataTopic, encode_metadata
from holdfast.gateways.kafka.placement_wait import PLACED_WAIT_MS, wait_until_placed
from holdfast.kafka.error_codes import ErrorCode
from holdfast.kafka.wire import WireReader
from holdfast.log.topics import Topic, TopicExistsError, check_name
from holdfast.vocabulary.errors import HoldfastError, InvalidError

_log: Final = logging.getLogger(__name__)

# Bits by Kafka's numbers of operations: 3 read, 4 write, 5 create, 6 delete, 7 alter, 8 describe, 9 cluster action,
# 10 describe configs, 11 alter configs, 12 idempotent write.
TOPIC_OPERATIONS: Final = sum(1 << bit for bit in (3, 4, 5, 6, 7, 8, 10, 11))
CLUSTER_OPERATIONS: Final = sum(1 << bit for bit in (5, 7, 8, 9, 10, 11, 12))

# Kafka keeps these itself. Here they are no topics, and asking for them must not make them.
NEVER_CREATED: Final = frozenset({"__consumer_offsets", "__transaction_state"})

_CREATION_FROM, _TOPIC_OPERATIONS_FROM, _IDS_FROM = 4, 8, 10
_CLUSTER_OPERATIONS_IN: Final = range(8, 11)
_BROKERS, _CONTROLLERS = 1, 2  # types of endpoints
_PARTITIONS_MAX: Final = 500  # in one answer of DescribeTopicPartitions: the client asks on from the cursor
_CREATIONS_MAX: Final = 16  # side by side


class _MetadataRequest(NamedTuple):
    """A request. `topics`: names and ids, each once; None is all of them."""

    topics: tuple[tuple[str | None, UUID | None], ...] | None
    may_create: bool
    cluster_operations: bool
    topic_operations: bool


def _read(version: int, body: memoryview, *, flexible: bool) -> _MetadataRequest:
    """By hand, because every client begins with it: nobody should wait for the large import that reads the other requests."""
    reader = WireReader(body, flexible=flexible)
    count = reader.length()
    topics: dict[tuple[str | None, UUID | None], None] = {}
    for _ in range(count):
        topic_id = reader.uuid() if version >= _IDS_FROM else None
        name = reader.string() if version >= _IDS_FROM else reader.text()
        reader.tags()
        by_id = topic_id is not None and topic_id.int != 0  # Java's Admin sends an empty name with it
        topics[(None, topic_id) if by_id else (name, None)] = None
    may_create = bool(reader.int8()) if version >= _CREATION_FROM else True
    cluster_operations = bool(reader.int8()) if version in _CLUSTER_OPERATIONS_IN else False
    topic_operations = bool(reader.int8()) if version >= _TOPIC_OPERATIONS_FROM else False
    reader.tags()
    everything = count < 0 or (version == 0 and count == 0)
    return _MetadataRequest(None if everything else tuple(topics), may_create, cluster_operations, topic_operations)


async def metadata(call: RequestContext, body: memoryview) -> ResponseChunks:
    """Brokers, and topics by name, by id, or all of them."""
    backend, version = call.backend, call.version
    request = _read(version, body, flexible=call.api.is_flexible(version))
    if request.topics is None:
        asked = [MetadataTopic(topic) for topic in backend.cluster.topics]
    else:
        names = [name for name, _ in request.topics if name is not None]
        created: dict[str, ErrorCode] = {}
        if request.may_create and backend.settings.auto_create_topics:
            created = await _create_missing(backend, names)
        made = [name for name, code in created.items() if code is ErrorCode.LEADER_NOT_AVAILABLE]
        await wait_until_placed(backend, dict.fromkeys([*made, *_recently_created(backend, names)]), PLACED_WAIT_MS)
        asked = [_asked(backend, name, topic_id, created) for name, topic_id in request.topics]
    return (
        encode_metadata(
            version,
            backend.cluster,
            brokers=brokers(backend),
            cluster_id=backend.cluster_id,
            controller=controller(backend),
            topics=asked,
            topic_operations=TOPIC_OPERATIONS if request.topic_operations else OPERATIONS_NOT_REQUESTED,
            cluster_operations=CLUSTER_OPERATIONS if request.cluster_operations else OPERATIONS_NOT_REQUESTED,
        ),
    )


def controller(backend: KafkaBackend) -> int:
    """The node that Kafka's clients send administration to. Any node would do; the planner is the one there is one of."""
    nodes = {broker.node for broker in brokers(backend)}
    planner = backend.cluster.planner
    member = backend.cluster.member(planner) if planner is not None else None
    if member is not None and member.node in nodes:
        return member.node
    return min(nodes, default=NO_LEADER)


def _asked(
    backend: KafkaBackend, name: str | None, topic_id: UUID | None, created: dict[str, ErrorCode]
) -> MetadataTopic:
    """A topic of a request, as it is to be answered."""
    cluster = backend.cluster
    if name is None:
        known = cluster.name_of(topic_id.hex) if topic_id is not None else None
        topic = cluster.topic(known) if known is not None else None
        if topic is None:
            return MetadataTopic(
                None, topic_id=topic_id.bytes if topic_id else bytes(16), code=ErrorCode.UNKNOWN_TOPIC_ID
            )
        return MetadataTopic(topic)
    topic = cluster.topic(name)
    if topic is not None:
        return MetadataTopic(topic)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if _is_name(name) else ErrorCode.INVALID_TOPIC_EXCEPTION
    return MetadataTopic(None, name, code=created.get(name, unknown))


async def _create_missing(backend: KafkaBackend, names: Iterable[str]) -> dict[str, ErrorCode]:
    """Create the topics that are not there; what to say of those that do not show up all the same."""
    missing = [name for name in names if backend.cluster.topic(name) is None]
    missing = [name for name in missing if _is_name(name) and name not in NEVER_CREATED]
    slots = asyncio.Semaphore(_CREATIONS_MAX)

    async def create(name: str) -> ErrorCode:
        async with slots:
            try:
                async with asyncio.timeout(PLACED_WAIT_MS / 1000):
                    await backend.log.create_topic(name, backend.settings.auto_create_partitions)
            except TopicExistsError:
                pass  # somebody was faster
            except InvalidError:
                return ErrorCode.INVALID_TOPIC_EXCEPTION
            except (HoldfastError, TimeoutError) as error:
                _log.warning(
                    "topic %s, which was asked for, cannot be created now: %s", name, str(error) or "no answer"
                )
                return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION  # ask again
            return ErrorCode.LEADER_NOT_AVAILABLE

    return dict(zip(missing, await asyncio.gather(*map(create, missing)), strict=True))


def _recently_created(backend: KafkaBackend, names: Iterable[str]) -> list[str]:
    """Those that were created a moment ago, perhaps by somebody else: they are about to be placed."""
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
    """The brokers and who is in charge."""
    backend = call.backend
    endpoint_type = getattr(request, "endpoint_type", _BROKERS)
    if endpoint_type != _BROKERS:
        known = endpoint_type == _CONTROLLERS
        return {
            "error_code": ErrorCode.MISMATCHED_ENDPOINT_TYPE if known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            "error_message": f"this is a broker, endpoint type {_BROKERS}; asked was for type {endpoint_type}",
            "endpoint_type": _BROKERS,
            "cluster_id": backend.cluster_id,
            "brokers": (),
        }
    return {
        "error_code": ErrorCode.NONE,
        "endpoint_type": _BROKERS,
        "cluster_id": backend.cluster_id,
        "controller_id": controller(backend),
        "brokers": [
            {"broker_id": each.node, "host": each.host, "port": each.port, "rack": each.rack, "is_fenced": False}
            for each in brokers(backend)
        ],
        "cluster_authorized_operations": CLUSTER_OPERATIONS
        if request.include_cluster_authorized_operations
        else OPERATIONS_NOT_REQUESTED,
    }


async def describe_topic_partitions(call: RequestContext, request: Any) -> ResponseFields:
    """Topics by name (all if none is named), in order, as many partitions as fit, and from where to ask on."""
    cluster, cursor = call.backend.cluster, request.cursor
    names = sorted({topic.name for topic in request.topics} or {topic.name for topic in cluster.topics})
    room = min(max(request.response_partition_limit, 1), _PARTITIONS_MAX)
    described: list[ResponseFields] = []
    for name in names:
        first = 0
        if cursor is not None:
            if name < cursor.topic_name:
                continue
            first = max(0, cursor.partition_index) if name == cursor.topic_name else 0
        topic = cluster.topic(name)
        if topic is None:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if _is_name(name) else ErrorCode.INVALID_TOPIC_EXCEPTION
            described.append({"error_code": code, "name": name, "topic_id": None, "partitions": ()})
            continue
        if room == 0:
            return {"topics": described, "next_cursor": {"topic_name": name, "partition_index": first}}
        numbers = range(first, min(topic.partitions, first + room))
        described.append(_described(call.backend, topic, numbers))
        room -= len(numbers)
        if numbers.stop < topic.partitions:
            return {"topics": described, "next_cursor": {"topic_name": name, "partition_index": numbers.stop}}
    return {"topics": described, "next_cursor": None}


def _described(backend: KafkaBackend, topic: Topic, numbers: Sequence[int]) -> ResponseFields:
    return {
        "error_code": ErrorCode.NONE,
        "name": topic.name,
        "topic_id": topic.id,
        "is_internal": False,
        "partitions": [_partition(backend, topic, number) for number in numbers],
        "topic_authorized_operations": TOPIC_OPERATIONS,
    }


def _partition(backend: KafkaBackend, topic: Topic, number: int) -> ResponseFields:
    leader = leader_of(backend.cluster, topic.name, number)
    replicas = () if leader.node == NO_LEADER else (leader.node,)
    return {
        "error_code": ErrorCode.NONE if replicas else ErrorCode.LEADER_NOT_AVAILABLE,
        "partition_index": number,
        "leader_id": leader.node,
        "leader_epoch": leader.epoch,
        "replica_nodes": replicas,
        "isr_nodes": replicas,
        "eligible_leader_replicas": (),
        "last_known_elr": (),
        "offline_replicas": (),
    }


APIS: Final = (
    Api(key=3, name="Metadata", versions=(0, 13), flexible_from=9, raw=metadata),
    Api(key=60, name="DescribeCluster", versions=(0, 2), flexible_from=0, control=describe_cluster),
    Api(key=75, name="DescribeTopicPartitions", versions=(0, 0), flexible_from=0, control=describe_topic_partitions),
)
