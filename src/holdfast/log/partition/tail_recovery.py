"""The unpublished tail of a partition, from its frames in the WAL.

The one rule (docs/safety.md, rule 24): a batch of the leader in charge is recovered, or the partition stays offline. One that lies
behind a hole is never skipped, because its offsets would be handed out again. Not a hole are offsets below the start of the log,
which nobody reads, and those the record lists as a gap.

Frames may come in any order and more than once: the WAL copies old ones forward, and a crash may leave both.
"""

from collections.abc import AsyncIterator
from typing import NamedTuple

from holdfast.log.batches import RecordBatchLimits, parse_header, split_batches
from holdfast.log.gaps import gap_batches
from holdfast.log.leader_epochs import epoch_at
from holdfast.log.metadata import PartitionRecord
from holdfast.log.partition.tail import Tail, TailBatch
from holdfast.log.wal import DATA, WalFrame

_ALL_BYTES = 1 << 62


class TailHole(NamedTuple):
    """Offsets [`start`, `end`) are missing: the frame with `lsn` follows them. `tail_end` is behind the last batch there is."""

    start: int
    end: int
    lsn: int
    tail_end: int


async def recover_tail(tail: Tail, record: PartitionRecord, frames: AsyncIterator[WalFrame]) -> TailHole | None:
    """Put what follows the tail back on it, in the order of the offsets; the hole at which that ends, if there is one.

    A batch below the end of the tail was published, or is there already; one whose epoch did not lead at its offset belongs to
    a lost leadership, and was not acknowledged.
    """
    found: dict[int, tuple[TailBatch, int]] = {}
    async for frame in frames:
        if frame.kind != DATA or frame.end_offset <= tail.end:
            continue
        for part in frame.payload:
            for header, data in split_batches(part, limits=RecordBatchLimits(), stored=True):
                base, end = header.base_offset, header.last_offset + 1
                if base >= tail.end and header.leader_epoch == epoch_at(record.epochs, base):
                    found[base] = TailBatch(base, end, data, header), frame.lsn
    for base in sorted(found):
        _cover_gaps(tail, record)
        if base > max(tail.end, record.start):
            return TailHole(tail.end, base, found[base][1], max(batch.end_offset for batch, _ in found.values()))
        if base >= tail.end:
            tail.append(found[base][0])
    _cover_gaps(tail, record)
    return None


def cover(tail: Tail, end: int, epoch: int) -> None:
    """Extend the tail to `end` by batches without records."""
    for data in gap_batches(tail.end, end, epoch=epoch, bytes_max=_ALL_BYTES):
        header = parse_header(data)
        tail.append(TailBatch(header.base_offset, header.last_offset + 1, data, header))


def _cover_gaps(tail: Tail, record: PartitionRecord) -> None:
    """An earlier takeover went on behind these gaps: so does this one, even if nothing was written there."""
    for gap in record.gaps:
        if gap.start <= tail.end < gap.end:
            cover(tail, gap.end, epoch_at(record.epochs, gap.end - 1))
