"""How large a simulated cluster is, and the settings of its agents.

The one rule: every time is a share of the session's TTL, and the TTL is short. What passes between two faults costs what its timers
cost, so a world at a smaller scale runs the same events for less. What no client of the world uses (heaps, cursors) rests.
"""

from dataclasses import dataclass
from typing import Final

from holdfast.agent.settings import AgentSettings
from holdfast.cursors.settings import CursorSettings
from holdfast.groups.settings import GroupSettings
from holdfast.heap.settings import HeapSettings
from holdfast.kernel.membership import MembershipSettings
from holdfast.kernel.plan_executor import PlanExecutorSettings
from holdfast.kernel.planner import PlannerSettings
from holdfast.kernel.session import SessionSettings
from holdfast.log.maintenance import MaintenanceSettings
from holdfast.log.replication.settings import ReplicaSettings
from holdfast.log.settings import LogSettings
from holdfast.log.wal import WalSettings
from holdfast.vocabulary.random import SeededRandom
from holdfast.vocabulary.settings import KIB, MIB

TTL_MS: Final = 500


@dataclass(frozen=True, slots=True)
class ClusterProfile:
    """How large the cluster is, and how many faults this seed has."""

    ttl_ms: int
    hosts: int
    replicas: int  # of topics at quorum
    topics: tuple[tuple[str, int], ...]  # durability, partitions
    producers: int
    incidents: int
    roughness: float
    lost_disks: bool
    passing_topic: bool
    orphan_grace_ms: int  # short: a sweeper and a publication must not need it

    @classmethod
    def draw(cls, random: SeededRandom) -> "ClusterProfile":
        """What a seed draws first."""
        rng = random.random
        roughness = rng.random()
        levels = rng.choice(
            (("local",), ("local",), ("object",), ("local", "object"), ("quorum",), ("quorum",), ("quorum", "local"))
        )
        replicas = rng.choice((2, 3, 3)) if "quorum" in levels else 1
        return cls(
            ttl_ms=TTL_MS,
            hosts=rng.choice((max(1, replicas), max(2, replicas), 3, 3, 4)),
            replicas=replicas,
            topics=tuple((level, rng.choice((1, 2))) for level in levels),
            producers=rng.choice((2, 3, 4)),
            incidents=rng.randint(1, 3 + int(5 * roughness)),
            roughness=roughness,
            lost_disks="local" not in levels and replicas != 2,
            passing_topic=rng.random() < 0.3,
            orphan_grace_ms=rng.choice((0, 0, TTL_MS // 10)),
        )


def agent_settings(name: str, profile: ClusterProfile) -> AgentSettings:
    """Settings at the scale of a world."""
    ttl_ms = profile.ttl_ms
    return AgentSettings(
        id=name,
        hand_over_ms=2 * ttl_ms,
        drain_ms=4 * ttl_ms,
        rejoin_ms=ttl_ms // 10,
        open_retry_ms=ttl_ms // 4,
        idle_ms=ttl_ms,
        publish_backoff_max_ms=ttl_ms,
        drain_publish_ms=2 * ttl_ms,
        drain_refuse_ms=ttl_ms // 2,
        session=SessionSettings(
            ttl_ms=ttl_ms,
            renew_ms=9 * ttl_ms // 20,
            margin_ms=ttl_ms // 10,
            stall_ms=ttl_ms,
            retry_ms=ttl_ms // 10,
        ),
        membership=MembershipSettings(heartbeat_ms=5 * ttl_ms, shown_ms=15 * ttl_ms, wait_for_id_ms=4 * ttl_ms),
        planner=PlannerSettings(settle_ms=ttl_ms // 10, tick_ms=5 * ttl_ms),
        follower=PlanExecutorSettings(tick_ms=3 * ttl_ms, transfer_timeout_ms=3 * ttl_ms, retry_ms=ttl_ms // 10),
        log=LogSettings(
            reserve_offsets=16,
            room_wait_ms=ttl_ms // 2,
            publish_tick_ms=ttl_ms // 10,
            publish_retry_ms=ttl_ms // 10,
            object_interval_ms=ttl_ms // 20,
            segment_keys_max=6,
            check_batches="headers",
        ),
        full_disk_ms=ttl_ms // 2,
        wal=WalSettings(file_bytes=16 * KIB, files_spare_max=2, read_bytes=4 * KIB, copy_forward_files=2),
        upkeep=MaintenanceSettings(
            grace_ms=ttl_ms // 2,
            orphan_grace_ms=profile.orphan_grace_ms,
            unproven_keep_ms=0,
            deleted_keep_ms=ttl_ms,
            index_interval_ms=ttl_ms,
            merge_interval_ms=ttl_ms,
            retention_interval_ms=ttl_ms,
            compaction_interval_ms=5 * ttl_ms,
            trash_interval_ms=ttl_ms // 8,
            orphan_interval_ms=ttl_ms // 8,
            lease_retry_ms=ttl_ms // 2,
        ),
        groups=GroupSettings(shards=2),
        cursors=CursorSettings(shards=1, save_ms=ttl_ms),
        heaps=HeapSettings(spine_shards=1, tell_spine_ms=5 * ttl_ms),
        replica=ReplicaSettings(
            lag_ms=ttl_ms,
            entries_wait_ms=ttl_ms // 4,
            check_ms=2 * ttl_ms,
            # Learners hide what only a member with another log can show, so that most worlds have none.
            catch_up_bytes_per_s=64 * MIB if profile.orphan_grace_ms else 0,
        ),
    )
