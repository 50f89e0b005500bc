"""Who leads a partition, in the forms Kafka's answers have for it: a client that asked the wrong node learns the right one."""

from struct import Struct
from typing import Final, NamedTuple

from holdfast.agent.cluster import Cluster
from holdfast.gateways.kafka.backend import Broker, KafkaBackend
from holdfast.kafka.wire import INT32, NO_TAGS, array_length, string, tagged
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.types import Member

NO_LEADER: Final = -1

_LEADER: Final = Struct(">iix")  # node, epoch, no tags


class PartitionLeader(NamedTuple):
    """Node and epoch; -1 where nobody leads."""

    node: int
    epoch: int


def split_address(address: str) -> tuple[str, int]:
    """Host and port of `host:port`; an IPv6 host may stand in brackets."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise InvalidError("address", address, "host:port")
    return host.removeprefix("[").removesuffix("]"), int(port)


def broker(member: Member) -> Broker:
    """An agent as Kafka's metadata names it."""
    host, port = split_address(member.address)
    return Broker(node=member.node, host=host, port=port, rack=member.zone or None)


def brokers(backend: KafkaBackend) -> list[Broker]:
    """Every live agent; a cluster without one is answered for by this node, so that clients have somebody to ask again."""
    live = [broker(member) for member in backend.cluster.members if member.address]
    if not live:
        me = backend.me()
        return [me] if me is not None else []
    return live


def leader_of(cluster: Cluster, topic: str, number: int) -> PartitionLeader:
    """Who leads the partition, as far as this node knows."""
    held = cluster.leader(topic, number)
    member = cluster.member(held.holder) if held is not None else None
    if held is None or member is None:
        return PartitionLeader(NO_LEADER, NO_LEADER)
    return PartitionLeader(member.node, held.epoch)


def leader_field(leader: PartitionLeader) -> bytes:
    """A partition's `current_leader`, as a tagged field holds it."""
    return _LEADER.pack(*leader)


def endpoints_tags(backend: KafkaBackend, leaders: set[int]) -> bytes:
    """The tagged fields of an answer that names leaders: where they are."""
    if not leaders:
        return NO_TAGS
    named = [each for each in brokers(backend) if each.node in leaders]
    out = bytearray(array_length(len(named), flexible=True))
    for each in named:
        out += INT32.pack(each.node) + string(each.host, flexible=True) + INT32.pack(each.port)
        out += string(each.rack, flexible=True) + NO_TAGS
    return tagged({0: bytes(out)})
