"""A copy of a partition's state, for a snapshot: taken between two operations in milliseconds, encoded later by another thread.

The one rule: an image shares nothing with the state that can change. Large parts are copied as a whole (lists, bitmaps, arrays),
never message by message, so that two million messages hold up the event loop for some hundredths of a second.
"""

from dataclasses import dataclass

import msgspec

from holdfast.heap.batch.reservations import Reservations, ReservationsImage
from holdfast.heap.fairness.index import FairImage, FairIndex
from holdfast.heap.packed_heap import HeapImage, PackedHeap
from holdfast.heap.partition_state import Counters, HeapState, MessageLease, OutgoingMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class StateImage:
    """A partition as of `next_offset`."""

    mode: str
    next_offset: int
    spine_epoch: int
    counters: Counters
    ready: HeapImage
    delayed: HeapImage
    leases: dict[int, MessageLease]
    attempts: dict[int, int]
    retries: dict[int, int]
    ranks: dict[int, int]
    copies: dict[int, int]
    outbox: dict[int, OutgoingMessage]
    dedup: list[tuple[str, int, int, bytes]]
    reserved: ReservationsImage
    fair: FairImage | None = None
    partitions: int = 0


def capture(state: HeapState) -> StateImage:
    """The state as it is now."""
    return StateImage(
        mode=state.mode,
        next_offset=state.next_offset,
        spine_epoch=state.spine_epoch,
        counters=msgspec.structs.replace(state.counters),
        ready=state.ready.image(),
        delayed=state.delayed.image(),
        leases=state.leases.copy(),
        attempts=state.attempts.copy(),
        retries=state.retries.copy(),
        ranks=state.ranks.copy(),
        copies=state.copies.copy(),
        outbox=state.outbox.copy(),
        dedup=list(state.dedup.rows()),
        reserved=state.reserved.image(),
        fair=state.fair.fair_image() if state.fair is not None else None,
        partitions=state.partitions,
    )


def restored(image: StateImage) -> HeapState:
    """The state of an image, which it takes over."""
    state = HeapState(image.mode)
    state.next_offset, state.spine_epoch, state.counters = image.next_offset, image.spine_epoch, image.counters
    state.partitions = image.partitions
    state.delayed = PackedHeap.restored(image.delayed)
    if image.fair is not None:
        state.ready = state.fair = FairIndex.restored(image.ready, image.fair, image.leases)
    else:
        state.ready = PackedHeap.restored(image.ready)
    state.leases, state.attempts, state.retries = image.leases, image.attempts, image.retries
    state.ranks, state.copies, state.outbox = image.ranks, image.copies, image.outbox
    state.reserved = Reservations.restored(image.reserved)
    for row in image.dedup:
        state.dedup.restore(*row)
    state.rebuild()
    return state
