"""`inspect`: what is in a WAL directory, file by file, in any condition. It takes no lock and changes nothing.

While a process appends, the end of the newest file may look torn; stop the process for a firm answer.
"""

from dataclasses import dataclass, field
from pathlib import Path

from holdfast.log.wal.file_reader import WalReader
from holdfast.log.wal.files import live_files, spare_files
from holdfast.log.wal.frame_scan import ScannedFrame, scan_frames, scan_header
from holdfast.log.wal.frames import FRAMES_AT, MARK, REPLICATION_KINDS
from holdfast.log.wal.recovery import TornTail, WalDamage, scan_directory
from holdfast.log.wal.set_aside import KEPT, list_tails
from holdfast.log.wal.startup import PENDING_REPAIRS
from holdfast.vocabulary.errors import InvalidError


@dataclass(slots=True, kw_only=True)
class PartitionReport:
    """One partition's frames in one file."""

    topic_id: str
    partition: int
    frames: int = 0
    first_offset: int = 0
    end_offset: int = 0


@dataclass(slots=True, kw_only=True)
class FileReport:
    """One live file."""

    file: str
    generation: int
    first_lsn: int | None = None
    last_lsn: int | None = None
    frames: int = 0
    payload_bytes: int = 0
    marks: int = 0
    partitions: list[PartitionReport] = field(default_factory=list)
    damage: list[str] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class WalInspection:
    """The whole directory. `damage` keeps it from being opened; a torn tail does not."""

    directory: Path
    files: list[FileReport]
    spare_files: int
    unfinished_repairs: list[str]
    set_aside: list[str]
    tails: list[str]  # of `set_aside.py`, to be appended or dropped
    torn: TornTail | None
    damage: WalDamage | None


def inspect(directory: Path) -> WalInspection:
    """Read everything. Blocks."""
    check_directory(directory)
    verdict = scan_directory(directory, skip_bad_sectors=True)
    return WalInspection(
        directory=directory,
        files=[_report(path, generation) for generation, path in live_files(directory)],
        spare_files=len(spare_files(directory)),
        unfinished_repairs=sorted(path.name for path in directory.glob(PENDING_REPAIRS)),
        set_aside=sorted(path.name for path in directory.glob("*.damaged-*")),
        tails=[tail.name for tail in list_tails(directory) if tail.state == KEPT],
        torn=verdict.torn,
        damage=verdict.damage,
    )


def check_directory(directory: Path) -> None:
    """Refuse what is not a WAL directory."""
    if not directory.is_dir():
        raise InvalidError("WAL directory", str(directory), "an existing directory")
    if not live_files(directory) and not (directory / "lock").exists():
        raise InvalidError("WAL directory", str(directory), "a directory with files of a WAL")


def _report(path: Path, generation: int) -> FileReport:
    report = FileReport(file=path.name, generation=generation)
    partitions: dict[tuple[bytes, int], PartitionReport] = {}
    with WalReader(path, skip_bad_sectors=True) as reader:
        head = scan_header(reader, generation)
        report.first_lsn = head.first_lsn
        if head.header is None:
            report.damage.append("header damaged at byte 0")
        expected, end = head.first_lsn, FRAMES_AT
        for seen in scan_frames(reader, head.mark):
            if seen.payload is None:
                report.damage.append(
                    f"payload of LSN {seen.head.lsn} damaged at byte {seen.position + seen.head.payload_at}"
                )
                expected = seen.head.lsn + 1 if expected == seen.head.lsn else expected
                continue
            if expected is not None and seen.head.lsn != expected:
                what = f"LSN {expected} to {seen.head.lsn - 1} unreadable"
                report.damage.append(f"{what} between byte {end} and {seen.position}")
            expected, end = seen.head.lsn + 1, seen.position + seen.head.size_bytes
            _count(report, partitions, seen)
        report.damage += [f"sector at byte {position} cannot be read" for position in reader.bad_sectors]
    report.partitions = [partitions[key] for key in sorted(partitions)]
    return report


def _count(report: FileReport, partitions: dict[tuple[bytes, int], PartitionReport], seen: ScannedFrame) -> None:
    head = seen.head
    report.last_lsn = head.lsn
    if head.kind == MARK:
        report.marks += 1
        return
    report.frames += 1
    report.payload_bytes += head.payload_bytes
    if head.kind in REPLICATION_KINDS:
        return  # what stands in the place of offsets there is something else
    found = partitions.get((head.topic_id, head.partition))
    if found is None:
        found = PartitionReport(topic_id=head.topic_id.hex(), partition=head.partition, first_offset=head.base_offset)
        partitions[head.topic_id, head.partition] = found
    found.frames += 1
    found.end_offset = head.end_offset
