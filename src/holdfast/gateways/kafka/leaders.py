"""Leaders and brokers in the forms of Kafka's responses: a client that asked the wrong node is sent to the right one."""

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from holdfast.agent.cluster import Cluster
from holdfast.gateways.kafka.backend import Broker, KafkaBackend
from holdfast.kafka.special_offsets import NO_EPOCH, NO_NODE
from holdfast.kafka.wire import INT32, NO_TAGS, encode_length, encode_string, encode_tags
from holdfast.kernel.lease import Held
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.host_port import split_host_port
from holdfast.vocabulary.types import Member

_LEADER: Final = Struct(">iix")  # node, epoch, no tags


class PartitionLeader(NamedTuple):
    """Node and epoch, `NO_NODE` and `NO_EPOCH` without a leader."""

    node: int
    epoch: int


class PartitionNodes(NamedTuple):
    """A partition as Metadata lists it. The leader is `NO_NODE` while nobody serves it; then its replicas are offline."""

    leader: int
    epoch: int
    replicas: tuple[int, ...]
    offline: tuple[int, ...] = ()


_UNPLACED: Final = PartitionNodes(NO_NODE, NO_EPOCH, ())


def broker(member: Member) -> Broker:
    """An agent as Kafka's metadata lists it."""
    found = split_host_port(member.address)
    if found is None or not found.host or found.port is None:
        raise InvalidError("address", member.address, "host:port")
    return Broker(node=member.node, host=found.host, port=found.port, rack=member.zone or None)


def brokers(backend: KafkaBackend) -> list[Broker]:
    """Every live agent; this node if there is none, so that clients have an address to retry."""
    live = [broker(member) for member in backend.cluster.members if member.address]
    if not live:
        me = backend.me()
        return [me] if me is not None else []
    return live


def leader_of(cluster: Cluster, topic: str, number: int) -> PartitionLeader:
    """The leader of a partition, as far as this node knows."""
    nodes = nodes_of(cluster, cluster.leader(topic, number))
    return PartitionLeader(nodes.leader, nodes.epoch if nodes.leader != NO_NODE else NO_EPOCH)


def nodes_of(cluster: Cluster, held: Held | None) -> PartitionNodes:
    """Leader and replicas of the partition whose lease is held like this. The leader is its only replica."""
    member = cluster.member(held.holder) if held is not None else None
    if held is None or member is None:
        return _UNPLACED
    offline = cluster.offline(held)
    if offline is None:
        return PartitionNodes(member.node, held.epoch, (member.node,))
    unavailable = () if offline.node == NO_NODE else (offline.node,)
    return PartitionNodes(NO_NODE, held.epoch, unavailable, unavailable)


def replicas_of(cluster: Cluster, topic: str, number: int) -> list[Member]:
    """The live agents that Metadata lists as replicas of a partition. Clients cannot ask any other."""
    listed = nodes_of(cluster, cluster.leader(topic, number)).replicas
    return [member for member in cluster.members if member.node in listed]


def preferred_replica(replicas: Sequence[Member], *, leader: int, rack: str) -> int:
    """The replica in the reader's zone, unless the leader is in it, or none is."""
    near = [member.node for member in replicas if rack and member.zone == rack]
    return near[0] if near and leader not in near else NO_NODE


def current_leader_tags(backend: KafkaBackend, topic: str, number: int, *, tag: int, leaders: set[int]) -> bytes:
    """The `current_leader` tag of a partition, if it has a leader, which is added to `leaders`."""
    leader = leader_of(backend.cluster, topic, number)
    if leader.node == NO_NODE:
        return NO_TAGS
    leaders.add(leader.node)
    return encode_tags({tag: _LEADER.pack(*leader)})


def endpoints_tags(backend: KafkaBackend, leaders: set[int]) -> bytes:
    """The `node_endpoints` tag of a response: the addresses of the leaders it names."""
    if not leaders:
        return NO_TAGS
    named = [each for each in brokers(backend) if each.node in leaders]
    out = bytearray(encode_length(len(named), flexible=True))
    for each in named:
        out += INT32.pack(each.node) + encode_string(each.host, flexible=True) + INT32.pack(each.port)
        out += encode_string(each.rack, flexible=True) + NO_TAGS
    return encode_tags({0: bytes(out)})
