"""Recovery: the state of a partition from its log, in the order of its records."""

from typing import Final, cast

from holdfast.heap.partition_state import HeapState
from holdfast.heap.picks import enqueues_of
from holdfast.heap.records import Enqueue, decode_operation
from holdfast.log.batches import Record, decode, parse_header
from holdfast.log.owned_partition import OwnedPartition
from holdfast.vocabulary.errors import CorruptError, UnavailableError
from holdfast.vocabulary.settings import MIB
from holdfast.vocabulary.tasks import LoopTurns

_READ_BYTES: Final = MIB
_WAIT_MS: Final = 60_000  # at `object`, until what was recovered is published


async def replay(log: OwnedPartition, state: HeapState, turns: LoopTurns) -> None:
    """Apply every record from `state.next_offset` to the end of the log, as of now. Raises what reading raises.

    Nobody else appends to it. What is not visible yet, because it waits to be published, is waited for.
    `CorruptError`: the log begins above `state.next_offset`.
    """
    end, at = log.next_offset, state.next_offset
    if at < log.start_offset:
        raise CorruptError(
            f"heap partition {log.partition_id}", f"its records from {at} to {log.start_offset} are gone"
        )
    while at < end:
        if log.next_offset < end:  # looked at right before a read: what is cut while it waits is its error
            raise UnavailableError(f"heap partition {log.partition_id}", "its log was cut while it was read")
        fetched = await log.read(at, bytes_max=_READ_BYTES, wait_ms=_WAIT_MS)
        for batch in fetched.batches:
            _apply(state, [record for record in decode(batch) if record.offset >= at])
            at = max(at, parse_header(batch).last_offset + 1)
        await turns.next()
    state.next_offset = end


def _apply(state: HeapState, records: list[Record]) -> None:
    """The records of a batch, messages that follow one another together."""
    messages, at, end = enqueues_of(records), 0, len(records)
    while at < end:
        offset, time_ms, key, value, headers = records[at]
        after = at
        while after < end and messages[after] is not None and records[after][:2] == (offset + after - at, time_ms):
            after += 1
        if after > at:
            state.apply_enqueues(offset, time_ms, cast(list[Enqueue], messages[at:after]))
            at = after
        else:
            state.apply(offset, time_ms, decode_operation(key, value, headers))
            at += 1
