"""`repair`: make a damaged WAL usable again without dropping anything silently.

The damaged file and all after it are renamed to `*.damaged-{n}` and stay as they are. What `triage.py` keeps is written into fresh
files that follow the undamaged ones. `repair-{n}.json` lists every frame that was set aside and every one that is lost; partitions
that lost something find it there when they are opened. Record batches among the frames in doubt become tails (`set_aside.py`).

The one rule: the report is on disk before anything is renamed, under a name (`.pending`) that keeps the WAL closed until all
renames are done; an interrupted repair is finished by the next. Everything here blocks.
"""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from holdfast.log.batches import RecordBatch, RecordBatchLimits, split_batches
from holdfast.log.wal.disk import WalDisk, close_quietly, write_all
from holdfast.log.wal.file_reader import WalReader, read_frame
from holdfast.log.wal.files import DirectoryLock
from holdfast.log.wal.frame_copy import copy_kept_frames
from holdfast.log.wal.frames import WalFrame
from holdfast.log.wal.identity import known_identity
from holdfast.log.wal.inspection import check_directory
from holdfast.log.wal.set_aside import tail_name, write_tail
from holdfast.log.wal.startup import PENDING_REPAIRS
from holdfast.log.wal.triage import DOUBT, KEEP, Triage, TriagedFrame, triage
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import CorruptError
from holdfast.vocabulary.random import Random

FINISHED_REPAIRS: Final = "repair-*.json"
_NUMBER: Final = re.compile(r"(?:^repair|\.damaged)-([0-9]+)")


@dataclass(slots=True, kw_only=True)
class FrameReport:
    """A frame that is no longer in the WAL, and where its bytes are."""

    file: str
    position: int
    mark: str
    lsn: int
    topic_id: str
    partition: int
    epoch: int
    base_offset: int
    count: int
    payload_bytes: int
    acknowledged: bool  # it was synced, so it was acknowledged


@dataclass(slots=True, kw_only=True)
class RepairReport:
    """What a repair does, or did. Stored as `repair-{n}.json`."""

    version: int = 1
    number: int
    at_ms: int
    damaged_file: str
    damaged_position: int
    found: str
    renames: list[tuple[str, str]] = field(default_factory=list)
    kept_frames: int = 0  # after the damage or in the same file before it; they are in the WAL again
    in_doubt: list[FrameReport] = field(default_factory=list)  # readable, set aside
    lost: list[FrameReport] = field(default_factory=list)  # unreadable, known by their heads
    missing_lsns: list[tuple[int, int]] = field(default_factory=list)  # nothing is known of them


def plan_repair(directory: Path, *, clock: Clock) -> RepairReport | None:
    """What `repair` would do; None if the WAL can be opened as it is. Changes nothing."""
    check_directory(directory)
    if (found := triage(directory)) is None:
        return None
    return _report(directory, found, clock)


def repair(directory: Path, *, clock: Clock, random: Random, disk: WalDisk | None = None) -> RepairReport | None:
    """Repair the WAL, or finish a repair that was interrupted; None if there was nothing to do."""
    check_directory(directory)
    lock = DirectoryLock(directory)
    lock.take()
    try:
        disk = disk or WalDisk()
        if pending := sorted(directory.glob(PENDING_REPAIRS)):
            return _finish(directory, pending[0], disk)
        if (found := triage(directory)) is None:
            return None
        report = _report(directory, found, clock)
        report.renames += copy_kept_frames(
            _second_pass(directory), report.number, clock=clock, random=random, disk=disk
        )
        return _finish(directory, _store(directory, report, disk), disk)
    finally:
        lock.release()


def _second_pass(directory: Path) -> Triage:
    """A second pass: the first one made the report, this one hands out the payloads."""
    found = triage(directory)
    if found is None:
        raise CorruptError(f"WAL {directory}", "it reads differently each time: check the disk before a repair")
    return found


def read_set_aside(report_path: Path) -> Iterator[WalFrame]:
    """The frames in doubt of a finished repair, in order."""
    for found in _load(report_path).in_doubt:
        yield _read_in_doubt(report_path.parent, found)


def _read_in_doubt(directory: Path, found: FrameReport) -> WalFrame:
    with WalReader(directory / found.file) as reader:
        frame = read_frame(reader, bytes.fromhex(found.mark), found.position)
        if frame is None:
            raise CorruptError(
                f"WAL file {reader.path} at byte {found.position}", "a frame set aside became unreadable"
            )
        return frame[0].frame(bytes(frame[1]))


def _report(directory: Path, found: Triage, clock: Clock) -> RepairReport:
    numbers = (_NUMBER.search(path.name) for path in directory.iterdir())
    number = 1 + max((int(match[1]) for match in numbers if match), default=0)
    report = RepairReport(
        number=number,
        at_ms=clock.now_ms(),
        damaged_file=found.damage.path.name,
        damaged_position=found.damage.position,
        found=found.damage.found,
        renames=[(path.name, f"{path.name}.damaged-{number}") for _, path in found.files],
    )
    for item in found:
        if item.fate == KEEP:
            report.kept_frames += 1
        else:
            (report.in_doubt if item.fate == DOUBT else report.lost).append(_frame_report(item, number))
    for frame in (*report.in_doubt, *report.lost):
        frame.acknowledged = frame.lsn <= found.synced_lsn
    report.missing_lsns = found.missing
    return report


def _frame_report(item: TriagedFrame, number: int) -> FrameReport:
    head = item.sighting.head
    return FrameReport(
        file=f"{item.path.name}.damaged-{number}",
        position=item.sighting.position,
        mark=item.mark.hex(),
        lsn=head.lsn,
        topic_id=head.topic_id.hex(),
        partition=head.partition,
        epoch=head.epoch,
        base_offset=head.base_offset,
        count=head.count,
        payload_bytes=head.payload_bytes,
        acknowledged=False,
    )


def _store(directory: Path, report: RepairReport, disk: WalDisk) -> Path:
    making = directory / f"repair-{report.number}.tmp"
    descriptor = os.open(making, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        write_all(disk, descriptor, (msgspec.json.format(msgspec.json.encode(report)),), 0)
        disk.sync(descriptor)
    finally:
        close_quietly(descriptor)
    pending = making.rename(directory / f"repair-{report.number}.pending")
    disk.sync_directory(directory)
    return pending


def _finish(directory: Path, pending: Path, disk: WalDisk) -> RepairReport:
    """Do the renames that are still to be done."""
    report = _load(pending)
    for name, new_name in report.renames:
        if (directory / name).exists():
            (directory / name).rename(directory / new_name)
    disk.sync_directory(directory)
    _set_aside(directory, report)
    pending.rename(pending.with_suffix(".json"))
    disk.sync_directory(directory)
    return report


def _set_aside(directory: Path, report: RepairReport) -> None:
    """The batches of the frames in doubt, as a tail of each partition."""
    found: dict[tuple[str, int], dict[int, RecordBatch]] = {}
    for each in report.in_doubt:
        with suppress(CorruptError, OSError):  # what cannot be read now, or is no batch, stays in the damaged file
            payload = _read_in_doubt(directory, each).payload[0]
            for batch in split_batches(payload, limits=RecordBatchLimits(), stored=True):
                found.setdefault((each.topic_id, each.partition), {})[batch.header.base_offset] = batch
    for (topic_id, partition), batches in found.items():
        write_tail(
            directory,
            [batches[offset] for offset in sorted(batches)],
            name=tail_name(topic_id, partition, min(batches)),
            topic_id=topic_id,
            topic="",
            partition=partition,
            wal=known_identity(directory),
            reason=f"repair {report.number} found it behind frames that are lost",
            now_ms=report.at_ms,
        )


def read_repairs(directory: Path) -> list[RepairReport]:
    """The reports of all finished repairs, in order."""
    return sorted(map(_load, directory.glob(FINISHED_REPAIRS)), key=lambda report: report.number)


def _load(path: Path) -> RepairReport:
    try:
        return msgspec.json.decode(path.read_bytes(), type=RepairReport)
    except msgspec.DecodeError as error:
        raise CorruptError(f"report {path}", str(error)) from None
