"""Brokers that a client names for partitions, as the planner takes them: agents, the leader first. The texts are Kafka's."""

from collections.abc import Iterable, Sequence

from holdfast.gateways.kafka.backend import KafkaBackend
from holdfast.gateways.kafka.errors import ApiError
from holdfast.kafka.error_codes import ErrorCode
from holdfast.kernel.placement import Placement
from holdfast.log.model import REPLICAS_MAX


def assigned_agents(backend: KafkaBackend, group: str, replicas: Sequence[int]) -> Placement:
    """The live agents of a group with these node ids. `ApiError`: there are none, or too many, or one twice or unknown."""
    text = ""
    if not replicas:
        text = "The manual partition assignment includes an empty replica list."
    elif len(replicas) > REPLICAS_MAX:
        text = f"The manual partition assignment includes {len(replicas)} replicas; a partition has {REPLICAS_MAX} at most."
    agents = {member.node: member.id for member in backend.cluster.members if member.group == group}
    for node in replicas:
        if node not in agents:
            text = text or (
                f"The manual partition assignment includes broker {node}, but no such broker is registered; "
                f"live in group {group}: {sorted(agents)}."
            )
        elif replicas.count(node) > 1:
            text = text or f"The manual partition assignment includes the broker {node} more than once."
    if text:
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
    return tuple(agents[node] for node in replicas)


def check_equal_sizes(assigned: Iterable[Placement], size: int | None = None) -> int:
    """How many replicas each partition has; `size`: as many as those before them."""
    for agents in assigned:
        if size is not None and len(agents) != size:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"The manual partition assignment includes a partition with {len(agents)} replica(s), but this is not "
                f"consistent with previous partitions, which have {size} replica(s).",
            )
        size = len(agents)
    return size or 0
