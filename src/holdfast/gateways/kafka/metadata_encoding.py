"""The Metadata response, encoded by hand: a client that asks about thousands of partitions must not delay the others.

The bytes of a topic are cached as long as topics, leaders, members, replicas and what is offline are unchanged. A partition without
replicas has a fixed layout, which is packed in one call.
"""

from struct import Struct
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

from holdfast.agent.cluster import Cluster
from holdfast.gateways.kafka.backend import Broker
from holdfast.gateways.kafka.leaders import PartitionNodes, nodes_of
from holdfast.kafka.enums import AUTHORIZED_OPERATIONS_OMITTED
from holdfast.kafka.error_codes import ErrorCode
from holdfast.kafka.special_offsets import NO_EPOCH, NO_NODE
from holdfast.kafka.wire import INT16, INT32, NO_TAGS, encode_length, encode_string
from holdfast.kernel.lease import Held
from holdfast.log.topics import Topic

_NO_ID: Final = bytes(16)

# The first version with a field.
_RACK = _CONTROLLER = _INTERNAL = 1
_CLUSTER_ID = 2
_THROTTLE = 3
_OFFLINE = 5
_EPOCHS = 7
_OPERATIONS = 8
_FLEXIBLE = 9
_IDS = 10
_NULL_NAMES = 12
_ERROR = 13

_CLUSTER_OPERATIONS_UNTIL = 10


class _PartitionLayout(NamedTuple):
    """The layout of a partition in a version: with a leader, without a replica, and with one that is offline."""

    led: Struct
    leaderless: Struct
    offline: Struct
    epochs: bool
    flexible: bool


def _layout(version: int) -> _PartitionLayout:
    epochs, flexible = version >= _EPOCHS, version >= _FLEXIBLE
    head = ">hiii" if epochs else ">hii"
    one, none = ("Bi", "B") if flexible else ("ii", "i")
    tags = "x" if flexible else ""
    tail = (none if version >= _OFFLINE else "") + tags
    offline = (one if version >= _OFFLINE else "") + tags
    return _PartitionLayout(
        Struct(head + one + one + tail),
        Struct(head + none + none + tail),
        Struct(head + one + one + offline),
        epochs,
        flexible,
    )


_LAYOUTS: Final = tuple(_layout(version) for version in range(_ERROR + 1))


class MetadataTopic(NamedTuple):
    """One topic of a response, or the code why it is not listed. `operations`: what its client may do, if it has asked."""

    topic: Topic | None
    name: str | None = None
    topic_id: bytes = _NO_ID
    code: ErrorCode = ErrorCode.NONE
    operations: int = AUTHORIZED_OPERATIONS_OMITTED


class _EncodedTopics:
    """Encoded topics at one version of the cluster, by API version and name."""

    def __init__(self, at: tuple[int, ...]) -> None:
        self.at = at
        self.topics: dict[tuple[int, str], bytes] = {}


_cache: "WeakKeyDictionary[Cluster, _EncodedTopics]" = WeakKeyDictionary()


def encode_topics(version: int, cluster: Cluster, topics: list[MetadataTopic]) -> dict[str, bytes]:
    """The topics of these that exist, from their heads to their partitions, by name."""
    encoded = _cache.get(cluster)
    if encoded is None or encoded.at != cluster.version:
        encoded = _cache[cluster] = _EncodedTopics(cluster.version)
    return {each.topic.name: _known(encoded, cluster, version, each.topic) for each in topics if each.topic is not None}


def encode_metadata(
    version: int,
    known: dict[str, bytes],
    *,
    brokers: list[Broker],
    cluster_id: str,
    controller: int,
    topics: list[MetadataTopic],
    cluster_operations: int = AUTHORIZED_OPERATIONS_OMITTED,
) -> bytes:
    """The body of the response. `known`: the topics that exist, from `encode_topics`. May run on any thread."""
    flexible = version >= _FLEXIBLE
    tags = NO_TAGS if flexible else b""
    out = bytearray()
    if version >= _THROTTLE:
        out += INT32.pack(0)
    out += encode_length(len(brokers), flexible=flexible)
    for broker in brokers:
        out += INT32.pack(broker.node) + encode_string(broker.host, flexible=flexible) + INT32.pack(broker.port)
        if version >= _RACK:
            out += encode_string(broker.rack, flexible=flexible)
        out += tags
    if version >= _CLUSTER_ID:
        out += encode_string(cluster_id, flexible=flexible)
    if version >= _CONTROLLER:
        out += INT32.pack(controller)
    out += encode_length(len(topics), flexible=flexible)
    for each in topics:
        out += known[each.topic.name] if each.topic is not None else _unknown(version, each)
        if version >= _OPERATIONS:
            out += INT32.pack(each.operations)
        out += tags
    if _OPERATIONS <= version <= _CLUSTER_OPERATIONS_UNTIL:
        out += INT32.pack(cluster_operations)
    if version >= _ERROR:
        out += INT16.pack(ErrorCode.NONE)
    out += tags
    return bytes(out)


def _known(encoded: _EncodedTopics, cluster: Cluster, version: int, topic: Topic) -> bytes:
    """A topic from its head to its partitions."""
    key = (version, topic.name)
    found = encoded.topics.get(key)
    if found is None:
        listed = MetadataTopic(topic, topic.name, bytes.fromhex(topic.id))
        found = encoded.topics[key] = _head(version, listed) + _partitions(version, cluster, topic)
    return found


def _unknown(version: int, listed: MetadataTopic) -> bytes:
    return _head(version, listed) + encode_length(0, flexible=version >= _FLEXIBLE)


def _head(version: int, listed: MetadataTopic) -> bytes:
    name = listed.name if listed.name is not None or version >= _NULL_NAMES else ""
    out = INT16.pack(listed.code) + encode_string(name, flexible=version >= _FLEXIBLE)
    if version >= _IDS:
        out += listed.topic_id
    return out + (b"\0" if version >= _INTERNAL else b"")


def _partitions(version: int, cluster: Cluster, topic: Topic) -> bytes:
    layout = _LAYOUTS[version]
    one, none = (2, 1) if layout.flexible else (1, 0)  # compact lengths are one more
    offline = (none,) if version >= _OFFLINE else ()
    out = bytearray(encode_length(topic.partitions, flexible=layout.flexible))
    leaders: dict[str, int] = {}  # who is not offline leads: looked up once for all partitions of a holder
    replicated = _ReplicatedPartitions(version, cluster, topic) if cluster.has_replicas else None
    for number, held in enumerate(cluster.leaders(topic.name, topic.partitions)):
        if replicated is not None and (encoded := replicated.encoded(number, held)) is not None:
            out += encoded
            continue
        leader = leaders.get(held.holder) if held is not None and cluster.offline(held) is None else None
        if held is not None and leader is not None:
            epochs = (held.epoch,) if layout.epochs else ()
            out += layout.led.pack(ErrorCode.NONE, number, leader, *epochs, one, leader, one, leader, *offline)
            continue
        last_epoch = cluster.last_epoch(topic, number) if held is None else NO_EPOCH
        leader, epoch, listed, _, unavailable = nodes_of(cluster, held, last_epoch=last_epoch)
        epochs = (epoch,) if layout.epochs else ()
        if held is not None and leader != NO_NODE:
            leaders[held.holder] = leader
            out += layout.led.pack(ErrorCode.NONE, number, leader, *epochs, one, leader, one, leader, *offline)
        elif unavailable:
            nodes = (one, *listed, one, *listed, *((one, *unavailable) if version >= _OFFLINE else ()))
            out += layout.offline.pack(ErrorCode.LEADER_NOT_AVAILABLE, number, NO_NODE, *epochs, *nodes)
        else:
            out += layout.leaderless.pack(
                ErrorCode.LEADER_NOT_AVAILABLE, number, NO_NODE, *epochs, none, none, *offline
            )
    return bytes(out)


class _ReplicatedPartitions:
    """The partitions of a topic that have replicas. What follows their epochs is the same for many, and encoded once."""

    def __init__(self, version: int, cluster: Cluster, topic: Topic) -> None:
        self._version, self._cluster, self._topic = version, cluster, topic
        self._sets = cluster.replica_mirrors.sets_of(topic.id, topic.partitions)
        self._head = Struct(">hiii" if version >= _EPOCHS else ">hii")
        self._known: dict[tuple[object, ...], tuple[ErrorCode, PartitionNodes, bytes]] = {}

    def encoded(self, number: int, held: Held | None) -> bytes | None:
        """A partition; None: it has no replicas."""
        found = self._sets[number]
        if found is None:
            return None
        offline = held is not None and self._cluster.offline(held) is not None
        key = found.replicas, found.in_sync, None if held is None else held.holder, offline
        known = self._known.get(key)
        if known is None:
            nodes = nodes_of(self._cluster, held, self._cluster.replica_mirrors.named(found))
            code = ErrorCode.NONE if nodes.leader != NO_NODE else ErrorCode.LEADER_NOT_AVAILABLE
            known = self._known[key] = code, nodes, self._replicas(nodes)
        code, nodes, replicas = known
        epoch = held.epoch if held is not None else self._cluster.last_epoch(self._topic, number)
        epochs = (epoch,) if self._version >= _EPOCHS else ()
        return self._head.pack(code, number, nodes.leader, *epochs) + replicas

    def _replicas(self, nodes: PartitionNodes) -> bytes:
        flexible, out = self._version >= _FLEXIBLE, bytearray()
        for listed in (nodes.replicas, nodes.in_sync, *((nodes.offline,) if self._version >= _OFFLINE else ())):
            out += encode_length(len(listed), flexible=flexible)
            out += b"".join(map(INT32.pack, listed))
        return bytes(out) + (NO_TAGS if flexible else b"")
