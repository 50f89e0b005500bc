"""Messages that are popped next, read from the log together before anybody asks.

Priorities scatter what comes next over the whole log, and a batch that is read for one message costs as much as one that is read
for ten. So the next thousands are found in the index at once, and their batches are read in the order of the log.

The one rule: what is kept here is within a budget of bytes that all partitions of a process share. It is a copy: what is not here
is read by those who need it.
"""

import asyncio
import logging
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from holdfast.heap.model import StoredMessage
from holdfast.heap.records import Copy, Enqueue, Reserve, decode_operation
from holdfast.log.batches import Record, decode_chosen, parse_header
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


class AheadBudget:
    """The bytes that all partitions of a process may keep."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max, self.bytes = bytes_max, 0


class PayloadReadAhead:
    """What is read ahead of one leadership of a partition.

    `best`: the offsets of about so many messages that come next, in pieces; `place`: where the record of a message is; `leased`:
    whether it was handed out, and may be asked for at any moment; `kept`: what is in memory elsewhere.
    """

    def __init__(
        self,
        log: OwnedPartition,
        budget: AheadBudget,
        *,
        best: Callable[[int], Iterable[list[int]]],
        place: Callable[[int], int],
        leased: Callable[[int], bool],
        kept: Callable[[], Mapping[int, object]],
    ) -> None:
        self._log, self._budget = log, budget
        self._best, self._place, self._leased, self._kept = best, place, leased, kept
        self._messages: dict[int, StoredMessage] = {}  # by offset
        self._mine_bytes = 0
        self._wanted, self._found = _FIRST, 0  # messages of the next round, and of the last one
        self._each_bytes = _MESSAGE_BYTES  # of a message, as the last round found them
        self._records_per_read = 0
        self._round: asyncio.Task[None] | None = None
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

    def close(self) -> None:
        """This leadership has ended."""
        self._closed = True
        if self._round is not None:
            self._round.cancel()
        self._messages.clear()
        self._charge(-self._mine_bytes)

    def begin(self, asked: Collection[int] = ()) -> "asyncio.Task[None] | None":
        """Begin a round, unless one is under way; the one that is. `asked`: messages that it reads, too. None: there is no room."""
        if self._round is None and not self._closed and self._room() > 0:
            self._round = asyncio.ensure_future(self._read_next(asked))
            self._round.add_done_callback(self._ended)
        return self._round

    @property
    def is_low(self) -> bool:
        """Whether most of what the last round found is used up."""
        return len(self._messages) < self._found // _LOW

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._round = None
        if not task.cancelled() and isinstance(error := task.exception(), HoldfastError):
            _log.warning("messages of %s are not read ahead: %s", self._log.partition_id, error)

    def _room(self) -> int:
        return self._budget.bytes_max - (self._budget.bytes - self._mine_bytes)

    async def _read_next(self, asked: Collection[int]) -> None:
        """One round: keep what comes next, drop what does not, read what is missing."""
        most = self._room() // self._each_bytes
        best = await self._coming(min(self._wanted, most, _ROUND_MAX))
        best += asked
        await self._drop_all_but(set(best))
        missing = await self._missing(best)
        durable = self._log.high_watermark
        self._wanted *= _GROWTH if self._wanted < most else 1
        await self._read(missing, sorted(place for place in missing if place < durable))
        self._found = len(self._messages)
        if self._found:
            self._each_bytes = max(_ENTRY_BYTES, self._mine_bytes // self._found)

    async def _coming(self, count: int) -> list[int]:
        turns, found = LoopTurns(), list[int]()
        for some in self._best(count):
            found += some
            await turns.next()
        return found

    async def _drop_all_but(self, coming: AbstractSet[int]) -> None:
        turns, here = LoopTurns(), list(self._messages)
        for first in range(0, len(here), _TURN):
            others = set(here[first : first + _TURN]).difference(coming)
            self.forget([offset for offset in others if not self._leased(offset)])
            await turns.next()

    async def _missing(self, best: Sequence[int]) -> dict[int, int]:
        """Those that are not in memory, by the place of their record."""
        turns, found = LoopTurns(), dict[int, int]()
        for first in range(0, len(best), _TURN):
            others = set(best[first : first + _TURN]).difference(self._messages).difference(self._kept())
            found.update({self._place(each): each for each in others})
            await turns.next()
        return found

    async def _read(self, missing: dict[int, int], places: list[int]) -> None:
        turns, at = LoopTurns(), 0
        while at < len(places) and not self._closed:
            fetched = await self._log.read(places[at], bytes_max=self._worth(places, at))
            begun = at
            for batch in fetched.batches:
                header = parse_header(batch)
                at = bisect_left(places, header.base_offset, at)
                end = bisect_left(places, header.last_offset + 1, at)
                if at < end:
                    self._keep(decode_chosen(batch, places[at:end]), missing)
                at = end
            if fetched.batches:
                first = parse_header(fetched.batches[0]).base_offset
                read = parse_header(fetched.batches[-1]).last_offset + 1 - first
                self._records_per_read = max(1, read * _READ_BYTES // max(1, fetched.size_bytes))
            at = max(at, begun + 1)  # a record that is not there is the business of those who need it
            await turns.next()

    def _worth(self, places: Sequence[int], at: int) -> int:
        """How many bytes to read at a place: many where many are needed."""
        near = bisect_left(places, places[at] + self._records_per_read, at) - at
        return _READ_BYTES if near >= _DENSE else 1

    def _keep(self, records: Sequence[Record], missing: Mapping[int, int]) -> None:
        if self._budget.bytes < self._budget.bytes_max:
            read = [(missing[record.offset], message_of(record)) for record in records]
            found = {offset: each[1] for offset, each in read if each is not None and each[0] == offset}
            self._messages.update(found)
            self._charge(_size(found.values()))

    def _charge(self, change_bytes: int) -> None:
        self._mine_bytes += change_bytes
        self._budget.bytes += change_bytes


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


def message_of(record: Record) -> tuple[int, StoredMessage] | None:
    """The message of a record, and its offset; None: it is a record of something else."""
    operation = decode_operation(record.key, record.value, record.headers)
    if isinstance(operation, Enqueue):
        return record.offset, StoredMessage(operation, record.timestamp_ms)
    if isinstance(operation, Reserve):
        return record.offset, StoredMessage(operation.enqueue, record.timestamp_ms)
    if isinstance(operation, Copy):
        return operation.offset, StoredMessage(operation.enqueue, operation.enqueued_ms)
    return None
