"""What an operator may tune about consumer groups, and the coordinator's counters. docs/groups.md documents both."""

from dataclasses import dataclass
from typing import Final

from holdfast.vocabulary.settings import KIB, MIB, check_at_least, check_between

_DAY_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """Limits and defaults of groups.

    `shards`: the number of leases the groups of a store are spread over; fixed by the first agent of a store.
    `initial_delay_ms`: how long a new group waits for more members after its first, and after each further one (up to the
    rebalance timeout), before it assigns partitions. Long enough for the consumers of one process to join together, short enough
    that a single consumer does not notice.
    `session_min_ms`, `session_max_ms`: the range of a member's session timeout. `size_max`: members of a group.
    `protocols_max`: assignment protocols of a member.
    `id_chars_max`: of a new group's id. `pending_member_ms`: how long a new member has to join with the id it was given.
    `unsaved_bytes_max`: memory for groups without a record or offsets, in one process; once half of it is in use, those that have
    been without for `unsaved_kept_ms` give way. `unsaved_sync_ms`: how long their members may take to join again and to sync.
    `members_bytes_max`: memory for the metadata of a group's members, before a new one is refused; those it has may grow to twice
    as much. `assignment_bytes_max`: of all assignments of a generation. `record_bytes_max`: of a group's record, compressed; a
    larger group's members are not stored, and join again when its coordinator changes.
    `memory_bytes_max`: memory for what the members of all groups of a process sent, before new members and what grows are refused.
    `metadata_chars_max`: of one committed offset. `retention_ms`: how long offsets are kept once their group is empty.
    `sweep_ms`: how often a shard looks for expired offsets.
    `commit_bytes_max`: of one store commit, which many offset commits share.
    """

    shards: int = 16
    initial_delay_ms: int = 200
    session_min_ms: int = 6_000
    session_max_ms: int = 1_800_000
    size_max: int = 1_000
    protocols_max: int = 100
    id_chars_max: int = 1_024
    pending_member_ms: int = 30_000
    unsaved_bytes_max: int = 64 * MIB
    unsaved_kept_ms: int = 5_000
    unsaved_sync_ms: int = 60_000
    members_bytes_max: int = 8 * MIB
    assignment_bytes_max: int = 8 * MIB
    record_bytes_max: int = 400 * KIB
    memory_bytes_max: int = 256 * MIB
    metadata_chars_max: int = 4_096
    retention_ms: int = 7 * _DAY_MS
    sweep_ms: int = 600_000
    commit_bytes_max: int = 480 * KIB

    def __post_init__(self) -> None:
        check_between("shards", self.shards, 1, 1_000)
        check_at_least("initial_delay_ms", self.initial_delay_ms, 0)
        check_at_least("session_min_ms", self.session_min_ms, 1)
        check_at_least("session_max_ms", self.session_max_ms, self.session_min_ms)
        for name in ("size_max", "protocols_max", "id_chars_max", "unsaved_bytes_max", "retention_ms", "sweep_ms"):
            check_at_least(name, getattr(self, name), 1)
        check_at_least("memory_bytes_max", self.memory_bytes_max, 1)
        for name in ("members_bytes_max", "assignment_bytes_max"):
            check_between(name, getattr(self, name), 1, 64 * MIB)
        check_at_least("pending_member_ms", self.pending_member_ms, 1_000)
        check_at_least("unsaved_kept_ms", self.unsaved_kept_ms, 1)
        check_at_least("unsaved_sync_ms", self.unsaved_sync_ms, 1_000)
        # Sixteen offsets, which share a key, must fit into one commit.
        check_between("metadata_chars_max", self.metadata_chars_max, 0, 4_096)
        check_between("commit_bytes_max", self.commit_bytes_max, 400 * KIB, 500 * KIB)
        check_between("record_bytes_max", self.record_bytes_max, 1, self.commit_bytes_max)


@dataclass(slots=True)
class GroupCounters:
    """Since the process started."""

    joins: int = 0
    joins_refused: int = 0
    groups_evicted: int = 0
    rebalances: int = 0
    members_expired: int = 0
    offset_commits: int = 0
    offsets_committed: int = 0
    store_commits: int = 0
    offsets_forgotten: int = 0
    shards_opened: int = 0
    shards_lost: int = 0
