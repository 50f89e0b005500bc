"""Dead letters: looking at them, replaying them to where they came from, deleting them.

They are a heap of their own, so a replay is a move like the one that brought them here: nothing is lost if it ends half-way.
"""

import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from heapq import merge
from itertools import islice, takewhile
from typing import Final, NamedTuple

from holdfast.heap.local_heaps import DLQ_SUFFIX
from holdfast.heap.message_id import parse_message_id
from holdfast.heap.model import PeekedMessage
from holdfast.heap.partition import HeapPartition
from holdfast.heap.records import Move
from holdfast.heap.waiting_pops import POP_BYTES_MAX
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.settings import check_between
from holdfast.vocabulary.tasks import LoopTurns

_TOGETHER: Final = 100  # looked at in one turn of the event loop
REPLAYED: Final = "replayed"
RATE_MIN: Final = 0.001
RATE_MAX: Final = 1_000_000

Partitions = Callable[[str, int | None], Awaitable[Sequence[HeapPartition]]]
"""The partitions of a heap that are led here, or one of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterFilter:
    """Which dead letters: all that match everything that is given. Offsets are those of one partition of dead letters."""

    message_ids: frozenset[str] | None = None
    reason_contains: str = ""
    attempts_min: int = 0
    moved_before_ms: int | None = None
    limit: int | None = None
    from_offset: int = 0
    before_offset: int | None = None

    def matches(self, letter: PeekedMessage) -> bool:
        """Whether a dead letter is one of them."""
        origin = letter.origin
        return (
            origin is not None
            and (self.message_ids is None or letter.message_id in self.message_ids)
            and self.reason_contains in origin.reason
            and origin.attempts >= self.attempts_min
            and (self.moved_before_ms is None or letter.enqueued_ms < self.moved_before_ms)
        )


class DeadLetterReport(NamedTuple):
    """What a replay or a deletion did, or would do."""

    matched: int
    changed: int


class DeadLetterProgress(NamedTuple):
    """The same of a partition of dead letters, of several the last one's end: all below `end_offset` were looked at."""

    matched: int
    changed: int
    end_offset: int


class DeadLetters:
    """The dead letters of heaps, by the names of those heaps."""

    def __init__(
        self, partitions: Partitions, *, clock: Clock, turns: LoopTurns, bytes_max: int = POP_BYTES_MAX
    ) -> None:
        self._partitions, self._clock, self._turns, self._bytes_max = partitions, clock, turns, bytes_max

    async def list(
        self, topic: str, chosen: DeadLetterFilter | None = None, *, limit: int = 100, partition: int | None = None
    ) -> list[PeekedMessage]:
        """Dead letters that match, those that are leased left out, oldest first: some, if all would be too large."""
        check_between("limit", limit, 1, 10_000)
        found: list[PeekedMessage] = []
        left = self._bytes_max
        for view in await self._partitions(topic + DLQ_SUFFIX, partition):
            async for letters, _ in self._pages(view, chosen or DeadLetterFilter(), limit - len(found), bytes_max=left):
                for letter in letters:
                    left -= len(letter.payload)
                    if left < 0 and found:
                        return found
                    found.append(letter)
        return found

    async def replay(
        self,
        topic: str,
        chosen: DeadLetterFilter | None = None,
        *,
        dry_run: bool = False,
        rate_per_s: float | None = None,
        partition: int | None = None,
    ) -> DeadLetterProgress:
        """Send dead letters back to where they came from, with their attempts forgotten. `rate_per_s`: at most so many a second."""
        if rate_per_s is not None:
            check_between("rate_per_s", rate_per_s, RATE_MIN, RATE_MAX)
        matched = changed = end = 0
        chosen = chosen or DeadLetterFilter()
        for view in await self._partitions(topic + DLQ_SUFFIX, partition):
            limit = None if chosen.limit is None else chosen.limit - matched
            async for letters, end in self._pages(view, chosen, limit, at_once=1 if rate_per_s else _TOGETHER):  # noqa: B007
                matched += len(letters)
                if dry_run:
                    continue
                moves = [move for letter in letters if (move := _back(view, letter)) is not None]
                changed += await view.move(moves, unleased=True)
                if rate_per_s is not None:
                    await self._clock.sleep_ms(1_000 * len(letters) / rate_per_s)
        return DeadLetterProgress(matched, changed, end)

    async def delete(
        self, topic: str, chosen: DeadLetterFilter, *, dry_run: bool = False, partition: int | None = None
    ) -> DeadLetterProgress:
        """Delete dead letters that match."""
        matched = changed = end = 0
        for view in await self._partitions(topic + DLQ_SUFFIX, partition):
            limit = None if chosen.limit is None else chosen.limit - matched
            async for letters, end in self._pages(view, chosen, limit):  # noqa: B007
                matched += len(letters)
                if not dry_run:
                    changed += len(await view.cancel([_offset(view, letter) for letter in letters], unleased=True))
        return DeadLetterProgress(matched, changed, end)

    async def _pages(
        self,
        view: HeapPartition,
        chosen: DeadLetterFilter,
        limit: int | None,
        *,
        at_once: int = _TOGETHER,
        bytes_max: int = POP_BYTES_MAX,
    ) -> AsyncIterator[tuple[Sequence[PeekedMessage], int]]:
        """The letters that match, of those that are here now, a few at a time, and no more bytes than may be in memory
        together; and below which offset all were looked at."""
        left = sys.maxsize if limit is None else limit
        at, before = chosen.from_offset, view.state.next_offset
        if chosen.before_offset is not None:
            before = min(before, chosen.before_offset)
        while left > 0:
            if at > chosen.from_offset:
                await self._turns.next()
            waiting = [*islice(_waiting(view, chosen, at, before), _TOGETHER)]
            if not waiting:
                yield [], before
                return
            few, seen = await view.find_first(waiting, bytes_max)
            at = waiting[seen - 1] + 1
            letters = [letter for letter in few if chosen.matches(letter)]
            if len(letters) > left:
                letters = letters[:left]
                at = _offset(view, letters[-1]) + 1
            left -= len(letters)
            for first in range(0, len(letters), at_once):
                yield letters[first : first + at_once], at


def _waiting(view: HeapPartition, chosen: DeadLetterFilter, at: int, before: int) -> Iterator[int]:
    """The offsets from `at` on of letters that wait, or of those that are named, in order."""
    if chosen.message_ids is not None:
        return (offset for offset in _named(view, chosen.message_ids) if at <= offset < before)
    both = merge(view.state.ready.from_offset(at), view.state.delayed.from_offset(at))
    return takewhile(lambda offset: offset < before, both)


def _named(view: HeapPartition, message_ids: frozenset[str]) -> list[int]:
    """Where messages of a partition are, in order."""
    topic_id, offsets = bytes.fromhex(view.log.partition_id.topic_id), list[int]()
    for each in message_ids:
        with suppress(InvalidError):  # there is none
            place = parse_message_id(topic_id, each)
            if place.partition == view.number:
                offsets.append(place.offset)
    return sorted(offsets)


def _back(view: HeapPartition, letter: PeekedMessage) -> Move | None:
    if letter.origin is None:
        return None
    origin = letter.origin
    return Move(_offset(view, letter), letter.priority, origin.topic, origin.partition, 0, REPLAYED)


def _offset(view: HeapPartition, letter: PeekedMessage) -> int:
    return parse_message_id(bytes.fromhex(view.log.partition_id.topic_id), letter.message_id).offset
