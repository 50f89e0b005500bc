"""Dead letters: looking at them, replaying them to where they came from, deleting them.

They are a heap of their own, so a replay is a move like the one that brought them here: nothing is lost if it ends half-way.
"""

import sys
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
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
from holdfast.log.errors import NotEnoughReplicasError, NotLeaderError
from holdfast.log.topics import UnknownTopicError
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import InvalidError, OutcomeUnknownError, UnavailableError
from holdfast.vocabulary.settings import check_between
from holdfast.vocabulary.tasks import LoopTurns

_TOGETHER: Final = 100  # looked at in one turn of the event loop
_IDS_TOGETHER: Final = 500  # parsed in one turn of it: 3 ms
REPLAYED: Final = "replayed"
WITHOUT_EFFECT: Final = (NotLeaderError, UnavailableError)
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
    topic_id: str = ""  # of the heap that they are in now, if another one of its name will not do

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
    """The same of a partition of dead letters, of several the last one's end: all below `end_offset` were looked at.

    It may end before the last one that matches, where something has failed without an effect: whoever asked goes on from there.
    """

    matched: int
    changed: int
    end_offset: int


class NamedLetters(NamedTuple):
    """Message ids of one partition, each once, in the order of their `offsets`."""

    offsets: list[int]
    ids: list[str]

    def some(self, from_offset: int, before_offset: int, count: int) -> tuple[list[str], int]:
        """The first `count` ids from an offset on, or all of the first one's offset; before which offset there are no others."""
        first, last = bisect_left(self.offsets, from_offset), bisect_left(self.offsets, before_offset)
        end = min(first + count, last)
        if end == last:
            return self.ids[first:end], before_offset
        # Ids with a wrong time may share an offset: all of them are asked for together, so that each step gets further.
        end = max(bisect_left(self.offsets, self.offsets[end]), bisect_right(self.offsets, self.offsets[first]))
        return self.ids[first:end], before_offset if end == last else self.offsets[end]


async def named_letters(topic_id: str, message_ids: Collection[str], turns: LoopTurns) -> dict[int, NamedLetters]:
    """Where messages of a heap are, by their partitions; each id is parsed once, few of them in a turn of the event loop."""
    heap, given = bytes.fromhex(topic_id), iter(message_ids)
    runs: dict[int, list[list[tuple[int, str]]]] = defaultdict(list)
    while some := [*islice(given, _IDS_TOGETHER)]:
        places: dict[int, list[tuple[int, str]]] = defaultdict(list)
        for each in some:
            with suppress(InvalidError):  # there is none
                place = parse_message_id(heap, each)
                places[place.partition].append((place.offset, each))
        for number, found in places.items():
            runs[number].append(sorted(found))
        if len(some) == _IDS_TOGETHER:
            await turns.next()
    named: dict[int, NamedLetters] = {}
    for number, several in runs.items():
        offsets, ids = named[number] = NamedLetters([], [])
        for at, (offset, each) in enumerate(merge(*several)):
            if not ids or ids[-1] != each:
                offsets.append(offset)
                ids.append(each)
            if at % _IDS_TOGETHER == _IDS_TOGETHER - 1:
                await turns.next()
    return named


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
        chosen = chosen or DeadLetterFilter()
        for view in await self._views(topic, chosen, partition):
            async for letters, _ in self._pages(view, chosen, limit - len(found), bytes_max=left):
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
        """Send dead letters back to where they came from, with their attempts forgotten. `rate_per_s`: at most so many a second.

        After the first effect no failure without an effect is raised: the progress ends where it was. `OutcomeUnknownError`.
        """
        if rate_per_s is not None:
            check_between("rate_per_s", rate_per_s, RATE_MIN, RATE_MAX)

        async def move(view: HeapPartition, letters: Sequence[PeekedMessage]) -> int:
            moves = [move for letter in letters if (move := _back(view, letter)) is not None]
            return await view.move(moves, unleased=True)

        chosen = chosen or DeadLetterFilter()
        return await self._change(topic, chosen, partition, None if dry_run else move, rate_per_s)

    async def delete(
        self, topic: str, chosen: DeadLetterFilter, *, dry_run: bool = False, partition: int | None = None
    ) -> DeadLetterProgress:
        """Delete dead letters that match. Failures: as of `replay`."""

        async def cancel(view: HeapPartition, letters: Sequence[PeekedMessage]) -> int:
            return len(await view.cancel([_offset(view, letter) for letter in letters], unleased=True))

        return await self._change(topic, chosen, partition, None if dry_run else cancel)

    async def _change(
        self,
        topic: str,
        chosen: DeadLetterFilter,
        partition: int | None,
        change: Callable[[HeapPartition, Sequence[PeekedMessage]], Awaitable[int]] | None,
        rate_per_s: float | None = None,
    ) -> DeadLetterProgress:
        """`change`: does it to a few, and says how many were still here; None: a dry run."""
        matched = changed = 0
        end = chosen.from_offset
        at_once = 1 if rate_per_s else _TOGETHER
        try:
            for view in await self._views(topic, chosen, partition):
                limit = None if chosen.limit is None else chosen.limit - matched
                async for letters, at in self._pages(view, chosen, limit, at_once=at_once):
                    if letters and change is not None:
                        changed += await change(view, letters)
                    matched, end = matched + len(letters), at
                    if rate_per_s is not None and change is not None:
                        await self._clock.sleep_ms(1_000 * len(letters) / rate_per_s)
        except WITHOUT_EFFECT:
            if not changed:
                raise  # the same again does no more than was asked for
        except (OutcomeUnknownError, NotEnoughReplicasError) as error:
            if not changed:
                raise
            raise letters_unknown(topic, changed, error) from error
        return DeadLetterProgress(matched, changed, end)

    async def _views(self, topic: str, chosen: DeadLetterFilter, partition: int | None) -> Sequence[HeapPartition]:
        """The partitions. `UnknownTopicError`: they are those of another heap than was chosen."""
        views = await self._partitions(topic + DLQ_SUFFIX, partition)
        if chosen.topic_id and any(view.log.partition_id.topic_id != chosen.topic_id for view in views):
            raise UnknownTopicError(topic + DLQ_SUFFIX)
        return views

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
        named: Sequence[int] | None = None
        if chosen.message_ids is not None:
            places = await named_letters(view.log.partition_id.topic_id, chosen.message_ids, self._turns)
            named = [*dict.fromkeys(places[view.number].offsets)] if view.number in places else ()
        while left > 0:
            if at > chosen.from_offset:
                await self._turns.next()
            waiting = [*islice(_waiting(view, named, at, before), _TOGETHER)]
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
                few = letters[first : first + at_once]
                yield few, at if first + at_once >= len(letters) else _offset(view, few[-1]) + 1


def _waiting(view: HeapPartition, named: Sequence[int] | None, at: int, before: int) -> Iterator[int]:
    """The offsets from `at` on of letters that wait, or of those that are named, in order."""
    if named is not None:
        return (named[each] for each in range(bisect_left(named, at), bisect_left(named, before)))
    both = merge(view.state.ready.from_offset(at), view.state.delayed.from_offset(at))
    return takewhile(lambda offset: offset < before, both)


def letters_unknown(topic: str, changed: int, error: Exception) -> OutcomeUnknownError:
    """A failure after some dead letters were changed."""
    return OutcomeUnknownError(f"dead letters of {topic}", f"after {changed} were changed: {error}")


def _back(view: HeapPartition, letter: PeekedMessage) -> Move | None:
    if letter.origin is None:
        return None
    origin = letter.origin
    return Move(_offset(view, letter), letter.priority, origin.topic, origin.partition, 0, REPLAYED)


def _offset(view: HeapPartition, letter: PeekedMessage) -> int:
    return parse_message_id(bytes.fromhex(view.log.partition_id.topic_id), letter.message_id).offset
