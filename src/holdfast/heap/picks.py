"""Chosen records of the log, copied into buffers as they are, and read from there as messages.

Which ones is said by words: the place of a record, and behind it the number of a bucket (`place << 8 | bucket`), in order. The
work on them is done by the C extension where it was built (`src/_native/picks.c`), elsewhere here and in `log.batches.pure`.
"""

from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from itertools import repeat
from typing import Final, NamedTuple, Protocol

from holdfast.heap.model import StoredMessage
from holdfast.heap.records import Copy, Enqueue, Headers, ProducerSequence, Reserve, decode_operation
from holdfast.log.batches import Buffer, Record
from holdfast.log.batches.pure import picked_records
from holdfast.vocabulary.errors import CorruptError
from holdfast.vocabulary.native import native

BUCKET_BITS: Final = 8
BUCKETS_MAX: Final = 1 << BUCKET_BITS
WORD_BYTES: Final = 8
_KINDS: Final = (Enqueue, StoredMessage, ProducerSequence)
_PRODUCER_BYTES: Final = 170  # of Python's objects
_HEADER_BYTES: Final = 200
_TEXT_BYTES: Final = 60


class Offsets(Protocol):
    """Some of them."""

    def __contains__(self, offset: int, /) -> bool: ...


class Wanted(NamedTuple):
    """Which offsets: those that are in one of the first two, and in none of those where they are already."""

    ready: Offsets
    needed: Offsets
    here: tuple[Offsets, ...]

    def of(self, offsets: Sequence[int]) -> list[int]:
        """Those that are wanted, in their order."""
        return list(filter(self.has, offsets)) if native is None else native.wanted_of(offsets, self)

    def has(self, offset: int) -> bool:
        """Whether it is wanted."""
        return (offset in self.ready or offset in self.needed) and not any(offset in each for each in self.here)


def message_of(
    offset: int, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: Headers
) -> tuple[int, StoredMessage] | None:
    """The message of a record, and its offset; None: it is a record of something else. `CorruptError`."""
    operation = decode_operation(key, value, headers)
    if isinstance(operation, Enqueue):
        return offset, StoredMessage(operation, timestamp_ms)
    if isinstance(operation, Reserve):
        return offset, StoredMessage(operation.enqueue, timestamp_ms)
    if isinstance(operation, Copy):
        return operation.offset, StoredMessage(operation.enqueue, operation.enqueued_ms)
    return None


def enqueues_of(records: list[Record]) -> list[Enqueue | None]:
    """The messages that records are; None for those of something else. `CorruptError` where one is read here."""
    if native is not None:
        return native.enqueues_of(records, _KINDS)
    operations = [decode_operation(record.key, record.value, record.headers) for record in records]
    return [operation if isinstance(operation, Enqueue) else None for operation in operations]


def words_of(places: Iterable[int]) -> bytes:
    """The words of places, all of bucket 0, in their order."""
    return array("Q", [place << BUCKET_BITS for place in places]).tobytes()


def picked_messages(data: Buffer, wanted: Wanted | None = None) -> dict[int, StoredMessage]:
    """The messages of records that were picked, by offset: all of them, or those that are wanted. `CorruptError`."""
    try:
        if native is not None:
            return native.picked_messages(data, _KINDS, message_of, wanted)
        read = [each for record in picked_records(data, Record) if (each := message_of(*record)) is not None]
        return dict(read if wanted is None else [each for each in read if wanted.has(each[0])])
    except ValueError as error:
        raise CorruptError("records that were picked", str(error)) from error


def bucket_counts(words: Buffer, others: Buffer) -> list[int]:
    """How many of `others` are in each bucket of `words`."""
    if native is not None:
        return native.bucket_counts(words, others)
    counts, numbers = [0] * BUCKETS_MAX, array("Q", bytes(words))
    for other in array("Q", bytes(others)):
        at = bisect_left(numbers, other >> BUCKET_BITS << BUCKET_BITS)
        if at < len(numbers) and numbers[at] >> BUCKET_BITS == other >> BUCKET_BITS:
            counts[numbers[at] & BUCKETS_MAX - 1] += 1
    return counts


def sorted_words(words: Buffer) -> bytes:
    """Words in order. May be called from a thread."""
    return native.sorted_words(words) if native is not None else array("Q", sorted(array("Q", bytes(words)))).tobytes()


def exempt(messages: list[StoredMessage]) -> list[StoredMessage]:
    """Messages that stay for a while, which garbage collection does not have to look at; the same list."""
    return messages if native is None else native.exempt(messages)


def taken_out(messages: dict[int, StoredMessage], offsets: Iterable[int]) -> list[StoredMessage]:
    """Those of these messages that are there, which they are no more. No Python is run for each."""
    return list(filter(None, map(messages.pop, offsets, repeat(None))))


def stored_bytes(messages: Collection[StoredMessage], entry_bytes: int) -> int:
    """What messages take in memory: payloads, what producers gave beside them, and so many bytes for each."""
    if native is not None:
        return native.stored_bytes(messages, entry_bytes, _PRODUCER_BYTES, _HEADER_BYTES, _TEXT_BYTES)
    size = entry_bytes * len(messages) + sum([len(message[0][1]) for message in messages])
    for enqueue, _ in messages:
        _, _, _, _, producer, partition_key, _, headers, fairness_key = enqueue
        if producer is not None:
            size += _PRODUCER_BYTES
        if headers:
            size += sum([_HEADER_BYTES + len(name) + len(value or b"") for name, value in headers])
        if partition_key is not None or fairness_key is not None:
            size += 2 * _TEXT_BYTES + len(partition_key or "") + len(fairness_key or "")
    return size
