"""Messages that are popped next, read from the log together before anybody asks.

Priorities scatter what comes next over the whole log, and a batch that is read for one message costs as much as one that is read
for ten. So the next thousands are found in the index at once, and their batches are read in the order of the log. Where that reads
most of the log for a small part of it, what comes after them goes into a file meanwhile, in the order of pops (`payload_spill`).

The one rule: what is kept here is within a budget of bytes that all partitions of a process share. It is a copy: what is not here
is read by those who need it.
"""

import asyncio
import logging
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, Protocol

from holdfast.heap.model import StoredMessage
from holdfast.heap.payload_spill import PayloadSpill, SpillSpace
from holdfast.heap.picks import BUCKET_BITS, BUCKETS_MAX, WORD_BYTES, picked_messages, sorted_words, words_of
from holdfast.log.batches import parse_header, pick_records
from holdfast.log.owned_partition import OwnedPartition
from holdfast.vocabulary.errors import HoldfastError
from holdfast.vocabulary.settings import MIB
from holdfast.vocabulary.tasks import LoopTurns

_log: Final = logging.getLogger(__name__)

_FIRST: Final = 4_096  # messages of the first round; each one after it has four times as many, up to the budget
_GROWTH: Final = 4
_ROUND_MAX: Final = 131_072
_TURN: Final = 2_048  # messages that are looked at in one turn of the loop
_LOW: Final = 2  # a round begins when half of the last one is left: it has to be read before the rest is gone
_ENTRY_BYTES: Final = 380  # of Python's objects around a payload
_PRODUCER_BYTES: Final = 170
_HEADER_BYTES: Final = 200
_TEXT_BYTES: Final = 60
_MESSAGE_BYTES: Final = 1_024  # what a message is taken for before one was read
_READ_BYTES: Final = MIB
_DENSE: Final = 4  # messages in as many bytes that make reading all of them worth it
_SCATTERED: Final = 3  # bytes read for one of a message
_WORTH: Final = 4  # messages of a round for one of them that was scattered
_SPILLED_MIN: Final = 16_384  # messages that are worth a file
_BUCKET: Final = 8_192  # messages
_BUCKETS: Final = 4  # that the budget has room for
_MISSED: Final = 64  # a part of what is here
_RETRY_S: Final = 60  # after a file could not be written


class UpcomingMessages(Protocol):
    """What is known of the messages of a partition: `partition_state.HeapState`. `copies`: where those are that were copied."""

    copies: dict[int, int]

    @property
    def leases(self) -> Mapping[int, object]: ...
    def __contains__(self, offset: int) -> bool: ...
    def place(self, offset: int) -> int: ...
    def ready_count(self) -> int: ...
    def best_offsets(self, count: int) -> Iterator[list[int]]: ...
    def best_words(self, count: int, buckets: int) -> Iterator[bytes]: ...


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
        self._wanted, self._found = _FIRST, 0  # messages of the next round, and of the last one
        self._missed = 0  # messages that were asked for and not here, since the last round
        self._each_bytes = _MESSAGE_BYTES  # of a message, as the last round found them
        self._record_bytes = _MESSAGE_BYTES  # the same in the log
        self._records_per_read = 0
        self._round: asyncio.Task[bool] | None = None
        self._spilling: asyncio.Task[None] | None = None
        self._spill: PayloadSpill | None = None
        self._spill_after_s = 0.0  # on the loop's clock
        self._closed = False

    def __len__(self) -> int:
        return len(self._messages)

    def __contains__(self, offset: int) -> bool:
        return offset in self._messages

    def get(self, offset: int) -> StoredMessage | None:
        """The message of an offset, if it is here."""
        return self._messages.get(offset)

    def forget(self, offsets: Iterable[int]) -> None:
        """Messages are gone."""
        if self._messages:
            pop = self._messages.pop
            self._charge(-_size([message for offset in offsets if (message := pop(offset, None)) is not None]))

    def forget_all(self) -> None:
        """All messages are gone. What a round reads just now goes with the next one."""
        self._messages.clear()
        self._charge(-self._mine_bytes)
        self._drop_spill()

    def close(self) -> None:
        """This leadership has ended."""
        self._closed = True
        for task in (self._round, self._spilling):
            if task is not None:
                task.cancel()
        self.forget_all()

    def begin(self, asked: Collection[int] = ()) -> "asyncio.Task[bool] | None":
        """Begin a round, unless one is under way; the one that is. `asked`: messages that it reads, too. None: not now."""
        if self._round is None and self._spilling is None and not self._closed and self._room() > 0:
            self._missed = 0
            self._round = asyncio.ensure_future(self._read_next(asked))
            self._round.add_done_callback(self._ended)
        return self._round

    def missed(self, offsets: Collection[int]) -> "asyncio.Task[bool] | None":
        """These are needed and not here: the round that may bring them, if any. A few may be new, and are no reason for one."""
        self._missed += len(offsets)
        if self.is_low or self._missed > len(self._messages) // _MISSED:
            self.begin(offsets)
        return self._round

    @property
    def is_low(self) -> bool:
        """Whether most of what the last round found is used up."""
        return len(self._messages) < self._found // _LOW

    def _ended(self, task: "asyncio.Task[bool]") -> None:
        self._round = None
        if not task.cancelled() and isinstance(error := task.exception(), HoldfastError):
            _log.warning("messages of %s are not read ahead: %s", self._log.partition_id, error)
        elif not task.cancelled() and error is None and task.result() and not self._closed:
            self._spilling = asyncio.ensure_future(self._spill_next())
            self._spilling.add_done_callback(self._spilled)

    def _spilled(self, task: "asyncio.Task[None]") -> None:
        self._spilling = None

    def _room(self) -> int:
        return self._budget.bytes_max - (self._budget.bytes - self._mine_bytes)

    async def _read_next(self, asked: Collection[int]) -> bool:
        """One round: keep what comes next, drop what does not, read what is missing. Whether that was scattered over the log."""
        most = self._room() * 3 // 4 // self._each_bytes  # the rest is for what comes with them
        best = await self._coming(min(self._wanted, most, _ROUND_MAX))
        best += asked
        await self._drop_all_but(set(best))
        words = await self._missing(best)
        missing = len(words)
        if self._spill is not None and words:
            await self._read_spilled(self._spill, words)
            words = await self._missing(best)
        self._wanted *= _GROWTH if self._wanted < most else 1
        read_bytes, found_bytes = await self._read(words)
        self._found = len(self._messages)
        if self._found:
            self._each_bytes = max(_ENTRY_BYTES, self._mine_bytes // self._found)
        count = len(words) // WORD_BYTES
        self._record_bytes = found_bytes // count if count else self._record_bytes
        return read_bytes > _SCATTERED * found_bytes and 2 * len(words) > missing and _WORTH * count > self._found

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

    async def _missing(self, best: list[int]) -> bytes:
        """The words of those that are not in memory, and durable."""
        turns, found, durable = LoopTurns(), list[bytes](), self._log.high_watermark
        for first in range(0, len(best), _TURN):
            others = set(best[first : first + _TURN]).difference(self._messages).difference(self._kept())
            places = map(self._upcoming.place, others) if self._upcoming.copies else others
            found.append(words_of([place for place in places if place < durable]))
            await turns.next()
        return await _sorted(found)

    async def _read(self, words: bytes) -> tuple[int, int]:
        """Read from the log what words say; the bytes that were read, and those of messages."""
        turns, at, read_bytes, found_bytes = LoopTurns(), 0, 0, 0
        numbers = memoryview(words).cast("Q")
        while at < len(numbers) and not self._closed:
            fetched = await self._log.read(numbers[at] >> BUCKET_BITS, bytes_max=self._worth(numbers, at))
            begun, picked = at, bytearray()
            for batch in fetched.batches:
                at = pick_records(batch, words, at, [picked])
            self._keep(picked_messages(picked))
            read_bytes, found_bytes = read_bytes + fetched.size_bytes, found_bytes + len(picked)
            if fetched.batches:
                first = parse_header(fetched.batches[0]).base_offset
                read = parse_header(fetched.batches[-1]).last_offset + 1 - first
                self._records_per_read = max(1, read * _READ_BYTES // max(1, fetched.size_bytes))
            at = max(at, begun + 1)  # a record that is not there is the business of those who need it
            await turns.next()
        return read_bytes, found_bytes

    def _worth(self, words: memoryview, at: int) -> int:
        """How many bytes to read at a place: many where many are needed."""
        near = bisect_left(words, words[at] + (self._records_per_read << BUCKET_BITS), at) - at
        return _READ_BYTES if near >= _DENSE else 1

    def _keep(self, found: dict[int, StoredMessage]) -> None:
        if self._budget.bytes < self._budget.bytes_max:
            self.forget(self._messages.keys() & found.keys())
            self._messages.update(found)
            self._charge(_size(found.values()))

    def _charge(self, change_bytes: int) -> None:
        self._mine_bytes += change_bytes
        self._budget.bytes += change_bytes

    # ── in a file ──

    async def _read_spilled(self, spill: PayloadSpill, words: bytes) -> None:
        """Read what is worth it from the file: all that still waits of a bucket, for it comes soon."""
        turns = LoopTurns()
        try:
            for bucket in spill.buckets(words):
                for piece in await spill.read(bucket):
                    found = picked_messages(piece)
                    here, kept, leases = self._messages, self._kept(), self._upcoming.leases
                    self._keep(
                        {
                            offset: message
                            for offset, message in found.items()
                            if offset not in here
                            and offset not in kept
                            and (offset in self._upcoming or offset in leases)
                        }
                    )
                    await turns.next()
        except (OSError, HoldfastError) as error:
            self._give_up_spill(error)

    async def _spill_next(self) -> None:
        """Copy what comes in the rounds after this one into a file, if it is much."""
        self._drop_spill()
        if asyncio.get_running_loop().time() < self._spill_after_s:
            return
        in_bucket = min(_BUCKET, self._room() // self._each_bytes // _BUCKETS)
        count = min(
            self._upcoming.ready_count(),
            self._budget.spill.free_bytes() // max(1, self._record_bytes),
            in_bucket * BUCKETS_MAX,
        )
        if count < max(_SPILLED_MIN, 2 * self._found):
            return
        buckets, turns, found = -(-count // in_bucket), LoopTurns(), list[bytes]()
        for some in self._upcoming.best_words(count, buckets):
            found.append(some)
            await turns.next()
        try:
            words = await _sorted(found)
            self._spill = await PayloadSpill.of(self._log, self._budget.spill, words, buckets)
        except (OSError, HoldfastError) as error:
            self._give_up_spill(error)

    def _give_up_spill(self, error: Exception) -> None:
        self._drop_spill()
        self._spill_after_s = asyncio.get_running_loop().time() + _RETRY_S
        _log.warning("messages of %s are read from the log alone: %s", self._log.partition_id, error)

    def _drop_spill(self) -> None:
        if self._spill is not None:
            self._spill.close()
            self._spill = None


async def _sorted(words: Sequence[bytes]) -> bytes:
    """Many on a thread: that takes a while."""
    joined = b"".join(words)
    return sorted_words(joined) if len(words) <= 1 else await asyncio.to_thread(sorted_words, joined)


def _size(messages: Collection[StoredMessage]) -> int:
    return payload_bytes(messages) + _ENTRY_BYTES * len(messages)


def payload_bytes(messages: Collection[StoredMessage]) -> int:
    """What payloads take in memory, and what producers gave beside them."""
    size = sum([len(message[0][1]) for message in messages])
    for enqueue, _ in messages:
        _, _, _, _, producer, partition_key, _, headers, fairness_key = enqueue
        if producer is not None:
            size += _PRODUCER_BYTES
        if headers:
            size += sum([_HEADER_BYTES + len(name) + len(value or b"") for name, value in headers])
        if partition_key is not None or fairness_key is not None:
            size += 2 * _TEXT_BYTES + len(partition_key or "") + len(fairness_key or "")
    return size
