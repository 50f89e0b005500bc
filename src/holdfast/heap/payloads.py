"""Payloads: they stay in the log, and are read from it by offset; recent ones are kept within a budget of bytes.

The one rule: reads of one call are grouped, and a batch is decoded once, however many of its messages are needed. Where they are
needed in the order of the log, their neighbours are kept: they come next.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import count
from typing import Final

from holdfast.heap.model import StoredMessage
from holdfast.heap.records import Copy, Enqueue, Reserve, decode_operation
from holdfast.log.batches import decode, parse_header
from holdfast.log.owned_partition import OwnedPartition
from holdfast.vocabulary.errors import CorruptError
from holdfast.vocabulary.settings import KIB

_PIECE: Final = 32  # messages that are read together at first, where their bytes count
_PIECE_MAX: Final = 256
_ENTRY_BYTES: Final = 700  # of Python's objects around a payload
_READ_BYTES: Final = 256 * KIB


_OWNERS: Final = count()


class PayloadCache:
    """Recent messages of all partitions of a process, the oldest go first. Keys are (owner, offset)."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max, self._bytes = bytes_max, 0
        self._messages: OrderedDict[tuple[int, int], StoredMessage] = OrderedDict()

    def put(self, owner: int, offset: int, message: StoredMessage) -> None:
        """Keep a message, as long as there is room."""
        key = (owner, offset)
        if key in self._messages:
            return
        self._messages[key] = message
        self._bytes += len(message.enqueue.payload) + _ENTRY_BYTES
        while self._bytes > self._bytes_max:
            _, gone = self._messages.popitem(last=False)
            self._bytes -= len(gone.enqueue.payload) + _ENTRY_BYTES

    def get(self, owner: int, offset: int) -> StoredMessage | None:
        """A message that is kept. A message is read once or twice in its life: reading it does not keep it longer."""
        return self._messages.get((owner, offset))

    def drop(self, owner: int, offsets: Iterable[int]) -> None:
        """Messages are gone."""
        messages = self._messages
        for offset in offsets:
            gone = messages.pop((owner, offset), None)
            if gone is not None:
                self._bytes -= len(gone[0].payload) + _ENTRY_BYTES

    def drop_owner(self, owner: int) -> None:
        """Nothing of an owner is needed any more."""
        self.drop(owner, [offset for holder, offset in self._messages if holder == owner])


class MessageReader:
    """Reads the messages of one leadership of a partition. `waits`: whether a message is worth keeping; `place`: where it is."""

    def __init__(
        self,
        log: OwnedPartition,
        cache: PayloadCache,
        *,
        waits: Callable[[int], bool],
        place: Callable[[int], int],
    ) -> None:
        self._log, self._cache, self._waits, self._place = log, cache, waits, place
        self._owner = next(_OWNERS)  # never used again: what it kept is no one else's
        self._closed = False
        self._read_until = -1  # the end of the batch that was read last

    def keep(self, first: int, messages: Iterable[Enqueue], enqueued_ms: int) -> None:
        """Messages were enqueued, from an offset on."""
        put, owner = self._cache.put, self._owner
        for offset, message in enumerate(messages, first):
            put(owner, offset, StoredMessage(message, enqueued_ms))

    def forget(self, offsets: Iterable[int]) -> None:
        """Messages are gone."""
        self._cache.drop(self._owner, offsets)

    def close(self) -> None:
        """This leadership has ended."""
        self._closed = True
        self._cache.drop_owner(self._owner)

    async def read(self, offsets: Collection[int]) -> dict[int, StoredMessage]:
        """The messages of these offsets, which are durable. `UnavailableError`: object storage is away."""
        found: dict[int, StoredMessage] = {}
        missing: dict[int, int] = {}  # by where they are
        for offset in offsets:
            message = self._cache.get(self._owner, offset)
            if message is None:
                missing[self._place(offset)] = offset
            else:
                found[offset] = message
        while missing:
            await self._read_from(min(missing), missing, found)
        return found

    async def read_first(self, offsets: Sequence[int], bytes_max: int) -> list[StoredMessage]:
        """The first of these messages, in their order: at least one, and no more than `bytes_max` of payloads otherwise."""
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
            piece = min(2 * piece, _PIECE_MAX)
        return found

    async def _read_from(self, at: int, missing: dict[int, int], found: dict[int, StoredMessage]) -> None:
        """Read what is at `at`, and whatever else is missing and comes with it."""
        fetched = await self._log.read(at, bytes_max=_READ_BYTES if len(missing) > 1 else 1)
        for batch in fetched.batches:
            header = parse_header(batch)
            if not any(header.base_offset <= offset <= header.last_offset for offset in missing):
                continue
            in_order = header.base_offset <= self._read_until <= header.last_offset + 1
            self._read_until = header.last_offset + 1
            for record in decode(batch):
                needed = record.offset in missing
                if not needed and not (in_order and self._waits(record.offset)):
                    continue
                operation = decode_operation(record.key, record.value, record.headers)
                if isinstance(operation, Enqueue):
                    offset, message = record.offset, StoredMessage(operation, record.timestamp_ms)
                elif isinstance(operation, Reserve):
                    offset, message = record.offset, StoredMessage(operation.enqueue, record.timestamp_ms)
                elif isinstance(operation, Copy):
                    offset, message = operation.offset, StoredMessage(operation.enqueue, operation.enqueued_ms)
                else:
                    continue
                if needed and missing[record.offset] == offset:
                    del missing[record.offset]
                    found[offset] = message
                elif not self._closed:
                    self._cache.put(self._owner, offset, message)
        if at in missing:
            raise CorruptError(f"partition {self._log.partition_id}", f"there is no message at offset {at}")
