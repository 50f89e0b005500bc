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

from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct
from typing import Final

from crc32c import crc32c

from holdfast.log.replication.positions import Epochs, PartitionKey, Position, ReplicaEntry
from holdfast.log.segments.model import EpochStart
from holdfast.log.wal.frames import Buffer
from holdfast.vocabulary.errors import InvalidError


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Seal:
    """Promise to accept nothing below `epoch`, and say what you have. For the replica `wal_id` alone."""

    partition: PartitionKey
    epoch: int
    wal_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTail:
    """Send the entries behind `start`, about `bytes_max` of them."""

    partition: PartitionKey
    epoch: int
    start: Position
    bytes_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """Begin again at `published`: what the leader still has begins there."""

    partition: PartitionKey
    epoch: int
    published: Position


@dataclass(frozen=True, slots=True, kw_only=True)
class Announce:
    """The high watermark and what is published, of a leader that has no entries to send."""

    partition: PartitionKey
    epoch: int
    hw: int
    published: Position


@dataclass(frozen=True, slots=True, kw_only=True)
class Ack:
    """Up to `matched` the replica's log equals that of the leader of `epoch`, and is fsynced."""

    partition: PartitionKey
    epoch: int
    matched: Position


@dataclass(frozen=True, slots=True, kw_only=True)
class Reject:
    """A message of `epoch` came after a promise to a higher one."""

    partition: PartitionKey
    epoch: int
    promised: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """The replica lacks the previous position of an `Append`. What it has: enough to find the fork."""

    partition: PartitionKey
    epoch: int
    base: Position
    position: Position
    epochs: Epochs


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """The promise is fsynced, and this is the log at its LSN."""

    partition: PartitionKey
    epoch: int
    base: Position
    position: Position
    epochs: Epochs


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongWal:
    """Another replica was meant: this one is `wal_id`."""

    partition: PartitionKey
    epoch: int
    wal_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TailEntries:
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
_ENTRY: Final = Struct(">QQIII")  # epoch, base offset, count, payload bytes, their CRC-32C
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
    parts: list[Buffer] = [_HEAD.pack(VERSION, kind, topic_id, number, message.epoch)]
    write(message, parts)
    return parts


def decode(data: Buffer) -> Message:
    """The message in `data`, whose payloads are views of it. `InvalidError`: these bytes are none."""
    reader = _Reader(memoryview(data).toreadonly())
    version, kind, topic_id, number, epoch = reader.head()
    if version != VERSION:
        raise InvalidError("version of a replication message", version, f"{VERSION}: use the same release")
    if kind not in _READERS:
        raise InvalidError("kind of replication message", kind, f"one of {sorted(_READERS)}")
    message = _READERS[kind](reader, (topic_id, number), epoch)
    if reader.left_bytes:
        raise InvalidError("replication message", f"{reader.left_bytes} bytes behind its end", "none")
    return message


class _Reader:
    """Reads fields one after another."""

    def __init__(self, view: memoryview) -> None:
        self._view, self._at = view, 0

    @property
    def left_bytes(self) -> int:
        return len(self._view) - self._at

    def unpack(self, layout: Struct) -> tuple[int, ...]:
        return layout.unpack(self.take(layout.size))

    def take(self, size: int) -> memoryview:
        if size > self.left_bytes:
            raise InvalidError("replication message", f"cut off after {len(self._view)} bytes", "whole")
        self._at += size
        return self._view[self._at - size : self._at]

    def head(self) -> tuple[int, int, bytes, int, int]:
        version, kind, topic_id, number, epoch = _HEAD.unpack(self.take(_HEAD.size))
        _check_numbers(epoch)
        return version, kind, topic_id, number, epoch

    def number(self) -> int:
        [found] = self.unpack(_UINT64)
        _check_numbers(found)
        return found

    def position(self) -> Position:
        found = Position._make(self.unpack(_POSITION))
        _check_numbers(*found)
        return found

    def text(self) -> str:
        try:
            return str(self.take(self.unpack(_UINT32)[0]), "utf-8")
        except UnicodeDecodeError as error:
            raise InvalidError("text in a replication message", str(error), "UTF-8") from error

    def epochs(self) -> Epochs:
        return tuple(EpochStart(*self.position()) for _ in range(self._count(_POSITION)))

    def entries(self) -> tuple[ReplicaEntry, ...]:
        return tuple(self._entry() for _ in range(self._count(_ENTRY)))

    def _count(self, layout: Struct) -> int:
        """How many follow; no more than there are bytes for, so that a wrong number costs no memory."""
        [count] = self.unpack(_UINT32)
        if count * layout.size > self.left_bytes:
            raise InvalidError("replication message", f"{count} items in {self.left_bytes} bytes", "whole")
        return count

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
    parts.append(_UINT32.pack(len(entries)))
    for entry in entries:
        crc = entry.checksum
        if crc is None:
            crc = 0
            for part in entry.payload:
                crc = crc32c(part, crc)
        parts.append(_ENTRY.pack(entry.epoch, entry.base_offset, entry.count, entry.size_bytes, crc))
        parts += entry.payload


def _write_text(text: str, parts: list[Buffer]) -> None:
    data = text.encode()
    parts += (_UINT32.pack(len(data)), data)


def _write_append(message: Append, parts: list[Buffer]) -> None:
    parts.append(_POSITION.pack(*message.previous) + _UINT64.pack(message.hw) + _POSITION.pack(*message.published))
    _write_entries(message.entries, parts)


def _read_append(reader: _Reader, partition: PartitionKey, epoch: int) -> Append:
    previous, hw, published = reader.position(), reader.number(), reader.position()
    return Append(
        partition=partition, epoch=epoch, previous=previous, hw=hw, published=published, entries=reader.entries()
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
    parts.append(_POSITION.pack(*message.previous) + _POSITION.pack(*message.position))
    _write_entries(message.entries, parts)


def _read_tail_entries(reader: _Reader, partition: PartitionKey, epoch: int) -> TailEntries:
    previous, position = reader.position(), reader.position()
    return TailEntries(partition=partition, epoch=epoch, previous=previous, position=position, entries=reader.entries())


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
