"""What takeovers left out, found in this agent's WAL and set aside in files (`wal.set_aside`).

The one rule: it is called before anything of the partition is released. What the leader in charge had written is taken; frames of a
lost leadership were never acknowledged.
"""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

from holdfast.log.batches import RecordBatch, RecordBatchLimits, split_batches
from holdfast.log.leader_epochs import epoch_at
from holdfast.log.metadata import OffsetGap, PartitionRecord
from holdfast.log.model import PartitionId
from holdfast.log.wal import DATA, WalFrame
from holdfast.log.wal.set_aside import is_set_aside, tail_name, write_tail


async def set_aside_gaps(
    partition_id: PartitionId,
    record: PartitionRecord,
    frames: AsyncIterator[WalFrame],
    *,
    directory: Path,
    wal_id: str,
    now_ms: int,
) -> None:
    """Set aside what this WAL holds of the gaps that are its own, once. `UnavailableError`: the disk does not take it."""
    names = {
        tail_name(partition_id.topic_id, partition_id.number, gap.start): gap
        for gap in record.gaps
        if gap.wal == wal_id
    }
    known = await asyncio.to_thread(lambda: [name for name in names if is_set_aside(directory, name)])
    wanted = {name: gap for name, gap in names.items() if name not in known}
    if not wanted:
        return
    batches = [batch async for batch in _batches(record, frames, list(wanted.values()))]
    for name, gap in wanted.items():
        inside = {each.header.base_offset: each for each in batches if _lies_in(each, gap)}
        if inside:
            write = partial(
                write_tail,
                directory,
                [inside[offset] for offset in sorted(inside)],
                name=name,
                topic_id=partition_id.topic_id,
                topic=partition_id.topic,
                partition=partition_id.number,
                wal=wal_id,
                reason=f"a takeover went on at offset {gap.end}",
                now_ms=now_ms,
            )
            await asyncio.to_thread(write)


async def _batches(
    record: PartitionRecord, frames: AsyncIterator[WalFrame], gaps: list[OffsetGap]
) -> AsyncIterator[RecordBatch]:
    start, end = min(gap.start for gap in gaps), max(gap.end for gap in gaps)
    async for frame in frames:
        if frame.kind != DATA or frame.end_offset <= start or frame.base_offset >= end:
            continue
        for part in frame.payload:
            for batch in split_batches(part, limits=RecordBatchLimits(), stored=True):
                # -1: the epochs before the start of the log are forgotten.
                if epoch_at(record.epochs, batch.header.base_offset) in (batch.header.leader_epoch, -1):
                    yield batch


def _lies_in(batch: RecordBatch, gap: OffsetGap) -> bool:
    return gap.start <= batch.header.base_offset and batch.header.last_offset < gap.end
