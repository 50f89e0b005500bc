"""The Metadata answer, written by hand: a client that asks about thousands of partitions must not hold up the others.

What is written of a topic is kept as long as nothing about topics, leaders and members has changed: asked again, it costs one look.
"""

from struct import Struct
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

from holdfast.agent.cluster import Cluster
from holdfast.gateways.kafka.backend import Broker
from holdfast.gateways.kafka.leaders import NO_LEADER
from holdfast.kafka.error_codes import ErrorCode
from holdfast.kafka.wire import INT16, INT32, NO_TAGS, array_length, string
from holdfast.log.topics import Topic

OPERATIONS_NOT_REQUESTED: Final = -(1 << 31)  # authorized operations nobody asked for

_NO_ID: Final = bytes(16)
_RACK, _CONTROLLER, _INTERNAL, _CLUSTER_ID, _THROTTLE = 1, 1, 1, 2, 3
_OFFLINE, _EPOCHS, _OPERATIONS, _FLEXIBLE, _IDS, _CLUSTER_OPERATIONS_UNTIL, _NULL_NAMES, _ERROR = (
    5,
    7,
    8,
    9,
    10,
    10,
    12,
    13,
)


class _PartitionLayout(NamedTuple):
    """How a version writes a partition: with a leader, and without."""

    led: Struct
    leaderless: Struct
    epochs: bool
    flexible: bool


def _shape(version: int) -> _PartitionLayout:
    epochs, flexible = version >= _EPOCHS, version >= _FLEXIBLE
    head = ">hiii" if epochs else ">hii"
    one, none = ("Bi", "B") if flexible else ("ii", "i")
    tail = (none if version >= _OFFLINE else "") + ("x" if flexible else "")
    return _PartitionLayout(Struct(head + one + one + tail), Struct(head + none + none + tail), epochs, flexible)


_SHAPES: Final = tuple(_shape(version) for version in range(_ERROR + 1))


class MetadataTopic(NamedTuple):
    """One topic of an answer: as it is, or why not."""

    topic: Topic | None
    name: str | None = None
    topic_id: bytes = _NO_ID
    code: ErrorCode = ErrorCode.NONE


class _Kept:
    """What was written at one version of the cluster, by version of the API and name."""

    def __init__(self, at: tuple[int, int, int]) -> None:
        self.at = at
        self.topics: dict[tuple[int, str], bytes] = {}


_kept: "WeakKeyDictionary[Cluster, _Kept]" = WeakKeyDictionary()


def encode_metadata(
    version: int,
    cluster: Cluster,
    *,
    brokers: list[Broker],
    cluster_id: str,
    controller: int,
    topics: list[MetadataTopic],
    topic_operations: int = OPERATIONS_NOT_REQUESTED,
    cluster_operations: int = OPERATIONS_NOT_REQUESTED,
) -> bytes:
    """The body of the answer."""
    flexible = version >= _FLEXIBLE
    tags = NO_TAGS if flexible else b""
    kept = _kept.get(cluster)
    if kept is None or kept.at != cluster.version:
        kept = _kept[cluster] = _Kept(cluster.version)
    out = bytearray()
    if version >= _THROTTLE:
        out += INT32.pack(0)
    out += array_length(len(brokers), flexible=flexible)
    for broker in brokers:
        out += INT32.pack(broker.node) + string(broker.host, flexible=flexible) + INT32.pack(broker.port)
        if version >= _RACK:
            out += string(broker.rack, flexible=flexible)
        out += tags
    if version >= _CLUSTER_ID:
        out += string(cluster_id, flexible=flexible)
    if version >= _CONTROLLER:
        out += INT32.pack(controller)
    out += array_length(len(topics), flexible=flexible)
    after = (INT32.pack(topic_operations) if version >= _OPERATIONS else b"") + tags
    for asked in topics:
        out += _known(kept, cluster, version, asked.topic) if asked.topic is not None else _unknown(version, asked)
        out += after
    if _OPERATIONS <= version <= _CLUSTER_OPERATIONS_UNTIL:
        out += INT32.pack(cluster_operations)
    if version >= _ERROR:
        out += INT16.pack(ErrorCode.NONE)
    out += tags
    return bytes(out)


def _known(kept: _Kept, cluster: Cluster, version: int, topic: Topic) -> bytes:
    """A topic up to and with its partitions."""
    key = (version, topic.name)
    written = kept.topics.get(key)
    if written is None:
        asked = MetadataTopic(topic, topic.name, bytes.fromhex(topic.id))
        written = kept.topics[key] = _head(version, asked) + _partitions(version, cluster, topic)
    return written


def _unknown(version: int, asked: MetadataTopic) -> bytes:
    return _head(version, asked) + array_length(0, flexible=version >= _FLEXIBLE)


def _head(version: int, asked: MetadataTopic) -> bytes:
    name = asked.name if asked.name is not None or version >= _NULL_NAMES else ""
    out = INT16.pack(asked.code) + string(name, flexible=version >= _FLEXIBLE)
    if version >= _IDS:
        out += asked.topic_id
    return out + (b"\0" if version >= _INTERNAL else b"")


def _partitions(version: int, cluster: Cluster, topic: Topic) -> bytes:
    shape = _SHAPES[version]
    one, none = (2, 1) if shape.flexible else (1, 0)  # compact lengths are one more
    offline = (none,) if version >= _OFFLINE else ()
    out = bytearray(array_length(topic.partitions, flexible=shape.flexible))
    nodes: dict[str, int] = {}
    for number, held in enumerate(cluster.leaders(topic.name, topic.partitions)):
        leader = NO_LEADER
        if held is not None:
            if held.holder not in nodes:
                member = cluster.member(held.holder)
                nodes[held.holder] = NO_LEADER if member is None else member.node
            leader = nodes[held.holder]
        if held is None or leader == NO_LEADER:
            epochs = (NO_LEADER,) if shape.epochs else ()
            out += shape.leaderless.pack(
                ErrorCode.LEADER_NOT_AVAILABLE, number, NO_LEADER, *epochs, none, none, *offline
            )
        else:
            epochs = (held.epoch,) if shape.epochs else ()
            out += shape.led.pack(0, number, leader, *epochs, one, leader, one, leader, *offline)
    return bytes(out)
