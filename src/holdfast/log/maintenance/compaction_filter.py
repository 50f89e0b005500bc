"""Which records survive compaction. Pure: batches go in, batches come out, offsets never change.

A record survives as the last of its key. A record without a key survives: nothing can replace it. A record of an aborted
transaction does not survive, and replaces nothing. A tombstone (a null value) survives until readers have had time to see it.
Markers of transactions survive. A batch from which records were taken still covers the offsets it covered; one that lost all goes.

Two passes. `CompactionScan` reads the part that was never compacted and finds the last offset of each key; `CompactionFilter` goes
over everything up to there. Keys are kept as they are up to 15 bytes, longer ones as 16 bytes of BLAKE2b: RAM per key is bounded.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from struct import Struct
from typing import Final

from crc32c import crc32c

from holdfast.log.batches import BatchHeader, Buffer, Record, RecordBatch, decode, encode, parse_header, set_append_time

ENTRY_BYTES: Final = 160  # what a key costs in RAM, measured: a short bytes, an int and their share of a dictionary

_DIGEST_BYTES: Final = 16
_MARKER: Final = Struct(">hh")  # version, type
_ABORT: Final = 0
_COMMIT: Final = 1


class KeyOffsetMap:
    """The last offset of each key, for one slice of all keys: of `slices`, those whose digest falls to number `slice_`."""

    def __init__(self, slice_: int = 0, slices: int = 1) -> None:
        self._slice, self._slices = slice_, slices
        self._offsets: dict[bytes, int] = {}

    def note(self, key: bytes, offset: int) -> None:
        """The key was seen at `offset`, later than ever before."""
        digest = self._digest(key)
        if self._slices == 1 or crc32c(digest) % self._slices == self._slice:
            self._offsets[digest] = offset

    def note_all(self, seen: Iterable[tuple[bytes, int]]) -> None:
        """The same for many, which may be earlier than what was noted: a transaction counts when it is committed."""
        for key, offset in seen:
            if offset > self.last(key):
                self.note(key, offset)

    def last(self, key: bytes) -> int:
        """Where the key was seen last; -1 if it was not, or does not fall to this slice."""
        return self._offsets.get(self._digest(key), -1)

    def covers(self, key: bytes) -> bool:
        """Whether the key falls to this slice."""
        return self._slices == 1 or crc32c(self._digest(key)) % self._slices == self._slice

    def __len__(self) -> int:
        return len(self._offsets)

    @staticmethod
    def _digest(key: bytes) -> bytes:
        return key if len(key) < _DIGEST_BYTES else blake2b(key, digest_size=_DIGEST_BYTES).digest()


class CompactionScan:
    """The first pass. `aborted` are ranges of offsets per producer; `first_open` is where the oldest open transaction begins.

    What follows an open transaction must not be compacted yet, so it must not replace anything either: then `below` it a second
    scan is needed, which takes from the first how the transactions before it ended.
    """

    def __init__(self, keys: KeyOffsetMap, *, first: "CompactionScan | None" = None) -> None:
        self.keys = keys
        self.aborted: dict[int, list[tuple[int, int]]] = {} if first is None else first.aborted
        self._below = None if first is None else first.first_open
        self._open: dict[int, tuple[int, list[tuple[bytes, int]]]] = {}

    def add(self, batches: Iterable[Buffer]) -> None:
        """Look at the next batches of the log."""
        for data in batches:
            header = parse_header(data)
            if self._below is not None:
                if header.base_offset < self._below and not header.is_control and not was_aborted(header, self.aborted):
                    self.keys.note_all(_keyed(header, data))
            elif header.is_control:
                self._settle(header, data)
            elif header.is_transactional:
                seen = self._open.setdefault(header.producer_id, (header.base_offset, []))[1]
                seen.extend(_keyed(header, data))
            else:
                for key, offset in _keyed(header, data):
                    self.keys.note(key, offset)

    @property
    def first_open(self) -> int | None:
        """Compaction stops here: whether what follows counts is not decided."""
        return min((first for first, _ in self._open.values()), default=None)

    def _settle(self, header: BatchHeader, data: Buffer) -> None:
        for marker in _records(header, data):
            if marker.key is None or len(marker.key) < _MARKER.size:
                continue
            kind = _MARKER.unpack_from(marker.key)[1]
            if kind not in (_ABORT, _COMMIT):
                continue
            first, seen = self._open.pop(header.producer_id, (marker.offset, []))
            if kind == _COMMIT:
                self.keys.note_all(seen)
            else:
                self.aborted.setdefault(header.producer_id, []).append((first, marker.offset))


class CompactionFilter:
    """The second pass, over one segment. `drop_tombstones`: readers have had time to see those of this segment."""

    def __init__(self, scan: CompactionScan, *, drop_tombstones: bool) -> None:
        self._keys, self._aborted, self._drop_tombstones = scan.keys, scan.aborted, drop_tombstones
        self.dropped = 0

    def pass_all(self, batches: Iterable[Buffer]) -> list[Buffer]:
        """What is left of the batches."""
        return [left for left in map(self._pass, batches) if left is not None]

    def _pass(self, data: Buffer) -> Buffer | None:
        """What is left of a batch: the very same bytes if nothing was taken, None if everything was."""
        header = parse_header(data)
        if header.is_control:
            return data
        if was_aborted(header, self._aborted):
            self.dropped += header.count
            return None
        records = list(_records(header, data))
        kept = [each for each in records if self._survives(each)]
        self.dropped += len(records) - len(kept)
        if len(kept) == len(records) and records:
            return data
        return rebuild_batch(header, kept) if kept else None

    def _survives(self, record: Record) -> bool:
        if record.key is None:
            return True
        if self._keys.last(record.key) > record.offset:
            return False
        return record.value is not None or not (self._drop_tombstones and self._keys.covers(record.key))


def was_aborted(header: BatchHeader, aborted: Mapping[int, Sequence[tuple[int, int]]]) -> bool:
    """Whether the batch belongs to a transaction that was aborted."""
    ranges = aborted.get(header.producer_id) if header.is_transactional else None
    if not ranges:
        return False
    at = bisect_right(ranges, (header.base_offset, 1 << 63)) - 1
    return at >= 0 and header.base_offset < ranges[at][1]


def rebuild_batch(header: BatchHeader, records: Sequence[Record]) -> bytes:
    """A batch with only these of its records, otherwise unchanged."""
    batch = encode(
        records,
        compression=header.compression,
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        leader_epoch=header.leader_epoch,
        transactional=header.is_transactional,
    )
    if not header.append_time:
        return batch
    stamped = bytearray(batch)
    set_append_time(stamped, timestamp_ms=header.max_timestamp)
    return bytes(stamped)


def _records(header: BatchHeader, data: Buffer) -> Iterable[Record]:
    return decode(RecordBatch(header, memoryview(data)))


def _keyed(header: BatchHeader, data: Buffer) -> Iterable[tuple[bytes, int]]:
    return ((each.key, each.offset) for each in _records(header, data) if each.key is not None)
