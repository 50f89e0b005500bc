"""The state of a partition as canonical bytes: equal states are equal bytes, whatever way they came about, and nothing is left out.

What replays and snapshots are compared by. A snapshot itself is an image of the state (`state_image`), which is quicker to take.
"""

from array import array
from typing import Any, Final

import msgspec

from holdfast.heap.batch.model import Prepared
from holdfast.heap.batch.reservations import ReservationsImage
from holdfast.heap.partition_state import Counters, HeapState, MessageLease, OutgoingMessage
from holdfast.heap.records import enqueue_key

_FORMAT: Final = 3


class _Encoded(msgspec.Struct, array_like=True):
    format: int
    mode: str
    next_offset: int
    ready: bytes  # (rank, offset) each, in order
    returned: list[int]  # offsets that are ready again, or with another priority
    delayed: bytes  # (when, rank, offset) each, in order
    ranks: list[tuple[int, int]]  # of delayed messages that were reprioritised
    leases: list[tuple[int, MessageLease]]
    attempts: list[tuple[int, int]]
    retries: list[tuple[int, int]]
    outbox: list[tuple[int, OutgoingMessage]]
    dedup: list[tuple[str, int, int, bytes]]
    counters: Counters
    spine_epoch: int
    copies: list[tuple[int, int]]
    reserved: tuple[list[Prepared], list[Prepared], list[tuple[int, str, int, bytes]]]
    fairness: tuple[Any, ...] | None  # rules, what keys were served, and whose each message is
    partitions: int


def encode_state(state: HeapState) -> bytes:
    """The bytes of a state."""
    ready, delayed = array("Q"), array("Q")
    for entry in state.ready:
        ready.extend(entry)
    for row in sorted(state.delayed_messages()):
        delayed.extend(row)
    return msgspec.msgpack.encode(
        _Encoded(
            _FORMAT,
            state.mode,
            state.next_offset,
            ready.tobytes(),
            sorted(state.ready.changed()),
            delayed.tobytes(),
            sorted(state.ranks.items()),
            sorted(state.leases.items()),
            sorted(state.attempts.items()),
            sorted(state.retries.items()),
            list(state.outbox.items()),
            list(state.dedup.rows()),
            state.counters,
            state.spine_epoch,
            sorted(state.copies.items()),
            _reserved(state.reserved.image()),
            None if state.fair is None else (state.fair.rules, *state.fair.shares()),
            state.partitions,
        )
    )


def _reserved(image: ReservationsImage) -> tuple[list[Prepared], list[Prepared], list[tuple[int, str, int, bytes]]]:
    messages = [(offset, batch, time_ms, enqueue_key(each)) for offset, (batch, time_ms, each) in image.messages]
    return sorted(image.prepared), sorted(image.to_forget), sorted(messages)
