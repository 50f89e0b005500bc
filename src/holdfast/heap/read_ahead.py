"""Messages that are popped next, read from the log together before anybody asks.

Priorities scatter what comes next over the whole log, and a batch that is read for one message costs as much as one that is read
for ten. So the next thousands are found in the index at once, and their batches are read in the order of the log. Where that would
read most of the log for a small part of it, all that is read goes into a file, in the order of pops (`payload_spill`).

The one rule: what is kept here is within a budget of bytes that all partitions of a process share. It is a copy: what is not here
is read by those who need it.
"""

import asyncio
import logging
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, Protocol

from holdfast.heap.backlog_copier import PART, BacklogCopier
from holdfast.heap.model import StoredMessage
from holdfast.heap.payload_spill import WORTH_BYTES, SpillSpace
from holdfast.heap.picks import (
    BUCKET_BITS,
    BUCKETS_MAX,
    Wanted,
    picked_messages,
    sorted_words,
    stored_bytes,
    taken_out,
    words_of,
)
from holdfast.heap.spilled_messages import SpillableMessages, SpilledMessages
from holdfast.log.batches import parse_header, pick_records
from holdfast.log.owned_partition import OwnedPartition
from holdfast.vocabulary.errors import HoldfastError
from holdfast.vocabulary.settings import MIB
from holdfast.vocabulary.tasks import LoopTurns

_log: Final = logging.getLogger(__name__)

_FIRST: Final = 4_096  # messages of the first round; each one after it has four times as many, up to the budget
_GROWTH: Final = 4
_ROUND_MAX: Final = 131_072
_FARTHER: Final = (
    4  # messages that are kept of those that others have no room for, for one of a round: it is not the last
)
_SPILLED_ROUND: Final = 32_768  # of a round that reads from a file: what is in memory is used soon
_TURN: Final = 2_048  # messages that are looked at in one turn of the loop
_LOW: Final = 2  # a round begins when half of the last one is left: it has to be read before the rest is gone
_ENTRY_BYTES: Final = 380  # of Python's objects around a payload
_MESSAGE_BYTES: Final = 1_024  # what a message is taken for before one was read
_READ_BYTES: Final = MIB
_DENSE: Final = 4  # messages in as many bytes that make reading all of them worth it
_SCATTERED: Final = 3  # records read for one that is needed
_MANY: Final = 2  # messages of a round for one of them that is missing
_SPILLED_MIN: Final = 16_384  # messages that are worth a file
_SAMPLED: Final = 8  # messages that say how large they are
_BUCKET: Final = 8_192  # messages
_BUCKETS: Final = 4  # that the budget has room for
_MISSED: Final = 64  # a part of what is here
_RETRY_S: Final = 60  # after a file could not be written
_STALLED_S: Final = 1  # a round that does nothing for so long is not waited for
_BUCKET_MIN: Final = 256  # messages: files of parts of a backlog are read together
_PART_BYTES: Final = 64 * MIB  # of a backlog that are copied at once before anybody pops them


class ReadyMessages(Protocol):
    """The offsets of those that can be popped."""

    def __len__(self) -> int: ...
    def __contains__(self, offset: int, /) -> bool: ...


class UpcomingMessages(SpillableMessages, Protocol):
    """What is known of the messages of a partition: `partition_state.HeapState`. `copies`: where those are that were copied."""

    copies: dict[int, int]

    @property
    def ready(self) -> ReadyMessages: ...
    @property
    def leases(self) -> Mapping[int, object]: ...
    def __contains__(self, offset: int) -> bool: ...
    @property
    def least_first(self) -> bool: ...
    def place(self, offset: int) -> int: ...
    def priority(self, rank: int) -> int: ...
    def best_bound(self, count: int) -> tuple[int, int] | None: ...
    def best_offsets(self, count: int) -> Iterator[list[int]]: ...


class AheadBudget:
    """The bytes that all partitions of a process may keep in memory, and in files."""

    def __init__(self, bytes_max: int, spill: SpillSpace | None = None) -> None:
        self.bytes_max, self.bytes = bytes_max, 0
        self.spill = spill if spill is not None else SpillSpace()


class PayloadReadAhead:
    """What is read ahead of one leadership of a partition. `kept`: what is in memory elsewhere."""

    def __init__(
        self,
        log: OwnedPartition,
        budget: AheadBudget,
        upcoming: UpcomingMessages,
        *,
        kept: Callable[[], Mapping[int, object]],
    ) -> None:
        self._log, self._budget, self._upcoming, self._kept = log, budget, upcoming, kept
        self._messages: dict[int, StoredMessage] = {}  # by offset
        self._mine_bytes = 0
        self._round_count, self._coming_count = _FIRST, 0  # messages of the next round, and of the last one
        self._handed_out = 0  # messages, since the last one began
        self._awaited: set[int] = set()  # by pops, which have leased them
        self._bound: tuple[int, int] | None = (
            None  # the rank and offset of what comes in some rounds, as the last one found it
        )
        self._inherited = 0  # the same
        self._missed = 0  # messages that were asked for and not here, since the last round
        self._each_bytes = _MESSAGE_BYTES  # of a message, as the last round found them
        self._record_bytes = 0  # the same in the log; 0: none was read yet
        self._records_per_read = 0
        self._round: asyncio.Task[None] | None = None
        self._steps = 0  # of all rounds
        self._spilled = SpilledMessages(log, budget.spill, upcoming, went_on=self._went_on)
        self._spill_after_s = 0.0  # on the loop's clock
        self._unused: asyncio.TimerHandle | None = None
        self._is_unused = True  # since that timer was set
        self._copier = BacklogCopier(log, budget.spill, self._spilled)
        self._closed = False

    def __len__(self) -> int:
        return len(self._messages)

    def __contains__(self, offset: int) -> bool:
        return offset in self._messages

    def look_up(self, offsets: Iterable[int]) -> Iterable[StoredMessage | None]:
        """The message of each offset, if it is here."""
        return map(self._messages.get, offsets)

    def inherit(self, offsets: Iterable[int], messages: Mapping[int, StoredMessage]) -> None:
        """Keep those of these that come next, for there is no room elsewhere; until another round no more than one finds."""
        if self._bound is None or self._inherited >= self._coming_count or self._is_crowded:
            return
        sign = 1 if self._upcoming.least_first else -1
        last, ready = sign * self._upcoming.priority(self._bound[0]), self._upcoming.ready
        found = {
            offset: message
            for offset in offsets
            if (message := messages.get(offset)) is not None
            and ((number := sign * message[0][0]) < last or (number == last and offset <= self._bound[1]))
            and offset in ready
        }
        if found:
            self._inherited += len(found)
            self._keep(found)

    def forget(self, offsets: Iterable[int]) -> None:
        """Messages are gone."""
        if self._messages:
            self._charge(-_size(taken_out(self._messages, offsets)))
        if self._spilled and not len(self._upcoming.ready):
            self._close_files()  # nobody may pop here again, and others need the space

    def forget_all(self) -> None:
        """All messages are gone, and so is what a round reads just now."""
        if self._round is not None:
            self._round.cancel()
        self._messages.clear()
        self._charge(-self._mine_bytes)
        self._close_files()

    def close(self) -> None:
        """This leadership has ended."""
        self._closed = True
        self.forget_all()

    def begin(self) -> "asyncio.Task[None] | None":
        """Begin a round, unless one is under way; the one that is. None: there is no room."""
        if self._round is None and not self._closed and self._room() > 0:
            self._missed, self._copier.is_unused = 0, False
            self._used()
            self._round = asyncio.ensure_future(self._read_next())
            self._round.add_done_callback(self._ended)
        return self._round

    def handed_out(self, count: int) -> None:
        """So many are popped, wherever they are read from."""
        self._handed_out += count
        self._is_unused = False
        if self.is_low:
            self.begin()

    def missed(self, count: int) -> bool:
        """So many are needed and not here; whether a round may bring them. A few may be new, and are no reason for one."""
        self._missed += count
        if self._missed > len(self._messages) // _MISSED:
            self.begin()
        return self._round is not None

    async def wait(self, offsets: Collection[int], timeout_s: float) -> bool:
        """Wait for the round that is under way, as long as it goes on; whether it ended. It reads these, too, and may fail."""
        if self._round is None:
            return True
        self._awaited.update(offsets)
        now_s = asyncio.get_running_loop().time
        until_s = now_s() + timeout_s
        try:
            while True:
                steps = self._steps
                ended, _ = await asyncio.wait({self._round}, timeout=min(_STALLED_S, until_s - now_s()))
                if ended or steps == self._steps or now_s() >= until_s:
                    return bool(ended)
        finally:
            self._awaited.difference_update(offsets)

    @property
    def is_low(self) -> bool:
        """Whether most of what the last round found must be used up; where all was elsewhere in memory, another one is no use."""
        return 0 < self._coming_count // _LOW < self._handed_out

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._round = None
        self._close_later()
        if not task.cancelled() and (error := task.exception()) is not None:
            details = None if isinstance(error, HoldfastError) else error
            _log.warning("messages of %s are not read ahead: %s", self._log.partition_id, error, exc_info=details)

    def _went_on(self) -> None:
        self._steps += 1

    def _room(self) -> int:
        return self._budget.bytes_max - (self._budget.bytes - self._mine_bytes)

    async def _read_next(self) -> None:
        """One round: keep what comes next, drop what does not if there is no room for it, read what is missing."""
        most = self._room() * 3 // 4 // self._each_bytes  # the rest is for what comes with them
        if most <= 0:  # others have taken it since
            return
        count = min(self._round_count, most, _SPILLED_ROUND if self._spilled else _ROUND_MAX)
        self._bound, self._inherited = self._upcoming.best_bound(_FARTHER * count), 0
        best = await self._coming(count)
        self._coming_count, self._handed_out = len(best), 0
        needed = self._awaited.union(best)
        best = list(needed)  # some were found twice
        if self._mine_bytes + count * self._each_bytes > self._room() * 3 // 4:  # otherwise what comes later may stay
            await self._drop_all_but(needed)
        else:
            await self._drop_what_is_gone()
        missing = await self._missing(best)
        words = await self._words(missing)
        if not self._spilled and self._is_scattered(words, len(best)):
            await self._copier.ended()
        if self._spilled and missing:
            await self._read_spilled(words)
            missing = await self._missing(missing)
            words = await self._words(missing)
        if await self._spill_more(words, len(best)):
            await self._read_spilled(words)
            words = await self._words(await self._missing(missing))
        self._round_count *= _GROWTH if self._round_count < most else 1
        await self._read(words)
        if self._messages:
            self._each_bytes = max(_ENTRY_BYTES, self._mine_bytes // len(self._messages))
        else:
            self._coming_count = 0

    def _is_scattered(self, words: bytes, best: int) -> bool:
        """Whether many of the best are missing, and reading them would read several times as much."""
        numbers = memoryview(words).cast("Q")
        count = len(numbers)
        return _MANY * count > best and numbers[-1] - numbers[0] >> BUCKET_BITS > _SCATTERED * count

    async def _coming(self, count: int) -> list[int]:
        turns, found = LoopTurns(), list[int]()
        for some in self._upcoming.best_offsets(count):
            found += some
            await turns.next()
        return found

    async def _drop_all_but(self, coming: AbstractSet[int]) -> None:
        turns, here = LoopTurns(), list(self._messages)
        for first in range(0, len(here), _TURN):
            self.forget(set(here[first : first + _TURN]).difference(coming).difference(self._upcoming.leases))
            await turns.next()

    async def _drop_what_is_gone(self) -> None:
        """Whoever took messages out may not have said so."""
        turns, here = LoopTurns(), list(self._messages)
        known = Wanted(self._upcoming.ready, self._upcoming.leases, ())
        for first in range(0, len(here), _TURN):
            some = here[first : first + _TURN]
            self.forget(set(some).difference(known.of(some)))
            await turns.next()

    async def _missing(self, best: Sequence[int]) -> list[int]:
        """Those that are not in memory. Others may have been delivered meanwhile."""
        turns, found = LoopTurns(), list[int]()
        wanted = self._wanted()._replace(needed=self._awaited)
        for first in range(0, len(best), _TURN):
            found += wanted.of(best[first : first + _TURN])
            await turns.next()
        return found

    def _wanted(self) -> Wanted:
        """What can be popped now, or was and may be waited for, and is not in memory."""
        return Wanted(self._upcoming.ready, self._upcoming.leases, (self._messages, self._kept()))

    async def _words(self, offsets: Sequence[int]) -> bytes:
        """The words of those that are durable, in the order of the log."""
        turns, found, durable = LoopTurns(), list[bytes](), self._log.high_watermark
        for first in range(0, len(offsets), _TURN):
            some = offsets[first : first + _TURN]
            places = map(self._upcoming.place, some) if self._upcoming.copies else some
            found.append(words_of([place for place in places if place < durable]))
            await turns.next()
        return await _sorted(found)

    async def _read(self, words: bytes) -> None:
        """Read from the log what words say."""
        turns, at, found_bytes, wanted = LoopTurns(), 0, 0, self._wanted()
        numbers = memoryview(words).cast("Q")
        while at < len(numbers) and not self._closed and not self._is_full:
            fetched = await self._log.read(numbers[at] >> BUCKET_BITS, bytes_max=self._worth(numbers, at))
            begun = at
            for batch in fetched.batches:
                picked = bytearray()
                at = pick_records(batch, words, at, [picked])
                self._keep(picked_messages(picked, wanted))
                found_bytes += len(picked)
                self._went_on()
                await turns.next()
                if self._is_full:  # a batch may be much larger than it was in the log
                    break
            if fetched.batches:
                first = parse_header(fetched.batches[0]).base_offset
                read = parse_header(fetched.batches[-1]).last_offset + 1 - first
                self._records_per_read = max(1, read * _READ_BYTES // max(1, fetched.size_bytes))
            at = max(at, begun + 1)  # a record that is not there is the business of those who need it
        if found_bytes:
            self._record_bytes = found_bytes // at + 1

    def _worth(self, words: memoryview, at: int) -> int:
        """How many bytes to read at a place: many where many are needed."""
        near = bisect_left(words, words[at] + (self._records_per_read << BUCKET_BITS), at) - at
        return _READ_BYTES if near >= _DENSE else 1

    @property
    def _is_crowded(self) -> bool:
        return self._budget.bytes > self._budget.bytes_max * 3 // 4

    @property
    def _is_full(self) -> bool:
        return self._budget.bytes >= self._budget.bytes_max

    def _keep(self, found: dict[int, StoredMessage]) -> None:
        self.forget(self._messages.keys() & found.keys())
        self._messages.update(found)
        self._charge(_size(found.values()))

    def _charge(self, change_bytes: int) -> None:
        self._mine_bytes += change_bytes
        self._budget.bytes += change_bytes

    # ── in a file ──

    async def prepare(self) -> int:
        """Copy a part of a backlog that is larger than memory into a file, before it is popped; how many bytes that were.

        0: there is none, it has its files, or is not worth any. Those who know how long to wait call it again and again.
        """
        messages = len(self._upcoming.ready)
        if messages * self._each_bytes <= self._budget.bytes_max:
            self._copier.reset()
            return 0
        if self._closed or self._round is not None or not self._copier.is_due(messages):
            return 0
        copied_bytes = await self._copier.copy(self._copy_part, messages)
        self._close_later()
        return copied_bytes

    async def _copy_part(self) -> None:
        try:
            if not self._spilled:
                best = await self._coming(_FIRST)
                words = await self._words(best)
                if not words or not self._is_scattered(words, len(best)):
                    return
                await self._sample(words)
            if (count := self._spillable(0)) > 0:
                records = max(1, min(PART, _PART_BYTES // (self._record_bytes or _MESSAGE_BYTES)))
                await self._spilled.catch_up(count, self._buckets(count), records)
        except (OSError, HoldfastError) as error:
            self._give_up_spill(error)

    async def _read_spilled(self, words: bytes) -> None:
        """Read what is worth it from files: of a bucket all that can still be popped, for it comes soon."""
        turns, wanted = LoopTurns(), self._wanted()
        try:
            async for piece in self._spilled.read(words):
                if self._is_full:
                    return
                self._keep(picked_messages(piece, wanted))
                self._went_on()
                await turns.next()
        except (OSError, HoldfastError) as error:
            self._give_up_spill(error)

    async def _spill_more(self, words: bytes, best: int) -> bool:
        """Copy what comes in this round and those after it into a file, if it is much, or what came since the last file."""
        try:
            if self._is_scattered(words, best):
                await self._copier.ended()
                if self._spilled.are_newer(words):
                    if (count := self._spillable(0)) > 0:
                        await self._spilled.catch_up(count, self._buckets(count))
                else:
                    self._spilled.close()
                    await self._sample(words)
                    if (count := self._spillable(best)) > 0:
                        await self._spilled.begin(count, self._buckets(count))
            elif self._spilled.is_behind(words) and (count := self._spillable(0)) > 0:
                await self._copier.ended()
                await self._spilled.catch_up(count, self._buckets(count))
            else:
                return False
        except (OSError, HoldfastError) as error:
            self._give_up_spill(error)
        if not len(self._upcoming.ready):  # all were popped meanwhile
            self._spilled.close()
        return bool(self._spilled)

    async def _sample(self, words: bytes) -> None:
        """Find out how large records are."""
        if not self._record_bytes:
            numbers = memoryview(words).cast("Q")
            await self._read(numbers[:: max(1, len(numbers) // _SAMPLED)].tobytes())

    def _buckets(self, count: int) -> int:
        """How many buckets a file has that is of the next `count` messages."""
        return min(BUCKETS_MAX, max(-(-count // self._in_bucket()), count // _BUCKET_MIN))

    def _in_bucket(self) -> int:
        return max(1, min(_BUCKET, self._room() // self._each_bytes // _BUCKETS))

    def _spillable(self, best: int) -> int:
        """How many messages to copy into a file; 0: they are few or large, or there is no space, or it failed just now."""
        if asyncio.get_running_loop().time() < self._spill_after_s or self._record_bytes >= WORTH_BYTES:
            return 0
        count = min(
            len(self._upcoming.ready),
            (self._budget.spill.free_bytes() + self._spilled.size_bytes) // (self._record_bytes or _MESSAGE_BYTES),
            self._in_bucket() * BUCKETS_MAX,
        )
        return count if count >= max(_SPILLED_MIN, 2 * best) else 0

    def _used(self) -> None:
        if self._unused is not None:
            self._unused.cancel()
            self._unused = None

    def _close_later(self) -> None:
        """Give memory and files up after a time in which nobody pops."""
        if (self._spilled or self._messages) and self._unused is None and not self._closed:
            idle_s = self._budget.spill.idle_ms / 1000
            self._is_unused = True
            self._unused = asyncio.get_running_loop().call_later(idle_s, self._close_unused)

    def _close_unused(self) -> None:
        self._unused = None
        if not self._is_unused:
            self._close_later()
            return
        self._copier.is_unused = bool(self._spilled)
        self._bound, self._coming_count = None, 0
        self._messages.clear()
        self._charge(-self._mine_bytes)
        self._close_files()

    def _close_files(self) -> None:
        """Others need the space; a later round may make new ones."""
        if not self._messages:
            self._used()
        self._copier.stop()
        self._spilled.close()

    def _give_up_spill(self, error: Exception) -> None:
        if self._round is not None:
            self._copier.stop()
        self._spilled.close()
        self._spill_after_s = asyncio.get_running_loop().time() + _RETRY_S
        _log.warning("messages of %s are read from the log alone: %s", self._log.partition_id, error)


async def _sorted(words: Sequence[bytes]) -> bytes:
    """Many on a thread: that takes a while."""
    joined = b"".join(words)
    return sorted_words(joined) if len(words) <= 1 else await asyncio.to_thread(sorted_words, joined)


def _size(messages: Collection[StoredMessage]) -> int:
    return stored_bytes(messages, _ENTRY_BYTES)
