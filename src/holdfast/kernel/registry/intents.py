"""Intents: the range of a partition that somebody has begun, recorded before its first effect.

The one rule: a range that was begun is finished as it is. An effect may have happened whose answer nobody heard; only the same
range, done again, is known to the other side as the same. So an intent is never replaced, survives its owner, and goes with
the commit that moves the checkpoint to its end.

An intent is a JSON object with `start` and `end` (exclusive); whatever else is in it is its writer's.
"""

from typing import Final

import msgspec

from holdfast.vocabulary.errors import InvalidError

_ALLOWED: Final = "a JSON object with whole numbers 0 <= start < end"


class Span(msgspec.Struct, frozen=True):
    """The offsets of a range: `start` is the first, `end` is behind the last."""

    start: int
    end: int


def span(intent: str | bytes) -> Span:
    """The offsets an intent speaks of."""
    try:
        found = msgspec.json.decode(intent, type=Span)
    except msgspec.MsgspecError:
        raise _wrong(intent) from None
    if not 0 <= found.start < found.end:
        raise _wrong(intent)
    return found


def canonical(intent: str | bytes) -> str:
    """The same intent, always in the same words: no engine's spacing makes two of one."""
    span(intent)
    return msgspec.json.encode(msgspec.json.decode(intent), order="sorted").decode()


def _wrong(intent: str | bytes) -> InvalidError:
    return InvalidError("intent", intent[:200], _ALLOWED)
