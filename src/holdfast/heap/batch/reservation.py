"""Which messages of a batch are new in a partition. Pure.

The one rule: a producer's number that an undecided batch has reserved is neither new nor known. Whoever needs it is refused, and
asks again when that batch is decided.
"""

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.heap.decisions import check_epoch_here, known_enqueue
from holdfast.heap.errors import BatchAbortedError, ResourceExhaustedError
from holdfast.heap.model import NewMessage
from holdfast.heap.partition_state import HeapState
from holdfast.heap.records import ProducerSequence


class Reservation(NamedTuple):
    """The new messages, and for each message given its place among these, or where and when it was enqueued before."""

    new: list[NewMessage]
    places: list[int | tuple[int, int]]
    duplicates: list[bool]


def check_not_reserved(state: HeapState, topic: str, key: ProducerSequence) -> None:
    """`BatchAbortedError`: an undecided batch has a message with this number."""
    if key in state.reserved.keys:
        reason = f"sequence {key.sequence} of producer {key.producer!r} is in another batch that is not decided yet"
        raise BatchAbortedError(topic, reason)


def decide_reservation(
    state: HeapState, topic: str, messages: Sequence[NewMessage], *, window_ms: int, count_max: int, now_ms: int
) -> Reservation:
    """What of a batch is to be reserved. `ProducerFencedError`, `SequenceForgottenError`, `BatchAbortedError`,
    `ResourceExhaustedError`: nothing of it."""
    found = Reservation([], [], [])
    here: dict[ProducerSequence, int] = {}  # of this batch
    epochs: dict[str, int] = {}
    for message in messages:
        key = message.producer
        if key is not None:
            check_not_reserved(state, topic, key)
            known = known_enqueue(state, key, window_ms, now_ms)
            if known is not None or key in here:
                found.places.append(here[key] if known is None else (known.offset, known.enqueued_ms))
                found.duplicates.append(True)
                continue
            check_epoch_here(epochs, key)
            here[key] = len(found.new)
        found.places.append(len(found.new))
        found.duplicates.append(False)
        found.new.append(message)
    used = len(state.reserved.messages)
    if found.new and used + len(found.new) > count_max:
        raise ResourceExhaustedError(f"messages of undecided batches in a partition of {topic}", used, count_max)
    return found
