"""Triage: which frames of a damaged WAL stay in it, which are set aside, which are lost. Reads only.

Everything before the damage stays. After it a frame stays if its partition provably lost nothing: its offsets continue where the
partition's last frame ended, or every missing frame is known by name and is another partition's. The first frame of a partition
that might follow a hole is in doubt, and so is everything of that partition after it: serving it would hide the hole.
Frames in doubt are set aside, whole and listed; what becomes of them is a person's decision.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from holdfast.log.wal.file_reader import WalReader
from holdfast.log.wal.files import live_files
from holdfast.log.wal.frame_scan import ScannedFrame, scan_frames, scan_header
from holdfast.log.wal.frames import FRAMES_AT, MARK, REPLICATION_KINDS, FrameHeader
from holdfast.log.wal.recovery import PartitionKey, WalDamage, scan_directory

KEEP: Final = "keep"
DOUBT: Final = "doubt"
LOST: Final = "lost"


class TriagedFrame(NamedTuple):
    """A frame and what becomes of it."""

    fate: str
    path: Path
    mark: bytes
    sighting: ScannedFrame


@dataclass(slots=True)
class Triage:
    """One pass over the files from the damaged one on; iterate once, then read `missing` and `synced_lsn`."""

    damage: WalDamage
    files: list[tuple[int, Path]]  # the damaged file and all after it
    ends: dict[PartitionKey, int]  # where each partition ended before them
    first_lsn: int | None  # of the first of them, as far as it is known
    next_generation: int
    missing: list[tuple[int, int]] = field(default_factory=list)  # LSNs nothing is known of, first and last
    synced_lsn: int = 0  # the highest LSN that some frame proves synced
    _doubtful: set[PartitionKey] = field(default_factory=set)

    def __iter__(self) -> Iterator[TriagedFrame]:
        expected = self.first_lsn
        lost: set[int] = set()
        for generation, path in self.files:
            with WalReader(path, skip_bad_sectors=True) as reader:
                header = scan_header(reader, generation)
                for seen in scan_frames(reader, header.mark):
                    head = seen.head
                    self.synced_lsn = max(self.synced_lsn, head.last_synced)
                    if seen.payload is None:
                        lost.add(head.lsn)
                        self._doubtful.add((head.topic_id, head.partition))
                        yield TriagedFrame(LOST, path, header.mark, seen)
                        continue
                    in_order = expected is None or head.lsn >= expected
                    if expected is None and seen.position > FRAMES_AT:
                        expected = head.lsn - 1  # something stood before it; how much is unknown
                    if expected is not None and head.lsn > expected:
                        self._note_hole(expected, head.lsn, lost)
                    if in_order:
                        expected = head.lsn + 1
                    # A replica whose WAL was repaired is another one: what it promised and cut off is of no use.
                    if head.kind != MARK and head.kind not in REPLICATION_KINDS:
                        yield TriagedFrame(self._fate(head, in_order), path, header.mark, seen)

    def _note_hole(self, first: int, end: int, lost: set[int]) -> None:
        """LSNs from `first` to before `end` are not there; remember those that no damaged frame explains."""
        known = sorted(lsn for lsn in lost if first <= lsn < end)
        for lsn in [*known, end]:
            if first < lsn:
                self.missing.append((first, lsn - 1))
            first = lsn + 1

    def _fate(self, head: FrameHeader, in_order: bool) -> str:
        partition = head.topic_id, head.partition
        if in_order and head.end_offset <= self.ends.get(partition, 0):
            return KEEP  # an earlier frame that was copied forward: whether something follows it is not its question
        continues = self.ends.get(partition) == head.base_offset
        if in_order and partition not in self._doubtful and (continues or not self.missing):
            self.ends[partition] = head.end_offset
            return KEEP
        self._doubtful.add(partition)
        return DOUBT


def triage(directory: Path) -> Triage | None:
    """What a repair would do; None if the WAL needs none."""
    verdict = scan_directory(directory, skip_bad_sectors=True)
    if verdict.damage is None:
        return None
    live = live_files(directory)
    start = next(at for at, (_, path) in enumerate(live) if path == verdict.damage.path)
    before = [file for file in verdict.files if any(file.path == path for _, path in live[:start])]
    ends: dict[PartitionKey, int] = {}
    for file in before:
        for partition, end_offset in file.needed.items():
            ends[partition] = max(end_offset, ends.get(partition, 0))
    first_lsn = before[-1].next_lsn if before else None
    if not before and verdict.files:
        first_lsn = verdict.files[0].first_lsn
    return Triage(verdict.damage, live[start:], ends, first_lsn, verdict.next_generation)
