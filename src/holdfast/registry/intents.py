"""Intents: the range of a partition that was begun, recorded before its first effect.

The one rule: a range that was begun is finished as it is. An effect may have happened whose answer was lost; only the same range,
repeated, is recognized by the other side as the same. So an intent is never replaced, survives its owner, and is removed by the
commit that moves the checkpoint to its end. What its owner finds out before the first effect may be added to it, once.

An intent is a JSON object with `start` and `end` (exclusive); its other fields are up to its writer.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.types import OffsetRange

_INTENT_FORMAT: Final = "a JSON object with whole numbers 0 <= start < end"


def intent_offsets(intent: str | bytes) -> OffsetRange:
    """The offsets in an intent."""
    try:
        found = msgspec.json.decode(intent, type=OffsetRange)
    except msgspec.MsgspecError:
        raise _invalid_intent(intent) from None
    if not 0 <= found.start < found.end:
        raise _invalid_intent(intent)
    return found


def canonical_intent(intent: str | bytes) -> str:
    """The same intent in canonical form, so that equal intents are equal text."""
    intent_offsets(intent)
    return msgspec.json.encode(msgspec.json.decode(intent), order="sorted").decode()


def amended_intent(intent: str, fields: Mapping[str, Any]) -> str | None:
    """The intent with fields that it lacked or that were null; None: one of them has another value already."""
    stored = msgspec.json.decode(intent)
    added = msgspec.to_builtins(fields)
    if any(stored.get(name) not in (None, value) for name, value in added.items()):
        return None
    return canonical_intent(msgspec.json.encode({**stored, **added}))


def _invalid_intent(intent: str | bytes) -> InvalidError:
    return InvalidError("intent", intent[:200], _INTENT_FORMAT)
