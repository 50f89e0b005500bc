"""Ranges that somebody has begun to write elsewhere: until they are finished, retention and compaction leave their records alone.

Whoever begins a range records it in a registry first (`kernel.registry.intents`); an intent that names a `topic` is about offsets
of that topic, and may have to be read again, exactly as it was, by another process. The one rule: nothing at or above the lowest
begun start of a partition goes. What is seen here lags a little behind the store: a range begun a moment ago can still lose a
race with retention, and its reader then finds that the offsets are gone; it never reads something else in their place.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import msgspec

from holdfast.contracts.store import Entry, Store
from holdfast.kernel.mirror import Mirror, open_mirror
from holdfast.registry.keys import REGISTRIES
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.random import Random

_PARTITIONS: Final = "/partitions/"


class _PendingRange(msgspec.Struct, frozen=True):
    start: int
    topic: str = ""


class _IntentRecord(msgspec.Struct, frozen=True):
    intent: _PendingRange | None = None


class PendingRanges:
    """The begun ranges of a store, as far as they are known here; none before `following` has looked."""

    def __init__(self) -> None:
        self._mirror: Mirror[_PendingRange | None] | None = None
        self._version = -1
        self._lowest: dict[tuple[str, int], int] = {}

    @asynccontextmanager
    async def following(self, store: Store, *, clock: Clock, random: Random) -> AsyncIterator[None]:
        """Know them for the body."""
        async with open_mirror(store, REGISTRIES, _read, clock=clock, random=random) as mirror:
            self._mirror = mirror
            yield

    def lowest(self, topic: str, number: int) -> int | None:
        """The first offset of a partition that may have to be read again, if there is one."""
        mirror = self._mirror
        if mirror is None:
            return None
        if mirror.version != self._version:
            self._version, self._lowest = mirror.version, _lowest(mirror.items)
        return self._lowest.get((topic, number))


def _read(entry: Entry) -> _PendingRange | None:
    """What a record of a registry says of the log. One that cannot be read is its owner's to complain about."""
    if _PARTITIONS not in entry.key or b'"intent"' not in entry.value:
        return None
    try:
        return msgspec.json.decode(entry.value, type=_IntentRecord).intent
    except msgspec.MsgspecError:
        return None


def _lowest(items: dict[str, _PendingRange | None]) -> dict[tuple[str, int], int]:
    found: dict[tuple[str, int], int] = {}
    for key, begun in items.items():
        digits = key.rpartition("/")[2]
        if begun is None or not begun.topic or not digits.isdecimal():
            continue
        partition_id = begun.topic, int(digits)
        found[partition_id] = min(begun.start, found.get(partition_id, begun.start))
    return found
