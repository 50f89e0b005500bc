"""What became of an ack that was sent again, because an answer was lost: done, refused, or unknown. Pure.

The one rule: a message that is gone then was acknowledged by an earlier ack if its lease cannot have ended before. Otherwise it may
have been given to another consumer, and be a dead letter: nobody knows.

A lease ends by itself when the clock of whoever leads its partition has reached its deadline. Deadlines are known from the answers
to the pop and to renewals; one that was renewed without an answer is later, never sooner. A leadership has one clock, which does
not step. The answer says what it shows, and how many epochs ago the lease was granted:

- The leader that granted it answers, before the deadline by its clock: the lease had not ended. Our own clock does not count.
- The next leader answers: the same by its clock, which may be far from the first one's. So the first one must not have ended the
  lease either, before it was replaced. What its clock showed is not known, but it set the deadline after the pop was sent: less
  time has passed since then, by our own clock, than lies between grant and deadline. Clocks do not run alike: a share is left.
- After more leaders there is one of whose clock nothing is known.

Not told apart: an operator who cancels, purges or moves a message by its id while it is leased. It is gone by that, and no other
consumer gets it; it counts as acknowledged, and one that was moved is among the dead letters.
"""

from typing import TYPE_CHECKING, Final, TypeAlias

from holdfast.heap.errors import MESSAGE_GONE
from holdfast.heap.wire import LostLease
from holdfast.vocabulary.errors import OutcomeUnknownError

if TYPE_CHECKING:
    from holdfast.heaps.message import Message

_MARGIN_MS: Final = 10  # clocks are read in whole milliseconds
_DRIFT: Final = 0.001  # NTP makes a clock faster or slower by half of that

AckOutcome: TypeAlias = "LostLease | OutcomeUnknownError | None"
"""None: the message is acknowledged."""


def ack_outcome(message: "Message", lost: LostLease | None, now_ms: float) -> AckOutcome:
    """What became of an ack whose last answer was `lost`, at a time of the clock that `message.asked_ms` is of."""
    if lost is None or lost.reason != MESSAGE_GONE or not message.ack_unanswered:
        return lost
    if _held_until_now(message, lost, now_ms):
        return None
    return OutcomeUnknownError(
        f"ack of message {message.id}", "its lease may have ended before: it is done, or a dead letter"
    )


def _held_until_now(message: "Message", lost: LostLease, now_ms: float) -> bool:
    """Whether the lease cannot have ended by itself, nor by another request of its holder."""
    if message.may_have_ended or lost.now_ms is None or lost.now_ms >= message.lease_deadline_ms:
        return False
    if lost.epochs == 0:
        return True
    passed_ms = now_ms - message.asked_ms
    return lost.epochs == 1 and passed_ms * (1 + _DRIFT) + _MARGIN_MS < message.leased_ms
