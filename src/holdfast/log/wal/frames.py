"""The bytes of the WAL: frames, and the two records at the head of a file. `docs/formats/wal.md` describes them.

The one rule: nothing is taken from the disk that does not carry its file's mark (generation and salt) and a CRC that holds. The
salt is drawn for each use of a file, so that neither a frame of an earlier use nor bytes inside a payload pass for a frame.
"""

from collections.abc import Sequence
from hashlib import blake2b
from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from holdfast.vocabulary.errors import InvalidError

Buffer = bytes | bytearray | memoryview

VERSION: Final = 1
DATA: Final = 1  # record batches of a partition
NOTE: Final = 2  # anything else the owner of a partition wants to find again after a crash
MARK: Final = 3  # the WAL's own: proves what was synced when nothing else followed; never returned to readers
REPLICA_STATE: Final = 4  # of a replicated partition: its promise, and where its log begins
TRUNCATION: Final = 5  # what stands before it, behind a position, is no part of the log
EPOCH_START: Final = 6  # the first entry of an epoch; it takes no offset
REPLICATION_KINDS: Final = frozenset({REPLICA_STATE, TRUNCATION, EPOCH_START})
KIND_NAMES: Final = {
    DATA: "data",
    NOTE: "note",
    MARK: "mark",
    REPLICA_STATE: "replica state",
    TRUNCATION: "truncation",
    EPOCH_START: "epoch start",
}
# Files with frames of replication say so in their header: a release that does not know them must not skip a promise.
REPLICATION_VERSION: Final = 2
FILE_VERSIONS: Final = (VERSION, REPLICATION_VERSION)
STATE_BIT: Final = 1 << 31  # in the partition's number: its replica states are released apart from its entries

FRAME_MAGIC: Final = b"HFWL"
_MARK: Final = Struct(">4sQQ")  # magic, generation, salt: the first bytes of each frame of one use of a file
_FRAME: Final = Struct(">20sBBHQQ16sQQIIIII")
_CRC: Final = Struct(">I")
_ORIGIN: Final = Struct(
    ">QI"
)  # the LSN of the frame that a copy was made of, and a CRC: the first bytes of a copy's gap
ORIGIN_BYTES: Final = _ORIGIN.size
_COPY: Final = 1  # flag
FRAME_BYTES: Final = _FRAME.size + _CRC.size  # 96

FRAMES_AT: Final = 4096  # where the first frame of a file stands
OPENING_AT: Final = 512  # a sector of its own: writing it cannot tear the header
_FILE: Final = Struct(">4sHHQQQQ")
_OPENING: Final = Struct(">4sHHQQQQ")
_RECORD_BYTES: Final = _FILE.size + _CRC.size
_FILE_MAGIC: Final = b"HFWF"
_OPENING_MAGIC: Final = b"HFWO"

NO_TOPIC: Final = bytes(16)
_INT_32_MAX: Final = 2**31 - 1
_INT_64_MAX: Final = 2**63 - 1


class WalFrame(NamedTuple):
    """One append: `count` offsets of a partition from `base_offset` on. The WAL never looks into the payload."""

    topic_id: bytes
    partition: int
    epoch: int
    base_offset: int
    count: int  # type: ignore[assignment]  # the log's word; the method of tuple is of no use here
    payload: Sequence[Buffer]
    kind: int = DATA
    lsn: int = 0  # set by the WAL in frames it read back
    checksum: int | None = None  # of the payload, CRC-32C, if it is known already
    batch_count: int = 1  # in the payload; nothing but a metric depends on it
    origin_lsn: int = 0  # of a copy that was read back: the LSN it had first

    @property
    def end_offset(self) -> int:
        """The first offset after this frame."""
        return self.base_offset + self.count


class FrameHeader(NamedTuple):
    """The head of a frame, in the order of the bytes after the file's mark."""

    mark: bytes
    version: int
    kind: int
    flags: int
    lsn: int
    last_synced: int
    topic_id: bytes
    epoch: int
    base_offset: int
    partition: int
    count: int  # type: ignore[assignment]
    payload_bytes: int
    payload_crc: int
    gap_bytes: int  # between the head and the payload
    origin_lsn: int = 0  # of a copy: the LSN it had first; not in the head

    @property
    def is_copy(self) -> bool:
        """Whether the gap begins with an origin."""
        return bool(self.flags & _COPY)

    @property
    def end_offset(self) -> int:
        """The first offset after this frame."""
        return self.base_offset + self.count

    @property
    def payload_at(self) -> int:
        """Where the payload begins, counted from the head."""
        return FRAME_BYTES + self.gap_bytes

    @property
    def size_bytes(self) -> int:
        """What the frame takes on disk."""
        return self.payload_at + self.payload_bytes

    def frame(self, payload: bytes) -> WalFrame:
        """The frame as its writer gave it, with its LSN."""
        return WalFrame(
            self.topic_id, self.partition, self.epoch, self.base_offset, self.count, (payload,), self.kind, self.lsn,
            origin_lsn=self.origin_lsn,
        )  # fmt: skip


class FileHeader(NamedTuple):
    """Which use of the file this is. Written and synced before the file gets the name of a live one."""

    generation: int
    salt: int
    file_bytes: int
    created_at_ms: int

    @property
    def mark(self) -> bytes:
        """The first bytes of every frame of this use of the file."""
        return _MARK.pack(FRAME_MAGIC, self.generation, self.salt)


def checked_bytes(frame: WalFrame, payload_bytes_max: int) -> int:
    """The bytes the frame takes on disk. Raises `InvalidError` for what could not be written, before anything is."""
    size = 0
    for part in frame.payload:
        if type(part) is memoryview:
            if not part.c_contiguous:
                raise InvalidError("payload", "a view with gaps", "contiguous memory")
            size += part.nbytes
        elif isinstance(part, bytes | bytearray):
            size += len(part)
        else:
            raise InvalidError("payload", type(part).__name__, "a sequence of bytes, bytearrays and memoryviews")
    if size > payload_bytes_max:
        raise InvalidError("payload bytes", size, f"at most {payload_bytes_max}; a larger file_bytes allows more")
    if len(frame.topic_id) != len(NO_TOPIC):
        raise InvalidError("topic id", frame.topic_id, "16 bytes")
    number = frame.partition ^ STATE_BIT if frame.kind == REPLICA_STATE else frame.partition
    if not 0 <= number <= _INT_32_MAX or not 0 <= frame.count <= _INT_32_MAX:
        raise InvalidError("partition and count", (frame.partition, frame.count), f"0 to {_INT_32_MAX}")
    if not 0 <= frame.epoch <= _INT_64_MAX or not 0 <= frame.base_offset <= _INT_64_MAX - frame.count:
        raise InvalidError("epoch and base offset", (frame.epoch, frame.base_offset), f"0 to {_INT_64_MAX}")
    if frame.kind == MARK or frame.kind not in KIND_NAMES:
        raise InvalidError("kind of frame", frame.kind, f"one of {sorted(KIND_NAMES)}, and no mark ({MARK})")
    return size + FRAME_BYTES


def generation_mark(generation: int) -> bytes:
    """The start of `FileHeader.mark`, for looking into a file whose salt is lost."""
    return _MARK.pack(FRAME_MAGIC, generation, 0)[:12]


def salt_of(token: str) -> int:
    """A salt made of an identifier that cannot be guessed."""
    return int.from_bytes(blake2b(token.encode(), digest_size=8).digest(), "big")


def encode_head(
    mark: bytes,
    lsn: int,
    last_synced: int,
    frame: WalFrame,
    payload_bytes: int,
    gap_bytes: int = 0,
    *,
    copy: bool = False,
) -> bytes:
    """The head of `frame`; its payload follows it on disk as it is, `gap_bytes` behind it. `copy`: the gap is an origin."""
    crc = frame.checksum
    if crc is None:
        crc = 0
        for part in frame.payload:
            crc = crc32c(part, crc)
    head = _FRAME.pack(
        mark, VERSION, frame.kind, _COPY if copy else 0, lsn, last_synced, frame.topic_id, frame.epoch, frame.base_offset,
        frame.partition, frame.count, payload_bytes, crc, gap_bytes,
    )  # fmt: skip
    return head + _CRC.pack(crc32c(head))


def decode_head(head: Buffer, mark: bytes) -> FrameHeader | None:
    """The head of a frame whose first bytes are `mark`; None if that is not what stands here."""
    if len(head) < FRAME_BYTES or head[: len(mark)] != mark:
        return None
    if _CRC.unpack_from(head, _FRAME.size)[0] != crc32c(head[: _FRAME.size]):
        return None
    return FrameHeader(*_FRAME.unpack_from(head))


def encode_origin(lsn: int) -> bytes:
    """The gap of a copy: the LSN of the frame it was made of. Whoever needs the order of writing orders frames by it."""
    return _ORIGIN.pack(lsn, crc32c(lsn.to_bytes(8, "big")))


def decode_origin(gap: Buffer) -> int | None:
    """The LSN in the gap of a copy; None if it is damaged."""
    if len(gap) < ORIGIN_BYTES:
        return None
    lsn, crc = _ORIGIN.unpack_from(gap)
    return int(lsn) if crc32c(lsn.to_bytes(8, "big")) == crc else None


def encode_file_header(header: FileHeader, *, replicated: bool = False) -> bytes:
    """The record at byte 0 of a file. `replicated`: frames of replication may stand in it."""
    return _with_crc(_FILE.pack(_FILE_MAGIC, REPLICATION_VERSION if replicated else VERSION, 0, *header))


def decode_file_header(data: Buffer) -> tuple[FileHeader, int] | None:
    """The header and its format version; None if it is damaged."""
    if (fields := _verified(_FILE, _FILE_MAGIC, data)) is None:
        return None
    return FileHeader(*fields[3:]), fields[1]


def encode_opening(header: FileHeader, first_lsn: int, opened_at_ms: int) -> bytes:
    """The record with the LSN at which the file begins: all before it was synced. Written before its first frame."""
    return _with_crc(_OPENING.pack(_OPENING_MAGIC, VERSION, 0, header.generation, header.salt, first_lsn, opened_at_ms))


def decode_opening(data: Buffer, header: FileHeader) -> int | None:
    """The first LSN of the file; None if it was never opened in this use of the file, or the record is damaged."""
    fields = _verified(_OPENING, _OPENING_MAGIC, data)
    if fields is None or fields[3:5] != (header.generation, header.salt):
        return None
    return int(fields[5])


def _with_crc(record: bytes) -> bytes:
    return record + _CRC.pack(crc32c(record))


def _verified(layout: Struct, magic: bytes, data: Buffer) -> tuple[int, ...] | None:
    if len(data) < _RECORD_BYTES or data[:4] != magic:
        return None
    if _CRC.unpack_from(data, layout.size)[0] != crc32c(data[: layout.size]):
        return None
    return layout.unpack_from(data)
