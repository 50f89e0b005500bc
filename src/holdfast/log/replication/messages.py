"""What agents send each other about a partition, and its bytes.

| message | answer |
| --- | --- |
| `Append` | `Ack`, `Reject`, `Mismatch` |
| `Seal` | `Sealed`, `Reject`, `WrongWal` |
| `Tail` | `TailEntries`, `Reject` |
| `Base` | `Ack`, `Reject` |
| `Announce` | none |

Every answer repeats the epoch of its message, so that it needs no connection to be understood: late, repeated and reordered ones
are harmless. `encode_parts` copies no payload, `decode` returns views of what it was given. The one rule: bytes that are
cut off, of another version, or whose checksum does not hold are refused with `InvalidError` as a whole.
"""

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Final

import msgspec
from crc32c import crc32c

from holdfast.log.replication.positions import Epochs, PartitionKey, Position, ReplicaEntry
from holdfast.log.segments.model import EpochStart
from holdfast.log.wal.frames import Buffer
from holdfast.vocabulary.errors import InvalidError


class Append(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Entries that follow `previous`; perhaps none. `hw`: the leader's high watermark, an offset."""

    partition: PartitionKey
    epoch: int
    previous: Position
    entries: tuple[ReplicaEntry, ...] = ()
    hw: int
    published: Position

    @property
    def last(self) -> Position:
        """Where the message ends."""
        return self.entries[-1].position if self.entries else self.previous

    @property
    def size_bytes(self) -> int:
        """Of its entries."""
        entries = self.entries
        return entries[0].size_bytes if len(entries) == 1 else sum([entry.size_bytes for entry in entries])


class Seal(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Promise to accept nothing below `epoch`, and say what you have. For the replica `wal_id` alone."""

    partition: PartitionKey
    epoch: int
    wal_id: str


class ReadTail(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Send the entries behind `start`, about `bytes_max` of them."""

    partition: PartitionKey
    epoch: int
    start: Position
    bytes_max: int


class Base(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Begin again at `published`: what the leader still has begins there."""

    partition: PartitionKey
    epoch: int
    published: Position


class Announce(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The high watermark and what is published, of a leader that has no entries to send."""

    partition: PartitionKey
    epoch: int
    hw: int
    published: Position


class Ack(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Up to `matched` the replica's log equals that of the leader of `epoch`, and is fsynced."""

    partition: PartitionKey
    epoch: int
    matched: Position


class Reject(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A message of `epoch` came after a promise to a higher one."""

    partition: PartitionKey
    epoch: int
    promised: int


class Mismatch(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The replica lacks the previous position of an `Append`. What it has: enough to find the fork."""

    partition: PartitionKey
    epoch: int
    base: Position
    position: Position
    epochs: Epochs


class Sealed(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The promise is fsynced, and this is the log at its LSN."""

    partition: PartitionKey
    epoch: int
    base: Position
    position: Position
    epochs: Epochs


class WrongWal(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Another replica was meant: this one is `wal_id`."""

    partition: PartitionKey
    epoch: int
    wal_id: str


class TailEntries(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Entries that follow `previous`, of a log that ends at `position`. The sender of the `Tail` asks again for what is missing."""

    partition: PartitionKey
    epoch: int
    previous: Position
    entries: tuple[ReplicaEntry, ...]
    position: Position

    @property
    def last(self) -> Position:
        """Where the message ends."""
        return self.entries[-1].position if self.entries else self.previous


Request = Append | Seal | ReadTail | Base | Announce
Answer = Ack | Reject | Mismatch | Sealed | WrongWal | TailEntries
Message = Request | Answer

VERSION: Final = 1  # of the bytes; agents agree on it when they connect

_HEAD: Final = Struct(">BB16sIQ")  # version, kind, topic id, partition, epoch
_POSITION: Final = Struct(">QQ")
_APPEND: Final = Struct(">QQQQQI")  # previous position, high watermark, published position, entries
_ENTRY: Final = Struct(">QQIII")  # epoch, base offset, count, payload bytes, their CRC-32C
# What nearly all messages are, in one piece: an `Append` of one entry up to its payload, and an `Ack`.
_APPEND_ONE: Final = Struct(">BB16sIQ QQQQQI QQIII")
_ACK: Final = Struct(">BB16sIQ QQ")
_UINT64: Final = Struct(">Q")
_UINT32: Final = Struct(">I")
_INT_32_MAX: Final = 2**31 - 1
_INT_64_MAX: Final = 2**63 - 1


def encode(message: Message) -> bytes:
    """The bytes of a message."""
    return b"".join(encode_parts(message))


def encode_parts(message: Message) -> list[Buffer]:
    """The bytes of a message in pieces, for a vectored write: payloads are in it as they are, not copied."""
    kind, write, _ = _CODECS[type(message)]
    topic_id, number = message.partition
    if type(message) is Ack:
        return [_ACK.pack(VERSION, kind, topic_id, number, message.epoch, *message.matched)]
    if type(message) is Append and len(message.entries) == 1:
        return _encode_append_one(message, kind)
    parts: list[Buffer] = [_HEAD.pack(VERSION, kind, topic_id, number, message.epoch)]
    write(message, parts)
    return parts


def decode(data: Buffer) -> Message:
    """The message in `data`, whose payloads are views of it. `InvalidError`: these bytes are none."""
    view = memoryview(data).toreadonly()
    found = _decode_frequent(view)
    if found is not None:
        return found
    reader = _Reader(view)
    version, kind, topic_id, number, epoch = reader.head()
    if version != VERSION:
        raise InvalidError("version of a replication message", version, f"{VERSION}: use the same release")
    if kind not in _READERS:
        raise InvalidError("kind of replication message", kind, f"one of {sorted(_READERS)}")
    message = _READERS[kind](reader, (topic_id, number), epoch)
    if reader.left_bytes:
        raise InvalidError("replication message", f"{reader.left_bytes} bytes behind its end", "none")
    return message


def _encode_append_one(message: Append, kind: int) -> list[Buffer]:
    topic_id, number = message.partition
    epoch, base, count, payload, checksum = message.entries[0]
    size = len(payload[0]) if len(payload) == 1 else sum(map(len, payload))
    head = _APPEND_ONE.pack(
        *(VERSION, kind, topic_id, number, message.epoch, *message.previous, message.hw, *message.published, 1),
        *(epoch, base, count, size, _checksum(payload) if checksum is None else checksum),
    )
    return [head, *payload]


def _decode_frequent(view: memoryview) -> Append | Ack | None:
    """An `Ack`, or an `Append` of one entry that has a payload. None: it is another message, or one that the rest refuses."""
    size = view.nbytes
    if size == _ACK.size and view[1] == _CODECS[Ack][0]:
        version, _, topic_id, number, epoch, matched_epoch, matched_offset = _ACK.unpack_from(view)
        if version == VERSION and max(epoch, matched_epoch, matched_offset) <= _INT_64_MAX:
            matched = Position(matched_epoch, matched_offset)
            return Ack(partition=(topic_id, number), epoch=epoch, matched=matched)
    elif size > _APPEND_ONE.size and view[1] == _CODECS[Append][0]:
        version, _, topic_id, number, epoch, *numbers, entries, of, base, count, left, checksum = (
            _APPEND_ONE.unpack_from(view)
        )
        if (
            (version, entries, left) == (VERSION, 1, size - _APPEND_ONE.size)
            and count <= _INT_32_MAX
            and max(epoch, of, base + count + 1, *numbers) <= _INT_64_MAX
            and crc32c(payload := view[_APPEND_ONE.size :]) == checksum
        ):
            previous_epoch, previous_offset, hw, published_epoch, published_offset = numbers
            return Append(
                partition=(topic_id, number),
                epoch=epoch,
                previous=Position(previous_epoch, previous_offset),
                entries=(ReplicaEntry(of, base, count, (payload,), checksum),),
                hw=hw,
                published=Position(published_epoch, published_offset),
            )
    return None


class _Reader:
    """Reads fields one after another."""

    def __init__(self, view: memoryview) -> None:
        self._view, self._at, self._size = view, 0, len(view)

    @property
    def left_bytes(self) -> int:
        return self._size - self._at

    def unpack(self, layout: Struct) -> tuple[int, ...]:
        at = self._at
        self._skip(layout.size)
        return layout.unpack_from(self._view, at)

    def take(self, size: int) -> memoryview:
        at = self._at
        self._skip(size)
        return self._view[at : self._at]

    def _skip(self, size: int) -> None:
        self._at += size
        if self._at > self._size:
            raise InvalidError("replication message", f"cut off after {self._size} bytes", "whole")

    def head(self) -> tuple[int, int, bytes, int, int]:
        self._skip(_HEAD.size)
        version, kind, topic_id, number, epoch = _HEAD.unpack_from(self._view)
        _check_numbers(epoch)
        return version, kind, topic_id, number, epoch

    def number(self) -> int:
        [found] = self.unpack(_UINT64)
        _check_numbers(found)
        return found

    def position(self) -> Position:
        epoch, offset = self.unpack(_POSITION)
        _check_numbers(epoch, offset)
        return Position(epoch, offset)

    def text(self) -> str:
        try:
            return str(self.take(self.unpack(_UINT32)[0]), "utf-8")
        except UnicodeDecodeError as error:
            raise InvalidError("text in a replication message", str(error), "UTF-8") from error

    def epochs(self) -> Epochs:
        [count] = self.unpack(_UINT32)
        self._check_count(count, _POSITION)
        return tuple([EpochStart(*self.position()) for _ in range(count)])

    def entries(self, count: int) -> tuple[ReplicaEntry, ...]:
        self._check_count(count, _ENTRY)
        return tuple([self._entry() for _ in range(count)])

    def _check_count(self, count: int, layout: Struct) -> None:
        """No more than there are bytes for, so that a wrong number costs no memory."""
        if count * layout.size > self.left_bytes:
            raise InvalidError("replication message", f"{count} items in {self.left_bytes} bytes", "whole")

    def _entry(self) -> ReplicaEntry:
        epoch, base, count, size, checksum = self.unpack(_ENTRY)
        if count > _INT_32_MAX:
            raise InvalidError("count of a replicated entry", count, f"at most {_INT_32_MAX}")
        _check_numbers(epoch, base + count + 1)  # as a frame, an epoch-start entry counts as one offset
        payload = self.take(size)
        if crc32c(payload) != checksum:
            raise InvalidError(
                "replicated entry", f"epoch {epoch}, offset {base}: its checksum does not hold", "intact"
            )
        return ReplicaEntry(epoch, base, count, (payload,) if size else (), checksum)


def _check_numbers(*numbers: int) -> None:
    """Refuse what no WAL takes before a replica decides on it."""
    if (largest := max(numbers)) > _INT_64_MAX:
        raise InvalidError("number in a replication message", largest, f"at most {_INT_64_MAX}")


def _write_entries(entries: tuple[ReplicaEntry, ...], parts: list[Buffer]) -> None:
    for entry in entries:
        crc = _checksum(entry.payload) if entry.checksum is None else entry.checksum
        parts.append(_ENTRY.pack(entry.epoch, entry.base_offset, entry.count, entry.size_bytes, crc))
        parts += entry.payload


def _checksum(payload: Sequence[Buffer]) -> int:
    crc = 0
    for part in payload:
        crc = crc32c(part, crc)
    return crc


def _write_text(text: str, parts: list[Buffer]) -> None:
    data = text.encode()
    parts += (_UINT32.pack(len(data)), data)


def _write_append(message: Append, parts: list[Buffer]) -> None:
    entries = message.entries
    parts.append(_APPEND.pack(*message.previous, message.hw, *message.published, len(entries)))
    _write_entries(entries, parts)


def _read_append(reader: _Reader, partition: PartitionKey, epoch: int) -> Append:
    *numbers, count = reader.unpack(_APPEND)
    _check_numbers(*numbers)
    previous_epoch, previous_offset, hw, published_epoch, published_offset = numbers
    return Append(
        partition=partition,
        epoch=epoch,
        previous=Position(previous_epoch, previous_offset),
        entries=reader.entries(count),
        hw=hw,
        published=Position(published_epoch, published_offset),
    )


def _write_named(message: Seal | WrongWal, parts: list[Buffer]) -> None:
    _write_text(message.wal_id, parts)


def _read_seal(reader: _Reader, partition: PartitionKey, epoch: int) -> Seal:
    return Seal(partition=partition, epoch=epoch, wal_id=reader.text())


def _read_wrong_wal(reader: _Reader, partition: PartitionKey, epoch: int) -> WrongWal:
    return WrongWal(partition=partition, epoch=epoch, wal_id=reader.text())


def _write_tail(message: ReadTail, parts: list[Buffer]) -> None:
    parts.append(_POSITION.pack(*message.start) + _UINT64.pack(message.bytes_max))


def _read_tail(reader: _Reader, partition: PartitionKey, epoch: int) -> ReadTail:
    return ReadTail(partition=partition, epoch=epoch, start=reader.position(), bytes_max=reader.number())


def _write_base(message: Base, parts: list[Buffer]) -> None:
    parts.append(_POSITION.pack(*message.published))


def _read_base(reader: _Reader, partition: PartitionKey, epoch: int) -> Base:
    return Base(partition=partition, epoch=epoch, published=reader.position())


def _write_announce(message: Announce, parts: list[Buffer]) -> None:
    parts.append(_UINT64.pack(message.hw) + _POSITION.pack(*message.published))


def _read_announce(reader: _Reader, partition: PartitionKey, epoch: int) -> Announce:
    return Announce(partition=partition, epoch=epoch, hw=reader.number(), published=reader.position())


def _write_ack(message: Ack, parts: list[Buffer]) -> None:
    parts.append(_POSITION.pack(*message.matched))


def _read_ack(reader: _Reader, partition: PartitionKey, epoch: int) -> Ack:
    return Ack(partition=partition, epoch=epoch, matched=reader.position())


def _write_reject(message: Reject, parts: list[Buffer]) -> None:
    parts.append(_UINT64.pack(message.promised))


def _read_reject(reader: _Reader, partition: PartitionKey, epoch: int) -> Reject:
    return Reject(partition=partition, epoch=epoch, promised=reader.number())


def _write_summary(message: Mismatch | Sealed, parts: list[Buffer]) -> None:
    epochs = b"".join(_POSITION.pack(*each) for each in message.epochs)
    parts.append(
        _POSITION.pack(*message.base) + _POSITION.pack(*message.position) + _UINT32.pack(len(message.epochs)) + epochs
    )


def _read_mismatch(reader: _Reader, partition: PartitionKey, epoch: int) -> Mismatch:
    base, position = reader.position(), reader.position()
    return Mismatch(partition=partition, epoch=epoch, base=base, position=position, epochs=reader.epochs())


def _read_sealed(reader: _Reader, partition: PartitionKey, epoch: int) -> Sealed:
    base, position = reader.position(), reader.position()
    return Sealed(partition=partition, epoch=epoch, base=base, position=position, epochs=reader.epochs())


def _write_tail_entries(message: TailEntries, parts: list[Buffer]) -> None:
    count = _UINT32.pack(len(message.entries))
    parts.append(_POSITION.pack(*message.previous) + _POSITION.pack(*message.position) + count)
    _write_entries(message.entries, parts)


def _read_tail_entries(reader: _Reader, partition: PartitionKey, epoch: int) -> TailEntries:
    previous, position = reader.position(), reader.position()
    entries = reader.entries(*reader.unpack(_UINT32))
    return TailEntries(partition=partition, epoch=epoch, previous=previous, position=position, entries=entries)


# The numbers are on the wire: they are never used for anything else.
_CODECS: Final[dict[type, tuple[int, Callable[..., None], Callable[[_Reader, PartitionKey, int], Message]]]] = {
    Append: (1, _write_append, _read_append),
    Seal: (2, _write_named, _read_seal),
    ReadTail: (3, _write_tail, _read_tail),
    Base: (4, _write_base, _read_base),
    Announce: (5, _write_announce, _read_announce),
    Ack: (16, _write_ack, _read_ack),
    Reject: (17, _write_reject, _read_reject),
    Mismatch: (18, _write_summary, _read_mismatch),
    Sealed: (19, _write_summary, _read_sealed),
    WrongWal: (20, _write_named, _read_wrong_wal),
    TailEntries: (21, _write_tail_entries, _read_tail_entries),
}
_READERS: Final = {kind: read for kind, _, read in _CODECS.values()}
