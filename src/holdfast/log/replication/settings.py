"""What an operator may tune about the replicas of an agent, and what they count."""

from dataclasses import dataclass, field

from holdfast.vocabulary.settings import KIB, MIB, check_at_least


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSettings:
    """Limits and times of the replicas that an agent keeps.

    `lag_ms`: a replica that has not reached the high watermark for so long leaves the in-sync set, and one whose leader's agent was
    silent for so long serves no fetches. `entries_bytes_max`: unpublished entries in memory that other agents' leaders have sent,
    of all partitions; `entries_wait_ms`: how long a message with more of them waits before it is left unanswered.
    `catch_up_bytes_per_s`: how fast this agent's leaders send their logs to replicas that are not members yet, all together;
    0: they become members at once, and get it as such.
    `check_ms`: how often the store is asked which logs nobody counts any more.
    """

    lag_ms: int = 10_000
    entries_bytes_max: int = 512 * MIB
    entries_wait_ms: int = 1_000
    catch_up_bytes_per_s: int = 64 * MIB
    check_ms: int = 60_000

    def __post_init__(self) -> None:
        check_at_least("entries_bytes_max", self.entries_bytes_max, KIB)
        if self.catch_up_bytes_per_s:
            check_at_least("catch_up_bytes_per_s", self.catch_up_bytes_per_s, MIB)
        for name in ("lag_ms", "entries_wait_ms", "check_ms"):
            check_at_least(name, getattr(self, name), 1)


@dataclass(slots=True)
class ReplicaCounters:
    """Since the WAL was opened. `fetches`: of readers, answered here. `refused`: messages that were not answered, by reason."""

    messages: int = 0
    fetches: int = 0
    waits: int = 0
    dropped_logs: int = 0
    refused: dict[str, int] = field(default_factory=dict)

    def refuse(self, reason: str) -> None:
        """Count a message that is not answered."""
        self.refused[reason] = self.refused.get(reason, 0) + 1
