"""STATE and METRICS: bare JSON with Walrus's names, from what every node knows."""

import msgspec

from holdfast.gateways.text.backend import TextBackend
from holdfast.log.rotation.record import read_rotation
from holdfast.log.topics import Topic


async def state_json(backend: TextBackend, name: str) -> bytes:
    """The state of a topic's first partition. `leader_node` is null while it has no leader; segments count from 1."""
    topic: Topic = backend.cluster.topic(name) or await backend.log.topics.get(name)
    rotation = await read_rotation(backend.store, topic.name, topic.id, 0)
    held = backend.cluster.leader(name, 0)
    member = backend.cluster.member(held.holder) if held is not None else None
    leader = None if member is None else member.node
    leaders: dict[str, int | None] = {str(each.segment): each.node for each in rotation.sealed}
    leaders[str(rotation.segment)] = leader
    return msgspec.json.encode(
        {
            "current_segment": rotation.segment,
            "leader_node": leader,
            "last_sealed_entry_offset": rotation.start,
            "sealed_segments": {str(each.segment): each.end - each.start for each in rotation.sealed},
            "segment_leaders": leaders,
        }
    )


def metrics_json(backend: TextBackend, connections: int) -> bytes:
    """This node, the cluster as it sees it, and what its text gateway has counted."""
    members = [
        {"node": member.node, "agent": member.id, "text": member.text_address or None}
        for member in backend.cluster.members
    ]
    return msgspec.json.encode(
        {
            "node": backend.node,
            "agent": backend.agent,
            "cluster_id": backend.cluster_id,
            "planner": backend.cluster.planner,
            "members": members,
            "topics": len(backend.cluster.topics),
            "connections": connections,
            "text": msgspec.to_builtins(backend.counters),
            "cursors": msgspec.to_builtins(backend.cursors.counters),
        }
    )
