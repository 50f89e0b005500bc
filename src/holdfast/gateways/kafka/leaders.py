"""Leaders and brokers in the forms of Kafka's responses: a client that asked the wrong node is sent to the right one."""

from collections.abc import Collection, Sequence
from struct import Struct
from typing import Final, NamedTuple

from holdfast.agent.cluster import Cluster
from holdfast.agent.partition_replicas import PartitionReplicas
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
    """A partition as Metadata lists it. The leader is `NO_NODE` while nobody serves it. `offline`: replicas that are not live.

    The epoch is the last that this node has heard of, whoever leads, as in Kafka: a client that is told of none forgets the epoch
    it knows, and believes the next node, which may be behind.
    """

    leader: int
    epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    offline: tuple[int, ...] = ()


def broker(member: Member) -> Broker:
    """An agent as Kafka's metadata lists it."""
    found = split_host_port(member.address)
    if found is None or not found.host or found.port is None:
        raise InvalidError("address", member.address, "host:port")
    return Broker(node=member.node, host=found.host, port=found.port, rack=member.zone or None)


def listed_brokers(backend: KafkaBackend) -> list[Broker]:
    """Every live agent, and those that left a moment ago: clients take other leaders over before a broker goes.

    Each once, this node too when it has just lost its session and nobody else is there: Java's client fails on two of one id.
    """
    listed, departed = brokers(backend), backend.cluster.departures.departed(backend.clock.boot_ms())
    nodes = {each.node for each in listed}
    return listed + [broker(member) for member in departed if member.address and member.node not in nodes]


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


def nodes_of(
    cluster: Cluster, held: Held | None, replicas: PartitionReplicas | None = None, *, last_epoch: int = NO_EPOCH
) -> PartitionNodes:
    """Leader and replicas of the partition whose lease is held like this. Without `replicas` the leader is the only one.

    A leader that looks dead from here is none. `last_epoch`: the epoch if nobody holds the lease.
    """
    member = cluster.reachable_member(held.holder) if held is not None else None
    leads = held is not None and member is not None
    offline = cluster.offline(held) if held is not None and member is not None else None
    leader = member.node if member is not None and offline is None else NO_NODE
    epoch = held.epoch if held is not None else last_epoch
    if replicas is not None and replicas.agents:
        return _replicated(cluster, replicas, leader, epoch)
    if not leads:
        return PartitionNodes(NO_NODE, epoch, (), ())
    if offline is None:
        return PartitionNodes(leader, epoch, (leader,), (leader,))
    unavailable = () if offline.node == NO_NODE else (offline.node,)
    return PartitionNodes(NO_NODE, epoch, unavailable, unavailable, unavailable)


def _replicated(cluster: Cluster, replicas: PartitionReplicas, leader: int, epoch: int) -> PartitionNodes:
    """The set that served last; a new leader is one of it at once. Who is not live is in sync with nobody, as in Kafka."""
    nodes = {agent: cluster.node(agent) for agent in replicas.agents}
    live = {node for agent, node in nodes.items() if node is not None and cluster.reachable_member(agent) is not None}
    listed = tuple(node for node in nodes.values() if node is not None)
    in_sync = tuple(node for agent in replicas.in_sync if (node := nodes.get(agent)) is not None and node in live)
    if leader != NO_NODE:
        listed = listed if leader in listed else (leader, *listed)
        in_sync = in_sync if leader in in_sync else (leader, *in_sync)
        live.add(leader)
    return PartitionNodes(leader, epoch, listed, in_sync, tuple(node for node in listed if node not in live))


def replicas_of(cluster: Cluster, topic: str, number: int) -> list[Member]:
    """The live agents that Metadata lists as replicas of a partition. Clients cannot ask any other."""
    known = cluster.topic(topic) if cluster.has_replicas else None
    replicas = cluster.replicas(known.id, number) if known is not None else None
    listed = nodes_of(cluster, cluster.leader(topic, number), replicas).replicas
    return [member for member in cluster.members if member.node in listed]


def preferred_replica(
    replicas: Sequence[Member], *, leader: int, rack: str, in_sync: Collection[str] = ()
) -> Member | None:
    """The replica in the reader's zone, one of the WALs in sync first; None: the leader is in it, or none is."""
    near = [member for member in replicas if rack and member.zone == rack]
    if any(member.node == leader for member in near):
        return None
    return next((member for member in near if member.wal_id in in_sync), near[0] if near else None)


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
