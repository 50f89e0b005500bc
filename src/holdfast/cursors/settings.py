"""What an operator may tune about shared cursors, and their counters. docs/text.md documents both."""

from dataclasses import dataclass

from holdfast.vocabulary.settings import KIB, MIB, check_at_least, check_between


@dataclass(frozen=True, slots=True, kw_only=True)
class CursorSettings:
    """Limits of shared cursors.

    `shards`: the number of leases the cursors of a store are spread over; fixed by the first agent that serves them.
    `save_ms`: how often positions are saved; `unsaved_max`: how many offsets a topic's readers may be ahead of what is saved. After
    a crash of the owner at most so many records are delivered again.
    `read_bytes`: of one read ahead; `buffered_bytes_max`: of what all cursors of an agent have read ahead.
    `settle_ms`: how long an owner that gives a cursor away waits for answers that are being written.
    """

    shards: int = 16
    save_ms: int = 50
    unsaved_max: int = 1_000
    read_bytes: int = 256 * KIB
    buffered_bytes_max: int = 64 * MIB
    settle_ms: int = 1_000

    def __post_init__(self) -> None:
        check_between("shards", self.shards, 1, 1_000)
        for name in ("save_ms", "unsaved_max", "read_bytes", "buffered_bytes_max"):
            check_at_least(name, getattr(self, name), 1)
        check_at_least("settle_ms", self.settle_ms, 0)


@dataclass(slots=True)
class CursorCounters:
    """Since the process started. `returned`: handed out, but not delivered; `redelivered`: handed out again."""

    delivered: int = 0
    returned: int = 0
    redelivered: int = 0
    reads: int = 0
    store_commits: int = 0
    shards_opened: int = 0
    shards_lost: int = 0
