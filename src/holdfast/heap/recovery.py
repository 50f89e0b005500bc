"""Recovery of a partition: its newest snapshot that can be read, then the records since.

The one rule: a state is never guessed. A damaged or missing snapshot is passed over for the one before, then for the whole log;
if the log does not reach back far enough any more, that is an error. A store that does not answer is waited for, not passed over.
"""

import asyncio
import logging
from typing import Final

from holdfast.contracts.objects import Missing
from holdfast.heap.partition_state import HeapState
from holdfast.heap.replay import replay
from holdfast.heap.snapshot_format import SnapshotSubject, decode_image
from holdfast.heap.state_image import restored
from holdfast.log.owned_partition import OwnedPartition
from holdfast.log.partition_snapshots import SnapshotRecord
from holdfast.vocabulary.errors import CorruptError
from holdfast.vocabulary.tasks import LoopTurns

_log: Final = logging.getLogger(__name__)


async def recover(log: OwnedPartition, mode: str, turns: LoopTurns) -> HeapState:
    """The state as of the log's end. `CorruptError`: neither a snapshot nor the log gives it. Raises what reading raises."""
    listed = await log.snapshots.load()
    for snapshot in reversed(listed.snapshots):
        try:
            state = await _read(log, snapshot)
        except CorruptError as error:
            _log.error("snapshot %s is passed over: %s", snapshot.object, error)
            continue
        await replay(log, state, turns)
        return state
    state = HeapState(mode)
    if log.start_offset > 0:
        raise CorruptError(
            f"heap partition {log.partition_id}",
            f"its log begins at {log.start_offset}, and none of its {len(listed.snapshots)} snapshots can be read",
        )
    await replay(log, state, turns)
    return state


async def _read(log: OwnedPartition, snapshot: SnapshotRecord) -> HeapState:
    if not log.start_offset <= snapshot.offset <= log.next_offset:
        raise CorruptError(f"snapshot {snapshot.object}", f"the log is {log.start_offset} to {log.next_offset}")
    body = await log.snapshots.read(snapshot)
    if isinstance(body, Missing):
        raise CorruptError(f"snapshot {snapshot.object}", "it is listed and missing")
    subject = SnapshotSubject(log.partition_id.topic_id, log.partition_id.number)
    state = await asyncio.to_thread(lambda: restored(decode_image(body, subject)))
    if state.next_offset != snapshot.offset:
        raise CorruptError(f"snapshot {snapshot.object}", f"it is as of offset {state.next_offset}")
    return state
