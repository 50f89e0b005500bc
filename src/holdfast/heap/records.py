"""The records of a heap partition: operations as values, and as Kafka records. docs/formats/heap-records.md has the format.

The one rule: a record says everything that time, chance or a setting decided, so that applying it needs nothing else. An ENQUEUE
has the payload as its value, as it was given; every other operation covers many messages in one record.
"""

import struct
import sys
from array import array
from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import lru_cache
from itertools import chain
from typing import Final, NamedTuple, TypeAlias

from holdfast.heap.batch.model import (
    BatchRecord,
    Forgotten,
    Prepared,
    Resolved,
    pack_batch_name,
    pack_prepared,
    pack_resolved,
    unpack_batch_name,
    unpack_prepared,
    unpack_resolved,
)
from holdfast.heap.fairness.rules import FairRules, decode_rules, encode_rules
from holdfast.vocabulary.errors import CorruptError
from holdfast.vocabulary.native import native

VERSION: Final = 1
NO_RETRIES_OF_ITS_OWN: Final = -1

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]


class Op(IntEnum):
    """The second byte of every key. Numbers are never used again."""

    ENQUEUE = 1
    GRANT = 2
    ACK = 3
    NACK = 4
    EXPIRE = 5
    RELEASE = 6
    EXTEND = 7
    READY = 8
    MOVE = 9
    MOVED = 10
    CANCEL = 11
    REPRIORITISE = 12
    PURGE = 13
    FORGET = 14
    SPINE = 15
    BASIS = 16
    COPY = 17
    PARTITIONS = 18
    FAIRNESS = 32
    RESERVE = 48
    PREPARE = 49
    RESOLVE = 50
    BATCH_FORGOTTEN = 51


class ProducerSequence(NamedTuple):
    """What identifies an enqueue: the same one again is a duplicate."""

    producer: str
    epoch: int
    sequence: int


class Origin(NamedTuple):
    """Where a message was before it was moved here."""

    topic: str
    partition: int
    message_id: bytes
    attempts: int
    reason: str


class Enqueue(NamedTuple):
    """A new message. `not_before_ms`: 0, or when it becomes ready. `max_retries`: -1 for the heap's."""

    priority: int
    payload: bytes
    not_before_ms: int = 0
    max_retries: int = NO_RETRIES_OF_ITS_OWN
    producer: ProducerSequence | None = None
    partition_key: str | None = None
    origin: Origin | None = None
    headers: Headers = ()
    fairness_key: str | None = None


class Copy(NamedTuple):
    """A message that waits, written again, so that what is below can go. `offset` and `enqueued_ms`: of its ENQUEUE record."""

    offset: int
    enqueued_ms: int
    enqueue: Enqueue


class Reserve(NamedTuple):
    """A message of a batch over several partitions: it waits for the RESOLVE of the batch, and is nothing before."""

    batch: str
    enqueue: Enqueue


class Grant(NamedTuple):
    """Messages leased to a consumer until `deadline_ms`, by the leader of `epoch`: (offset, priority) each."""

    epoch: int
    deadline_ms: int
    consumer: str
    entries: tuple[tuple[int, int], ...]


class Ack(NamedTuple):
    """Messages that are done."""

    offsets: tuple[int, ...]


class Retry(NamedTuple):
    """Leases that ended without an ack. NACK and EXPIRE count as an attempt, RELEASE does not. (offset, ready at or 0) each."""

    op: Op
    entries: tuple[tuple[int, int], ...]
    reason: str = ""


class Extend(NamedTuple):
    """Leases with a later deadline: (offset, deadline) each."""

    entries: tuple[tuple[int, int], ...]


class Ready(NamedTuple):
    """Messages whose delay is over: (offset, priority) each."""

    entries: tuple[tuple[int, int], ...]


class Move(NamedTuple):
    """A message leaves for another heap. It is in the outbox, under this record's offset, until a MOVED says that it arrived."""

    offset: int
    priority: int
    topic: str
    partition: int
    attempts: int
    reason: str


class Moved(NamedTuple):
    """Moves that arrived: the offsets of their MOVE records."""

    offsets: tuple[int, ...]


class Cancel(NamedTuple):
    """Messages that are withdrawn, leased or not."""

    offsets: tuple[int, ...]


class Reprioritise(NamedTuple):
    """Messages with another priority: (offset, priority) each."""

    entries: tuple[tuple[int, int], ...]


class Purge(NamedTuple):
    """Every message enqueued below this offset is withdrawn."""

    below: int


class Forget(NamedTuple):
    """Sequence numbers enqueued before a time are forgotten. `keep_floor`: up to the highest of them they are refused then."""

    before_ms: int
    keep_floor: bool


class SpineEpoch(NamedTuple):
    """From here on only the spine of this epoch, or a newer one, is obeyed."""

    epoch: int


class PartitionCount(NamedTuple):
    """The heap has so many partitions, or more. From here on, whoever knows of fewer is refused: spines, and enqueues that are
    looked for in another partition by now."""

    partitions: int


class GrantBasis(NamedTuple):
    """Why the grants that follow were made: a pop of a spine, the rank bound it had, and the offset of every partition's advert."""

    spine_epoch: int
    sequence: int
    bound: int
    offsets: tuple[int, ...]


Operation: TypeAlias = (
    Enqueue
    | Grant
    | Ack
    | Retry
    | Extend
    | Ready
    | Move
    | Moved
    | Cancel
    | Reprioritise
    | Purge
    | Forget
    | SpineEpoch
    | PartitionCount
    | GrantBasis
    | Copy
    | Reserve
    | BatchRecord
    | FairRules
)

_HEAD: Final = struct.Struct(">BB")
_ENQUEUE: Final = struct.Struct(">BBBqqi")
_COPY: Final = struct.Struct(">BBQq")
_GRANT: Final = struct.Struct(">IqH")
_MOVE: Final = struct.Struct(">QqIIHH")
_FORGET: Final = struct.Struct(">qB")
_LENGTH: Final = struct.Struct(">H")
_SEQUENCE: Final = struct.Struct(">qq")
_ORIGIN: Final = struct.Struct(">I16sI")

_PRODUCER: Final = 1
_PARTITION_KEY: Final = 2
_ORIGIN_FLAG: Final = 4
_FAIRNESS_KEY: Final = 8

_OFFSETS: Final[dict[type, Op]] = {Ack: Op.ACK, Moved: Op.MOVED, Cancel: Op.CANCEL}
_PAIRS: Final[dict[type, Op]] = {Extend: Op.EXTEND, Ready: Op.READY, Reprioritise: Op.REPRIORITISE}

_KEYS: Final = {op: _HEAD.pack(VERSION, op) for op in Op}


class Encoded(NamedTuple):
    """An operation as the parts of a Kafka record."""

    key: bytes
    value: bytes
    headers: Headers = ()


def encode_operation(operation: Operation) -> Encoded:
    """The Kafka record of an operation."""
    if isinstance(operation, Enqueue):
        return Encoded(enqueue_key(operation), operation.payload, operation.headers)
    if isinstance(operation, Copy):
        head = _COPY.pack(VERSION, Op.COPY, operation.offset, operation.enqueued_ms)
        return Encoded(head + enqueue_key(operation.enqueue), operation.enqueue.payload, operation.enqueue.headers)
    if isinstance(operation, Reserve):
        head = _KEYS[Op.RESERVE] + pack_batch_name(operation.batch)
        return Encoded(head + enqueue_key(operation.enqueue), operation.enqueue.payload, operation.enqueue.headers)
    kind = type(operation)
    if isinstance(operation, Ack | Moved | Cancel):
        return Encoded(_KEYS[_OFFSETS[kind]], _pack_offsets(operation.offsets))
    if isinstance(operation, Extend | Ready | Reprioritise):
        return Encoded(_KEYS[_PAIRS[kind]], _pack_pairs(operation.entries))
    if isinstance(operation, Grant):
        consumer = operation.consumer.encode()
        head = _GRANT.pack(operation.epoch, operation.deadline_ms, len(consumer))
        return Encoded(_KEYS[Op.GRANT], head + consumer + _pack_pairs(operation.entries))
    if isinstance(operation, Retry):
        return Encoded(_KEYS[operation.op], _text(operation.reason) + _pack_pairs(operation.entries))
    if isinstance(operation, Move):
        topic, reason = operation.topic.encode(), operation.reason.encode()
        numbers = (operation.offset, operation.priority, operation.partition, operation.attempts)
        head = _MOVE.pack(*numbers, len(topic), len(reason))
        return Encoded(_KEYS[Op.MOVE], head + topic + reason)
    if isinstance(operation, SpineEpoch):
        return Encoded(_KEYS[Op.SPINE], _pack_offsets((operation.epoch,)))
    if isinstance(operation, PartitionCount):
        return Encoded(_KEYS[Op.PARTITIONS], _pack_offsets((operation.partitions,)))
    if isinstance(operation, GrantBasis):
        numbers_of_basis = (operation.spine_epoch, operation.sequence, operation.bound, *operation.offsets)
        return Encoded(_KEYS[Op.BASIS], _pack_offsets(numbers_of_basis))
    if isinstance(operation, Prepared):
        return Encoded(_KEYS[Op.PREPARE], pack_prepared(operation))
    if isinstance(operation, Resolved):
        return Encoded(_KEYS[Op.RESOLVE], pack_resolved(operation))
    if isinstance(operation, Forgotten):
        return Encoded(_KEYS[Op.BATCH_FORGOTTEN], pack_batch_name(operation.batch))
    if isinstance(operation, FairRules):
        return Encoded(_KEYS[Op.FAIRNESS], encode_rules(operation))
    if isinstance(operation, Purge):
        return Encoded(_KEYS[Op.PURGE], _pack_offsets((operation.below,)))
    return Encoded(_KEYS[Op.FORGET], _FORGET.pack(operation.before_ms, operation.keep_floor))


def decode_operation(key: bytes | None, value: bytes | None, headers: Headers = ()) -> Operation:
    """The operation of a stored record. `CorruptError`: it is none, or of a newer release: a view without it would be wrong."""
    try:
        if key is None or value is None:
            raise CorruptError("heap record", "it has no key, or no value")
        version, number = key[0], key[1]
        if version != VERSION or number not in _DECODERS:
            raise CorruptError("heap record", f"version {version}, operation {number}: of a newer release?")
        return _DECODERS[number](key, value, headers)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise CorruptError("heap record", f"operation {key!r}: {error}") from error


def enqueue_key(operation: Enqueue) -> bytes:
    """The key of an ENQUEUE; its value and headers are those of the message."""
    priority, _, not_before_ms, max_retries, producer, partition_key, origin, _, fairness_key = operation
    plain = partition_key is None and origin is None and fairness_key is None
    if plain and producer is None:
        return _ENQUEUE.pack(VERSION, Op.ENQUEUE, 0, priority, not_before_ms, max_retries)
    if plain and producer is not None:
        head = _ENQUEUE.pack(VERSION, Op.ENQUEUE, _PRODUCER, priority, not_before_ms, max_retries)
        return head + _name(producer[0]) + _SEQUENCE.pack(producer[1], producer[2])
    flags, parts = 0, [b""]
    if producer is not None:
        flags |= _PRODUCER
        parts += (_text(producer.producer), _SEQUENCE.pack(producer.epoch, producer.sequence))
    if partition_key is not None:
        flags |= _PARTITION_KEY
        parts.append(_text(partition_key))
    if origin is not None:
        flags |= _ORIGIN_FLAG
        place = _ORIGIN.pack(origin.partition, origin.message_id, origin.attempts)
        parts += (_text(origin.topic), place, _text(origin.reason))
    if fairness_key is not None:
        flags |= _FAIRNESS_KEY
        parts.append(_name(fairness_key))
    parts[0] = _ENQUEUE.pack(VERSION, Op.ENQUEUE, flags, priority, not_before_ms, max_retries)
    return b"".join(parts)


def enqueue_keys(operations: Sequence[Enqueue]) -> list[bytes]:
    """`enqueue_key` of many."""
    keys = None if native is None else native.pack_enqueue_keys(operations)
    return list(map(enqueue_key, operations)) if keys is None else keys


def read_enqueue(key: bytes, value: bytes, headers: Headers) -> Enqueue:
    """The ENQUEUE of a key."""
    _, _, flags, priority, not_before_ms, max_retries = _ENQUEUE.unpack_from(key)
    if not flags:
        return Enqueue(priority, value, not_before_ms, max_retries, headers=headers)
    at = _ENQUEUE.size
    producer = partition_key = origin = fairness_key = None
    if flags & _PRODUCER:
        name, at = _read_text(key, at)
        producer = ProducerSequence(name, *_SEQUENCE.unpack_from(key, at))
        at += _SEQUENCE.size
    if flags & _PARTITION_KEY:
        partition_key, at = _read_text(key, at)
    if flags & _ORIGIN_FLAG:
        topic, at = _read_text(key, at)
        partition, message_id, attempts = _ORIGIN.unpack_from(key, at)
        reason, at = _read_text(key, at + _ORIGIN.size)
        origin = Origin(topic, partition, message_id, attempts, reason)
    if flags & _FAIRNESS_KEY:
        fairness_key, at = _read_text(key, at)
    return Enqueue(priority, value, not_before_ms, max_retries, producer, partition_key, origin, headers, fairness_key)


def _read_copy(key: bytes, value: bytes, headers: Headers) -> Copy:
    _, _, offset, enqueued_ms = _COPY.unpack_from(key)
    return Copy(offset, enqueued_ms, read_enqueue(key[_COPY.size :], value, headers))


def _read_reserve(key: bytes, value: bytes, headers: Headers) -> Reserve:
    batch, at = unpack_batch_name(key, _HEAD.size)
    return Reserve(batch, read_enqueue(key[at:], value, headers))


def _read_grant(key: bytes, value: bytes, headers: Headers) -> Grant:
    epoch, deadline_ms, length = _GRANT.unpack_from(value)
    at = _GRANT.size + length
    return Grant(epoch, deadline_ms, value[_GRANT.size : at].decode(), _unpack_pairs(value, at))


def _read_retry(key: bytes, value: bytes, headers: Headers) -> Retry:
    reason, at = _read_text(value, 0)
    return Retry(Op(key[1]), _unpack_pairs(value, at), reason)


def _read_move(key: bytes, value: bytes, headers: Headers) -> Move:
    offset, priority, partition, attempts, topic_bytes, reason_bytes = _MOVE.unpack_from(value)
    middle = _MOVE.size + topic_bytes
    topic, reason = value[_MOVE.size : middle].decode(), value[middle : middle + reason_bytes].decode()
    return Move(offset, priority, topic, partition, attempts, reason)


def _read_basis(key: bytes, value: bytes, headers: Headers) -> GrantBasis:
    numbers = _unpack_offsets(value, 0)
    return GrantBasis(numbers[0], numbers[1], numbers[2], numbers[3:])


def _read_forget(key: bytes, value: bytes, headers: Headers) -> Forget:
    before_ms, keep_floor = _FORGET.unpack(value)
    return Forget(before_ms, bool(keep_floor))


_Decoder: TypeAlias = Callable[[bytes, bytes, Headers], Operation]

_DECODERS: Final[dict[int, _Decoder]] = {
    Op.ENQUEUE: read_enqueue,
    Op.GRANT: _read_grant,
    Op.ACK: lambda key, value, headers: Ack(_unpack_offsets(value, 0)),
    Op.NACK: _read_retry,
    Op.EXPIRE: _read_retry,
    Op.RELEASE: _read_retry,
    Op.EXTEND: lambda key, value, headers: Extend(_unpack_pairs(value, 0)),
    Op.READY: lambda key, value, headers: Ready(_unpack_pairs(value, 0)),
    Op.MOVE: _read_move,
    Op.MOVED: lambda key, value, headers: Moved(_unpack_offsets(value, 0)),
    Op.CANCEL: lambda key, value, headers: Cancel(_unpack_offsets(value, 0)),
    Op.REPRIORITISE: lambda key, value, headers: Reprioritise(_unpack_pairs(value, 0)),
    Op.PURGE: lambda key, value, headers: Purge(_unpack_offsets(value, 0)[0]),
    Op.FORGET: _read_forget,
    Op.SPINE: lambda key, value, headers: SpineEpoch(_unpack_offsets(value, 0)[0]),
    Op.PARTITIONS: lambda key, value, headers: PartitionCount(_unpack_offsets(value, 0)[0]),
    Op.BASIS: _read_basis,
    Op.COPY: _read_copy,
    Op.RESERVE: _read_reserve,
    Op.PREPARE: lambda key, value, headers: unpack_prepared(value),
    Op.RESOLVE: lambda key, value, headers: unpack_resolved(value),
    Op.BATCH_FORGOTTEN: lambda key, value, headers: Forgotten(unpack_batch_name(value)[0]),
    Op.FAIRNESS: lambda key, value, headers: decode_rules(value),
}


def _text(text: str) -> bytes:
    encoded = text.encode()
    return _LENGTH.pack(len(encoded)) + encoded


@lru_cache(maxsize=1_024)
def _name(name: str) -> bytes:
    """`_text` of what many records name: a producer, a fairness key."""
    return _text(name)


def _read_text(data: bytes, at: int) -> tuple[str, int]:
    (length,) = _LENGTH.unpack_from(data, at)
    at += _LENGTH.size
    if at + length > len(data):
        raise IndexError(f"a text of {length} bytes at {at}")
    return data[at : at + length].decode(), at + length


def _pack_offsets(offsets: tuple[int, ...]) -> bytes:
    return struct.pack(f">{len(offsets)}Q", *offsets)


def _unpack_offsets(data: bytes, at: int) -> tuple[int, ...]:
    count, rest = divmod(len(data) - at, 8)
    if rest:
        raise IndexError(f"{rest} bytes too many")
    return struct.unpack_from(f">{count}Q", data, at)


def _pack_pairs(entries: tuple[tuple[int, int], ...]) -> bytes:
    numbers = array("q", chain.from_iterable(entries))
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers.tobytes()


def _unpack_pairs(data: bytes, at: int) -> tuple[tuple[int, int], ...]:
    count, rest = divmod(len(data) - at, 16)
    if rest:
        raise IndexError(f"{rest} bytes too many")
    numbers = struct.unpack_from(">" + "Qq" * count, data, at)
    return tuple(zip(numbers[::2], numbers[1::2], strict=True))
