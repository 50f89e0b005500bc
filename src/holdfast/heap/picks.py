"""Chosen records of the log, copied into buffers as they are, and read from there as messages.

Which ones is said by words: the place of a record, and behind it the number of a bucket (`place << 8 | bucket`), in order. The
work on them is done by the C extension where it was built (`src/_native/picks.c`), elsewhere here and in `log.batches.pure`.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterable
from typing import Final

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


def words_of(places: Iterable[int]) -> bytes:
    """The words of places, all of bucket 0, in their order."""
    return array("Q", [place << BUCKET_BITS for place in places]).tobytes()


def picked_messages(data: Buffer) -> dict[int, StoredMessage]:
    """The messages of records that were picked, by offset. `CorruptError`."""
    try:
        if native is not None:
            return native.picked_messages(data, _KINDS, message_of)
        return dict(each for record in picked_records(data, Record) if (each := message_of(*record)) is not None)
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
