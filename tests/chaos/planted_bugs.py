"""Bugs for the checker to find, by name: each switches off one rule of docs/safety.md in an agent's process.

`SHOWN_BY` says at which level, and under which faults, a client sees them.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
from tests.chaos.heaps.planted_bugs import HEAP_BUGS
from tests.chaos.shown import Shown
from tests.support.replication.mutants import MUTANTS

from holdfast.contracts.store import Absent
from holdfast.log.keys import deletion_mark_key
from holdfast.log.maintenance import orphan_sweeper
from holdfast.log.metadata import PartitionRecord
from holdfast.log.model import PartitionConfig, PartitionId
from holdfast.log.partition import publisher, takeover_recovery
from holdfast.log.wal.disk import WalDisk
from holdfast.vocabulary.clock import RealClock

WRITTEN_BACK_MS: Final = 1_000


def epoch_not_checked() -> None:
    """A publication is named without regard to the lease and the record (rules 8 and 10)."""

    def require(self: publisher._UploadedSegments) -> tuple[Any, ...]:
        return tuple(Absent(deletion_mark_key(each.object)) for each in self.segments)

    publisher._UploadedSegments.require = require  # type: ignore[method-assign]


def ack_before_fsync() -> None:
    """What the WAL writes stays in a cache that dies with the process, and is written back now and then; no sync waits (rule 7)."""
    write, clock, lock = WalDisk.write, RealClock(), threading.Lock()
    cached: list[tuple[int, int, bytes]] = []
    written_back_ms = [clock.boot_ms()]

    def is_writer() -> bool:
        return threading.current_thread().name == "wal-writer"

    def cache(self: WalDisk, descriptor: int, buffers: Sequence[Any], position: int) -> int:
        if not is_writer():
            return write(self, descriptor, buffers, position)
        data = b"".join(buffers)
        with lock:
            cached.append((descriptor, position, data))
        return len(data)

    def sync(self: WalDisk, descriptor: int) -> None:
        now_ms = clock.boot_ms()
        if is_writer() and now_ms - written_back_ms[0] < WRITTEN_BACK_MS:
            return
        with lock:
            for each, position, data in cached:
                write(self, each, [data], position)
            cached.clear()
            written_back_ms[0] = now_ms

    WalDisk.open_blocks = lambda self, path: None  # type: ignore[method-assign]
    WalDisk.write = cache  # type: ignore[method-assign]
    WalDisk.sync = sync  # type: ignore[method-assign]


def offsets_reused() -> None:
    """A tail in another agent's WAL is ignored, and so is its reservation (rules 8 and 9)."""

    def from_what_is_published(
        partition_id: PartitionId, record: PartitionRecord, partition_config: PartitionConfig
    ) -> PartitionRecord:
        return msgspec.structs.replace(record, reserved=record.published)

    takeover_recovery._skip_tail = from_what_is_published


def sweeper_without_doom() -> None:
    """Orphans are deleted without a mark that a late publication would meet (rule 13)."""

    async def nothing(*_: Any) -> None:
        """Marks nothing."""

    orphan_sweeper._mark_for_deletion = nothing  # type: ignore[assignment]


def _mutant(name: str) -> Callable[[], None]:
    def planted() -> None:
        for owner, attribute, replacement in MUTANTS[name].patches:
            setattr(owner, attribute, replacement)

    return planted


BUGS: Final[dict[str, Callable[[], None]]] = {
    "epoch-not-checked": epoch_not_checked,
    "ack-before-fsync": ack_before_fsync,
    "offsets-reused": offsets_reused,
    "sweeper-without-doom": sweeper_without_doom,
    "ack-before-majority": _mutant("acknowledged before a majority has it"),
    "serve-before-seal": _mutant("served before the seal"),
    "longest-tail": _mutant("longest tail instead of the highest epoch"),
}

SHOWN_BY: Final = {
    "epoch-not-checked": Shown(level="object", faults=("freeze-publishing-past-ttl",)),
    "ack-before-fsync": Shown(level="local", faults=("kill",)),
    "offsets-reused": Shown(level="local", faults=("kill",)),
    # Longer than objects have to be old to be orphans, and shorter than a session lasts.
    "sweeper-without-doom": Shown(level="object", faults=("freeze-publishing",), lasting_s=(4.0, 6.0), ttl_ms=20_000),
    "ack-before-majority": Shown(level="quorum", faults=("lose-disk-cut-off",)),
    "serve-before-seal": Shown(level="quorum", faults=("kill", "freeze-past-ttl")),
    "longest-tail": Shown(level="quorum", faults=("diverge",), lasting_s=(5.0, 6.0), learners=False),
}


def plant(bug: str) -> None:
    """In this process."""
    {**BUGS, **HEAP_BUGS}[bug]()
