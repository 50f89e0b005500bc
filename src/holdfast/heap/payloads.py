"""Payloads: they stay in the log, and are read from it by offset; recent ones are kept within a budget of bytes.

The one rule: reads of one call are grouped, and a batch is decoded once, however many of its messages are needed. Where they are
needed in the order of the log, their neighbours are kept: they come next. Pops have what comes next read ahead (`read_ahead`).
"""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from itertools import count, repeat
from typing import Final, NamedTuple, TypeAlias

from holdfast.heap.model import StoredMessage
from holdfast.heap.payload_spill import SpillSpace
from holdfast.heap.picks import exempt, message_of, stored_bytes, taken_out
from holdfast.heap.read_ahead import AheadBudget, PayloadReadAhead, UpcomingMessages
from holdfast.heap.records import Enqueue
from holdfast.log.batches import decode, decode_chosen, parse_header
from holdfast.log.errors import OffsetOutOfRangeError
from holdfast.log.owned_partition import OwnedPartition
from holdfast.vocabulary.errors import CorruptError, UnavailableError
from holdfast.vocabulary.settings import KIB

_PIECE: Final = 32  # messages that are read together at first, where their bytes count
_PIECE_MAX: Final = 1_024
_ENTRY_BYTES: Final = 700  # of Python's objects around a payload
_READ_BYTES: Final = 256 * KIB
_NEAR: Final = 1_000  # messages this close to another one that is needed are read with it
_RUNS_MIN: Final = 1_024
_FEW: Final = 4  # messages that a pop reads by itself, rather than wait for others that are read with them
_WAIT_S: Final = 2.5  # for those that are read with them, as long as that goes on
_ROUNDS: Final = 3  # that are waited for
_LEASE_PART: Final = 4  # of a lease that is spent on that at most
_COPY_WAIT_MS: Final = 10_000  # for a message that was just written again, until it is durable there
_NOTHING: Final[Mapping[int, StoredMessage]] = {}


_OWNERS: Final = count()

Heir: TypeAlias = Callable[[Sequence[int], Mapping[int, StoredMessage]], None]
"""Is given offsets, of which some may be gone, and the messages that they are of."""


class _Run(NamedTuple):
    """Messages that were put together."""

    owner: int
    offsets: Sequence[int]


class PayloadCache:
    """Recent messages of all partitions of a process. What was put first goes first, with what was put together with it.

    `ahead`: the budget of what is read ahead, `spill`: where some of it is kept in files.
    """

    def __init__(self, bytes_max: int, ahead_bytes_max: int = 0, spill: SpillSpace | None = None) -> None:
        self.ahead = AheadBudget(ahead_bytes_max, spill)
        self._bytes_max, self._bytes = bytes_max, 0
        self._messages: dict[int, dict[int, StoredMessage]] = {}  # by owner, then offset
        self._count = 0
        self._runs: deque[_Run] = deque()  # in the order in which they came; some messages of them may be gone
        self._heirs: dict[int, Heir] = {}

    def __len__(self) -> int:
        return self._count

    def put(self, owner: int, offsets: Sequence[int], messages: Sequence[StoredMessage]) -> None:
        """Keep messages that are not kept yet, as long as there is room."""
        kept = self._messages.setdefault(owner, {})
        kept.update(zip(offsets, messages, strict=True))
        self._count += len(messages)
        self._bytes += stored_bytes(messages, _ENTRY_BYTES)
        self._runs.append(_Run(owner, offsets))
        while self._bytes > self._bytes_max:
            first = self._runs.popleft()
            if (heir := self._heirs.get(first.owner)) is not None:
                heir(first.offsets, self.of(first.owner))
            self.drop(*first)
        if len(self._runs) > 2 * self._count + _RUNS_MIN:
            self._runs = deque([run for run in self._runs if self._has_any(run)])

    def bequeath(self, owner: int, heir: Heir | None) -> None:
        """Show an owner's messages to somebody before there is no room for them any more."""
        if heir is None:
            self._heirs.pop(owner, None)
        else:
            self._heirs[owner] = heir

    def of(self, owner: int) -> Mapping[int, StoredMessage]:
        """What is kept of an owner. A message is read once or twice in its life: reading it does not keep it longer."""
        return self._messages.get(owner, _NOTHING)

    def drop(self, owner: int, offsets: Iterable[int]) -> None:
        """Messages are gone."""
        kept = self._messages.get(owner)
        if kept:
            gone = taken_out(kept, offsets)
            self._count -= len(gone)
            self._bytes -= stored_bytes(gone, _ENTRY_BYTES)

    def drop_owner(self, owner: int) -> None:
        """Nothing of an owner is needed any more."""
        self.drop(owner, list(self.of(owner)))
        self._messages.pop(owner, None)

    def _has_any(self, run: _Run) -> bool:
        return not self.of(run.owner).keys().isdisjoint(run.offsets)


class MessageReader:
    """Reads the messages of one leadership of a partition. `durable` waits until everything that was decided is in the log."""

    def __init__(
        self,
        log: OwnedPartition,
        cache: PayloadCache,
        upcoming: UpcomingMessages,
        *,
        durable: Callable[[], Awaitable[None]],
    ) -> None:
        self._log, self._cache, self._upcoming, self._durable = log, cache, upcoming, durable
        self._owner = next(_OWNERS)  # never used again: what it kept is no one else's
        self._closed = False
        self._read_until = -1  # the end of the batch that was read last
        self.ahead = PayloadReadAhead(log, cache.ahead, upcoming, kept=lambda: cache.of(self._owner))
        cache.bequeath(self._owner, self.ahead.inherit)

    def keep(self, first: int, messages: Sequence[Enqueue], enqueued_ms: int) -> None:
        """Messages were enqueued, from an offset on."""
        stored = list(map(tuple.__new__, repeat(StoredMessage), zip(messages, repeat(enqueued_ms), strict=False)))
        self._cache.put(self._owner, range(first, first + len(stored)), exempt(stored))

    def forget(self, offsets: Iterable[int]) -> None:
        """Messages are gone."""
        self._cache.drop(self._owner, offsets)
        self.ahead.forget(offsets)

    def forget_all(self) -> None:
        """All messages are gone."""
        self._cache.drop_owner(self._owner)
        self.ahead.forget_all()

    def close(self) -> None:
        """This leadership has ended."""
        self._closed = True
        self._cache.bequeath(self._owner, None)
        self.ahead.close()
        self._cache.drop_owner(self._owner)

    async def read(self, offsets: Collection[int]) -> dict[int, StoredMessage]:
        """The messages of these offsets, which are durable. `UnavailableError`: object storage is away."""
        found = self._in_memory(offsets)
        if len(found) < len(offsets):
            missing = {self._upcoming.place(offset): offset for offset in offsets if offset not in found}
            places, went_on_at = sorted(missing), self._read_until
            for at in places:
                if at in missing:
                    await self._read_from(at, places, missing, found, went_on_at)
        return found

    async def expect(self, offsets: Collection[int], lease_ms: float) -> None:
        """Messages were handed out, and are read next: have what comes after them read ahead, and them with it if they are many.

        `lease_ms`: how long they are leased for. Most of it is their consumer's.
        """
        wait_s = min(_WAIT_S, lease_ms / 1000 / _LEASE_PART / _ROUNDS)
        for _ in range(_ROUNDS):  # one that is under way may have begun without them
            kept = self._cache.of(self._owner)
            missing = [offset for offset in offsets if offset not in kept and offset not in self.ahead]
            if not self.ahead.missed(len(missing)) or len(missing) <= _FEW:
                return
            if not await self.ahead.wait(missing, wait_s):  # what is not brought is read again, and fails there
                return

    def _in_memory(self, offsets: Collection[int]) -> dict[int, StoredMessage]:
        kept = self._cache.of(self._owner)
        found = {offset: message for offset in offsets if (message := kept.get(offset)) is not None}
        if len(found) < len(offsets) and len(self.ahead):
            others = [offset for offset in offsets if offset not in found]
            ahead = zip(others, self.ahead.look_up(others), strict=True)
            found.update([(offset, message) for offset, message in ahead if message is not None])
        return found

    async def read_first(
        self, offsets: Sequence[int], bytes_max: int, *, leased_ms: float | None = None
    ) -> list[StoredMessage]:
        """The first of these messages, in their order: at least one, and no more than `bytes_max` of payloads otherwise.

        `leased_ms`: they go to a consumer, who has them for so long, and others will, soon.
        """
        found = self._all_in_memory(offsets, bytes_max)
        if leased_ms is None:
            return found or await self._read_in_pieces(offsets, bytes_max)
        self.ahead.handed_out(len(offsets))
        if not found:
            await self.expect(offsets, leased_ms)
            found = await self._read_in_pieces(offsets, bytes_max)
        self.ahead.forget(offsets[: len(found)])
        return found

    def _all_in_memory(self, offsets: Sequence[int], bytes_max: int) -> list[StoredMessage] | None:
        """These messages, if all of them are in memory, and are not more than `bytes_max` of payloads."""
        found = list(map(self._cache.of(self._owner).get, offsets))
        if not all(found):
            ahead = self.ahead.look_up(offsets)
            found = [each or other for each, other in zip(found, ahead, strict=True)] if any(found) else list(ahead)
            if not all(found):
                return None
        whole: list[StoredMessage] = found  # type: ignore[assignment]
        if stored_bytes(whole, 0) <= bytes_max:  # with what is not payload
            return whole
        return whole if sum([len(message[0][1]) for message in whole]) <= bytes_max else None

    async def _read_in_pieces(self, offsets: Sequence[int], bytes_max: int) -> list[StoredMessage]:
        found: list[StoredMessage] = []
        size, piece = 0, _PIECE
        while len(found) < len(offsets):
            some = offsets[len(found) : len(found) + piece]
            stored = await self.read(some)
            for offset in some:
                size += len(stored[offset].enqueue.payload)
                if size > bytes_max and found:
                    return found
                found.append(stored[offset])
            room = (bytes_max - size) * len(found) // (size + 1)  # as far as the next ones are like these
            piece = max(1, min(2 * piece, _PIECE_MAX, room))
        return found

    async def _read_from(
        self,
        at: int,
        places: Sequence[int],
        missing: dict[int, int],
        found: dict[int, StoredMessage],
        went_on_at: int,
    ) -> None:
        """Read what is at `at`, and what of `places` is missing and comes with it. The reads before ended at `went_on_at`."""
        near = bisect_right(places, at + _NEAR) - bisect_left(places, at) > 1
        if at >= self._log.high_watermark:  # it is being copied
            await self._durable()
        try:
            fetched = await self._log.read(at, bytes_max=_READ_BYTES if near else 1, wait_ms=_COPY_WAIT_MS)
        except (
            OffsetOutOfRangeError
        ) as error:  # its lease ended, and another consumer was done with it: the log goes on
            raise UnavailableError(
                f"partition {self._log.partition_id}", f"the message at offset {at} is gone meanwhile"
            ) from error
        for batch in fetched.batches:
            header = parse_header(batch)
            first, end = bisect_left(places, header.base_offset), bisect_right(places, header.last_offset)
            here = [place for place in places[first:end] if place in missing]
            if not here:
                continue
            in_order = header.base_offset == went_on_at
            self._read_until = header.last_offset + 1
            others: dict[int, StoredMessage] = {}
            for record in decode(batch) if in_order else decode_chosen(batch, here):
                needed = record.offset in missing
                if not needed and record.offset not in self._upcoming:
                    continue
                read = message_of(*record)
                if read is None:
                    continue
                offset, message = read
                if needed and missing[record.offset] == offset:
                    del missing[record.offset]
                    found[offset] = message
                elif not self._closed and offset not in self._cache.of(self._owner):
                    others[offset] = message
            if others:
                self._cache.put(self._owner, list(others), list(others.values()))
        if at in missing and at >= self._log.high_watermark:
            raise UnavailableError(f"partition {self._log.partition_id}", f"the copy at offset {at} is not durable yet")
        if at in missing:
            raise CorruptError(f"partition {self._log.partition_id}", f"there is no message at offset {at}")
