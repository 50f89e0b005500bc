"""The bytes of a snapshot: docs/formats/heap-snapshot.md. Frames of a few thousand entries each, with a checksum each.

The one rule: nothing here holds the interpreter for long. Work goes frame by frame in plain Python, so that a thread that encodes
or decodes millions of messages gives way to the event loop every few milliseconds; compression does not hold it at all.
"""

import sys
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from itertools import islice
from struct import Struct
from struct import error as struct_error
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
import zstandard

from holdfast.heap.batch.model import Prepared
from holdfast.heap.batch.reservations import ReservationsImage, ReservedMessage
from holdfast.heap.fairness.index import FairImage
from holdfast.heap.fairness.keys import KeyShare
from holdfast.heap.fairness.rules import decode_rules, encode_rules
from holdfast.heap.packed_heap import HeapImage, entry_rows, pack_heap_entries, read_heap_entries
from holdfast.heap.partition_state import Counters, MessageLease, OutgoingMessage
from holdfast.heap.pure_offset_heap import ROW_BYTES
from holdfast.heap.records import enqueue_key, read_enqueue
from holdfast.heap.state_image import StateImage
from holdfast.vocabulary.errors import CorruptError
from holdfast.vocabulary.settings import MIB

T = TypeVar("T")

MAGIC: Final = b"HFHS\x01"
MAGIC_FAIR: Final = b"HFHS\x02"  # with frames of fairness
_FRAME: Final = Struct(">BII")  # kind, bytes, bytes before compression
_CHECKSUM: Final = Struct(">I")  # CRC-32 of that and of what follows
_ENTRIES: Final = 8_192
_PIECES: Final = 256
_WORD_BITS: Final = 64
_WORD: Final = (1 << _WORD_BITS) - 1
_FRAME_BYTES_MAX: Final = 512 * MIB


class _Kind(IntEnum):
    HEAD = 1
    READY = 2
    READY_MEMBERS = 3
    READY_CHANGED = 4
    DELAYED = 5
    DELAYED_MEMBERS = 6
    DELAYED_CHANGED = 7
    LEASES = 8
    ATTEMPTS = 9
    RETRIES = 10
    RANKS = 11
    COPIES = 12
    OUTBOX = 13
    DEDUP = 14
    END = 15
    PARTITIONS = 18
    FAIRNESS = 32
    FAIR_KEYS = 33
    FAIR_NUMBERS = 34
    BATCHES = 48
    BATCHES_TO_FORGET = 49
    RESERVED = 50


class SnapshotSubject(NamedTuple):
    """Whose snapshot it is."""

    topic_id: str
    partition: int


class _Head(msgspec.Struct, array_like=True, frozen=True):
    topic_id: str
    partition: int
    mode: str
    next_offset: int
    spine_epoch: int
    counters: Counters


class _Fairness(msgspec.Struct, array_like=True, frozen=True):
    rules: bytes
    virtual_time: int
    full_at_ns: int
    seen_ns: int


class _Lists(NamedTuple):
    """The frames that hold rows of their own kind."""

    leases: list[tuple[int, MessageLease]]
    outbox: list[tuple[int, OutgoingMessage]]
    dedup: list[tuple[str, int, int, bytes]]
    reserved: ReservationsImage
    fair: list[_Fairness]
    keys: list[KeyShare]
    numbers: list[tuple[int, bytes]]
    partitions: list[int]


def encode_image(image: StateImage, subject: SnapshotSubject) -> list[bytes]:
    """The parts of a snapshot's object."""
    parts, count = [MAGIC if image.fair is None else MAGIC_FAIR], 0
    for kind, body in _bodies(image, subject):
        parts.append(_frame(kind, body))
        count += 1
    parts.append(_frame(_Kind.END, msgspec.msgpack.encode(count)))
    return parts


def decode_image(data: bytes | bytearray | memoryview, subject: SnapshotSubject) -> StateImage:
    """The image of a snapshot of this partition. `CorruptError`: it is damaged, of a newer release, or of another partition."""
    try:
        return _decode(memoryview(data), subject)
    except (
        ValueError,
        KeyError,
        IndexError,
        TypeError,
        struct_error,
        msgspec.DecodeError,
        zstandard.ZstdError,
    ) as error:
        raise CorruptError("heap snapshot", f"{type(error).__name__}: {error}") from error


def _bodies(image: StateImage, subject: SnapshotSubject) -> Iterator[tuple[_Kind, bytes]]:
    head = _Head(*subject, image.mode, image.next_offset, image.spine_epoch, image.counters)
    yield _Kind.HEAD, msgspec.msgpack.encode(head)
    yield from _heap(image.ready, _Kind.READY, _Kind.READY_MEMBERS, _Kind.READY_CHANGED)
    yield from _heap(image.delayed, _Kind.DELAYED, _Kind.DELAYED_MEMBERS, _Kind.DELAYED_CHANGED)
    pairs = {
        _Kind.ATTEMPTS: image.attempts,
        _Kind.RETRIES: image.retries,
        _Kind.RANKS: image.ranks,
        _Kind.COPIES: image.copies,
    }
    for kind, numbers in pairs.items():
        for some in _in_parts(numbers.items(), _ENTRIES):
            yield kind, _columns([offset for offset, _ in some], [number for _, number in some])
    rows: dict[_Kind, Iterable[Any]] = {
        _Kind.LEASES: image.leases.items(),
        _Kind.OUTBOX: image.outbox.items(),
        _Kind.DEDUP: image.dedup,
        _Kind.BATCHES: image.reserved.prepared,
        _Kind.BATCHES_TO_FORGET: image.reserved.to_forget,
        _Kind.RESERVED: map(_reserved_row, image.reserved.messages),
    }
    for kind, items in rows.items():
        for some in _in_parts(items, _ENTRIES):
            yield kind, msgspec.msgpack.encode(some)
    if image.fair is not None:
        yield from _fair_bodies(image.fair)
    if image.partitions:
        yield _Kind.PARTITIONS, msgspec.msgpack.encode(image.partitions)


def _fair_bodies(fair: FairImage) -> Iterator[tuple[_Kind, bytes]]:
    head = _Fairness(encode_rules(fair.rules), fair.virtual_time, fair.full_at_ns, fair.seen_ns)
    yield _Kind.FAIRNESS, msgspec.msgpack.encode(head)
    for keys in _in_parts(fair.keys, _ENTRIES):
        yield _Kind.FAIR_KEYS, msgspec.msgpack.encode(keys)
    for chunks in _in_parts(fair.numbers.items(), _PIECES):
        yield _Kind.FAIR_NUMBERS, msgspec.msgpack.encode(chunks)


def _in_parts(items: Iterable[T], count: int) -> Iterator[list[T]]:
    left = iter(items)
    while part := list(islice(left, count)):
        yield part


def _heap(heap: HeapImage, entries: _Kind, members: _Kind, changed: _Kind) -> Iterator[tuple[_Kind, bytes]]:
    if isinstance(heap.entries, list):
        for some in _in_parts(heap.entries, _ENTRIES):
            yield entries, pack_heap_entries(entry_rows(some), 0, len(some))
    else:
        for first in range(0, len(heap.entries) // ROW_BYTES, _ENTRIES):
            yield entries, pack_heap_entries(heap.entries, first, _ENTRIES)
    for pieces in _in_parts(heap.members.items(), _PIECES):
        yield members, msgspec.msgpack.encode(pieces)
    for rows in _in_parts(heap.changed.items(), _ENTRIES):
        yield changed, _numbers([offset for offset, _ in rows], [number for _, number in rows])


def _numbers(offsets: Sequence[int], numbers: Sequence[int]) -> bytes:
    """Offsets with numbers of up to 128 bits."""
    return _columns(offsets, [each & _WORD for each in numbers], [each >> _WORD_BITS for each in numbers])


def _columns(*columns: Sequence[int]) -> bytes:
    return b"".join(_big_endian(array("Q", column)).tobytes() for column in columns)


def _read_columns(body: bytes, count: int) -> list["array[int]"]:
    whole = array("Q")
    whole.frombytes(body)
    rows, rest = divmod(len(_big_endian(whole)), count)
    if rest:
        raise ValueError(f"{len(whole)} numbers in {count} columns")
    return [whole[at * rows : (at + 1) * rows] for at in range(count)]


def _big_endian(column: "array[int]") -> "array[int]":
    if sys.byteorder == "little":
        column.byteswap()
    return column


def _frame(kind: _Kind, body: bytes) -> bytes:
    stored = zstandard.ZstdCompressor(level=1).compress(body)
    head = _FRAME.pack(kind, len(stored), len(body))
    return head + _CHECKSUM.pack(zlib.crc32(stored, zlib.crc32(head))) + stored


def _frames(data: memoryview) -> Iterator[tuple[_Kind, bytes]]:
    if bytes(data[: len(MAGIC)]) not in (MAGIC, MAGIC_FAIR):
        raise ValueError(f"it begins with {bytes(data[:5])!r}")
    at, count = len(MAGIC), 0
    while True:
        if len(data) < at + _FRAME.size + _CHECKSUM.size:
            raise ValueError(f"it is cut after {count} frames")
        head = data[at : at + _FRAME.size]
        kind, stored_bytes, size_bytes = _FRAME.unpack(head)
        (checksum,) = _CHECKSUM.unpack_from(data, at + _FRAME.size)
        at += _FRAME.size + _CHECKSUM.size
        stored = data[at : at + stored_bytes]
        at += stored_bytes
        if len(stored) != stored_bytes or zlib.crc32(stored, zlib.crc32(head)) != checksum:
            raise ValueError(f"frame {count} is damaged")
        if size_bytes > _FRAME_BYTES_MAX:
            raise ValueError(f"frame {count} has {size_bytes} bytes")
        body = zstandard.ZstdDecompressor().decompress(stored, max_output_size=size_bytes)
        if kind == _Kind.END:
            if msgspec.msgpack.decode(body) != count or at != len(data):
                raise ValueError(f"it ends after {count} frames")
            return
        yield _Kind(kind), body
        count += 1


def _decode(data: memoryview, subject: SnapshotSubject) -> StateImage:
    heads: list[_Head] = []
    ready, delayed = HeapImage(bytearray(), {}, {}), HeapImage(bytearray(), {}, {})
    pairs: dict[_Kind, dict[int, int]] = {
        kind: {} for kind in (_Kind.ATTEMPTS, _Kind.RETRIES, _Kind.RANKS, _Kind.COPIES)
    }
    lists = _Lists([], [], [], ReservationsImage([], [], []), [], [], [], [])
    readers: Mapping[_Kind, Callable[[bytes], object]] = {
        _Kind.HEAD: lambda body: heads.append(msgspec.msgpack.decode(body, type=_Head)),
        _Kind.READY: lambda body: _read_entries(body, ready.entries),
        _Kind.READY_MEMBERS: lambda body: ready.members.update(_rows(body, tuple[int, bytes])),
        _Kind.READY_CHANGED: lambda body: _read_changed(body, ready.changed),
        _Kind.DELAYED: lambda body: _read_entries(body, delayed.entries),
        _Kind.DELAYED_MEMBERS: lambda body: delayed.members.update(_rows(body, tuple[int, bytes])),
        _Kind.DELAYED_CHANGED: lambda body: _read_changed(body, delayed.changed),
        _Kind.LEASES: lambda body: lists.leases.extend(_rows(body, tuple[int, MessageLease])),
        _Kind.OUTBOX: lambda body: lists.outbox.extend(_rows(body, tuple[int, OutgoingMessage])),
        _Kind.DEDUP: lambda body: lists.dedup.extend(_rows(body, tuple[str, int, int, bytes])),
        _Kind.BATCHES: lambda body: lists.reserved.prepared.extend(_rows(body, Prepared)),
        _Kind.BATCHES_TO_FORGET: lambda body: lists.reserved.to_forget.extend(_rows(body, Prepared)),
        _Kind.RESERVED: lambda body: lists.reserved.messages.extend(
            map(_reserved_message, _rows(body, tuple[int, str, int, bytes]))
        ),
        _Kind.FAIRNESS: lambda body: lists.fair.append(msgspec.msgpack.decode(body, type=_Fairness)),
        _Kind.FAIR_KEYS: lambda body: lists.keys.extend(_rows(body, KeyShare)),
        _Kind.FAIR_NUMBERS: lambda body: lists.numbers.extend(_rows(body, tuple[int, bytes])),
        _Kind.PARTITIONS: lambda body: lists.partitions.append(msgspec.msgpack.decode(body, type=int)),
    }
    for kind, body in _frames(data):
        if kind in pairs:
            pairs[kind].update(zip(*_read_columns(body, 2), strict=True))
        else:
            readers[kind](body)
    (head,) = heads
    if (head.topic_id, head.partition) != subject:
        raise ValueError(f"it is of partition {head.partition} of {head.topic_id}")
    return StateImage(
        mode=head.mode,
        next_offset=head.next_offset,
        spine_epoch=head.spine_epoch,
        counters=head.counters,
        ready=ready,
        delayed=delayed,
        leases=dict(lists.leases),
        attempts=pairs[_Kind.ATTEMPTS],
        retries=pairs[_Kind.RETRIES],
        ranks=pairs[_Kind.RANKS],
        copies=pairs[_Kind.COPIES],
        outbox=dict(lists.outbox),
        dedup=lists.dedup,
        reserved=lists.reserved,
        fair=_fair_image(lists),
        partitions=max(lists.partitions, default=0),
    )


def _reserved_row(item: tuple[int, ReservedMessage]) -> tuple[int, str, int, bytes]:
    offset, (batch, enqueued_ms, enqueue) = item
    return offset, batch, enqueued_ms, enqueue_key(enqueue)


def _reserved_message(row: tuple[int, str, int, bytes]) -> tuple[int, ReservedMessage]:
    offset, batch, enqueued_ms, key = row
    return offset, ReservedMessage(batch, enqueued_ms, read_enqueue(key, b"", ()))


def _fair_image(lists: _Lists) -> FairImage | None:
    if not lists.fair:
        return None
    (head,) = lists.fair
    times = head.virtual_time, head.full_at_ns, head.seen_ns
    return FairImage(decode_rules(head.rules), *times, lists.keys, dict(lists.numbers))


def _rows(body: bytes, row: type[T]) -> list[T]:
    return msgspec.msgpack.decode(body, type=list[row])  # type: ignore[valid-type]


def _read_entries(body: bytes, entries: bytes | bytearray | list[int]) -> None:
    assert isinstance(entries, bytearray)
    entries += read_heap_entries(body)


def _read_changed(body: bytes, changed: dict[int, int]) -> None:
    for offset, low, high in zip(*_read_columns(body, 3), strict=True):
        changed[offset] = high << _WORD_BITS | low
