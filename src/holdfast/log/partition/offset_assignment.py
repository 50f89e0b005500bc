"""Numbering: batches get their offsets and their epoch, and become what the tail keeps and the WAL writes. No I/O, no state.

The one rule: a batch is written to only if its buffer is ours, else copied; no reader sees it before it has its offset.
"""

from collections.abc import Sequence

from holdfast.log.batches import BatchHeader, RecordBatch
from holdfast.log.batches.batch_run import BatchRun, number_run
from holdfast.log.batches.header import number_batch
from holdfast.log.checksums import COMBINE_MIN_BYTES, batch_checksum
from holdfast.log.partition.tail import TailBatch, TailRun
from holdfast.log.wal import WalFrame


def extent(batches: Sequence[RecordBatch]) -> tuple[int, int]:
    """How many offsets and how many bytes the batches take."""
    count = size = 0
    for header, data in batches:
        count += header.last_offset_delta + 1
        size += len(data)
    return count, size


def assign_offsets(
    batches: Sequence[RecordBatch], base_offset: int, epoch: int, *, copy_below_bytes: int
) -> list[TailBatch]:
    """The batches with offsets from `base_offset` on, patched where they lie; small ones are copied, so that they pin no slab.

    `copy_below_bytes` 0: their memory holds nothing but batches that are kept as long as they are.
    """
    at = base_offset
    made: list[TailBatch] = []
    for header, view in batches:
        data = bytearray(view) if view.readonly or len(view) < copy_below_bytes else view
        number_batch(data, at, epoch)
        end = at + header.last_offset_delta + 1
        made.append(TailBatch(at, end, data, BatchHeader._make((at, header.length, epoch, *header[3:]))))
        at = end
    return made


def wal_frame(topic_id: bytes, partition: int, epoch: int, batches: Sequence[TailBatch]) -> WalFrame:
    """What the WAL keeps of consecutive batches."""
    return WalFrame(
        topic_id=topic_id,
        partition=partition,
        epoch=epoch,
        base_offset=batches[0].base_offset,
        count=batches[-1].end_offset - batches[0].base_offset,
        payload=[batch.data for batch in batches],
        checksum=_known_checksum(batches),
        batch_count=len(batches),
    )


def assign_run(run: BatchRun, base_offset: int, epoch: int) -> tuple[TailRun, list[int]]:
    """A run with offsets from `base_offset` on, and the base offset of each of its batches."""
    offsets = number_run(run, base_offset=base_offset, epoch=epoch)
    return TailRun(base_offset, base_offset + run.record_count, run.data, run.max_timestamp_ms), offsets


def run_frame(topic_id: bytes, partition: int, epoch: int, run: TailRun, *, batch_count: int = 1) -> WalFrame:
    """What the WAL keeps of a run."""
    count = run.end_offset - run.base_offset
    return WalFrame(topic_id, partition, epoch, run.base_offset, count, [run.data], batch_count=batch_count)


def _known_checksum(batches: Sequence[TailBatch]) -> int | None:
    """The checksum of what goes into the WAL, where the batch's own saves going over all of it once more."""
    if len(batches) == 1 and len(batches[0].data) >= COMBINE_MIN_BYTES:
        return batch_checksum(batches[0].data)
    return None
