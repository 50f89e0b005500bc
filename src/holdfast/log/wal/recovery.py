"""What the files of a WAL hold after any crash, and whether it can be trusted.

The one rule (docs/safety.md, rule 12): frames count as long as each follows the one before. Where they end, the rest is a torn tail
if nothing proves that more was synced, and corruption if anything does: a later frame's last-synced LSN, or a later file's first
LSN. Nothing is changed here; `startup.py` repairs a torn tail, `repair.py` takes a damaged WAL apart.
"""

from array import array
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from holdfast.log.wal.file_reader import WalReader, heads_after, walk
from holdfast.log.wal.files import live_files
from holdfast.log.wal.frames import (
    FILE_VERSIONS,
    FRAMES_AT,
    MARK,
    OPENING_AT,
    FileHeader,
    decode_file_header,
    decode_opening,
)
from holdfast.vocabulary.errors import CorruptError, InvalidError
from holdfast.vocabulary.settings import MIB

PartitionKey = tuple[bytes, int]


@dataclass(slots=True, eq=False)
class LiveFile:
    """A file with frames: what is in it, and which partitions still need it."""

    path: Path
    header: FileHeader
    first_lsn: int
    next_lsn: int
    end: int = FRAMES_AT  # where the frames end
    unproven: int = FRAMES_AT  # from here on no frame proves that the bytes were synced
    frames: int = 0
    marked: bool = False  # the last frame is a mark: nothing of value is unproven
    needed: dict[PartitionKey, int] = field(default_factory=dict)  # partition → its end offset in this file
    sizes: dict[PartitionKey, int] = field(default_factory=dict)  # partition → bytes of its frames in this file
    # Partition → where its frames stand. Without this, each partition that is opened would read the whole file again.
    places: "dict[PartitionKey, array[int]]" = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WalDamage:
    """Where the WAL contradicts itself. LSNs from `lsn` on are affected."""

    path: Path
    position: int
    lsn: int
    found: str

    def error(self, directory: Path) -> CorruptError:
        """What opening the WAL raises."""
        return CorruptError(
            f"WAL file {self.path} at byte {self.position}",
            f"{self.found}; `holdfast wal inspect {directory}` shows what is readable, `holdfast wal repair {directory}` "
            "sets the damaged file aside and keeps the rest",
        )


@dataclass(frozen=True, slots=True)
class TornTail:
    """A write that a crash interrupted before it was acknowledged. `positions` are the heads of frames it left behind."""

    path: Path
    position: int
    lsn: int
    positions: tuple[int, ...]


@dataclass(slots=True)
class RecoveryScan:
    """Everything recovery needs to know, and nothing was changed to find it."""

    files: list[LiveFile] = field(default_factory=list)
    unused: list[Path] = field(default_factory=list)  # live files that were prepared and never written to
    next_lsn: int = 1
    next_generation: int = 1
    torn: TornTail | None = None
    damage: WalDamage | None = None


def scan_directory(directory: Path, *, read_bytes: int = 4 * MIB, skip_bad_sectors: bool = False) -> RecoveryScan:
    """Read every file, in order, up to the first damage that is not a torn tail."""
    read = partial(WalReader, window_bytes=read_bytes, skip_bad_sectors=skip_bad_sectors)
    verdict = RecoveryScan()
    live = live_files(directory)
    if live:
        verdict.next_generation = live[-1][0] + 1
    for generation, path in live:
        with read(path) as reader:
            verdict.damage = _examine_file(verdict, reader, generation)
            if verdict.damage is not None:
                return verdict
    if verdict.files:
        with read(verdict.files[-1].path) as reader:
            _examine_end(verdict, verdict.files[-1], reader)
    return verdict


def read_header(reader: WalReader, generation: int) -> FileHeader | None:
    """The file's header if it is intact and agrees with the file's name."""
    decoded = decode_file_header(reader.view(0, OPENING_AT))
    if decoded is None or decoded[0].generation != generation:
        return None
    if decoded[1] not in FILE_VERSIONS:
        allowed = f"at most {max(FILE_VERSIONS)}: use a newer release"
        raise InvalidError(f"format version of WAL file {reader.path}", decoded[1], allowed)
    return decoded[0]


def _examine_file(verdict: RecoveryScan, reader: WalReader, generation: int) -> WalDamage | None:
    expected = verdict.next_lsn
    header = read_header(reader, generation)
    if header is None:
        return WalDamage(reader.path, 0, expected, "the header of the file is damaged")
    first_lsn = decode_opening(reader.view(OPENING_AT, FRAMES_AT - OPENING_AT), header)
    if first_lsn is None:
        stray = next(heads_after(reader, header.mark, FRAMES_AT), None)
        if stray is None:
            verdict.unused.append(reader.path)
            return None
        return WalDamage(
            reader.path, OPENING_AT, expected, f"its opening is damaged, and a frame stands at byte {stray[0]}"
        )
    if verdict.files and first_lsn != expected:
        before = verdict.files[-1]
        return WalDamage(
            before.path,
            before.end,
            min(expected, first_lsn),
            f"the next frame has LSN {expected}, but {reader.path.name} proves that all below LSN {first_lsn} was synced",
        )
    file = LiveFile(reader.path, header, first_lsn, first_lsn)
    for at, head, _ in walk(reader, header.mark, FRAMES_AT, first_lsn):
        if head.last_synced == head.lsn - 1:
            file.unproven = at  # the first of its group: it proves that all before it was synced
        file.marked = head.kind == MARK
        if not file.marked:
            key = (head.topic_id, head.partition)
            file.needed[key] = max(head.end_offset, file.needed.get(key, 0))  # a copy stands behind later frames
            file.sizes[key] = file.sizes.get(key, 0) + head.size_bytes
            if (places := file.places.get(key)) is None:
                places = file.places[key] = array("q")
            places.append(at)
        file.frames += 1
        file.end = at + head.size_bytes
    file.next_lsn = verdict.next_lsn = first_lsn + file.frames
    verdict.files.append(file)
    return None


def _examine_end(verdict: RecoveryScan, last: LiveFile, reader: WalReader) -> None:
    """Look behind the last frame for what a crash left, or for a sign that something is missing."""
    for position, head in heads_after(reader, last.header.mark, last.end):
        if head.last_synced >= last.next_lsn:
            verdict.damage = WalDamage(
                last.path,
                last.end,
                last.next_lsn,
                f"LSN {last.next_lsn} is unreadable, but the frame at byte {position} (LSN {head.lsn}) proves that "
                f"all up to LSN {head.last_synced} was synced",
            )
            return
    if left := tuple(reader.find(last.header.mark, last.end)):
        verdict.torn = TornTail(last.path, last.end, last.next_lsn, left)
