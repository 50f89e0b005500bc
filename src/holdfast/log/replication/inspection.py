"""The replicas in a WAL directory: what each has promised and has. It takes no lock and changes nothing.

While a process appends, the end may be missing; stop the process for a firm answer.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from holdfast.log.replication.positions import PartitionKey
from holdfast.log.replication.replica_frames import recover
from holdfast.log.wal.file_reader import WalReader, walk
from holdfast.log.wal.files import live_files
from holdfast.log.wal.frame_scan import scan_header
from holdfast.log.wal.frames import DATA, FRAMES_AT, MARK, STATE_BIT, FrameHeader, WalFrame
from holdfast.log.wal.inspection import check_directory
from holdfast.log.wal.repair import read_repairs
from holdfast.log.wal.repairs import LossesOfRepairs
from holdfast.vocabulary.errors import CorruptError


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaReport:
    """One replica. Its log goes from `base` to the end, positions of epoch and offset; `damage`: why it cannot be read."""

    topic_id: str
    partition: int
    promised: int = 0
    base_epoch: int = 0
    base_offset: int = 0
    end_epoch: int = 0
    end_offset: int = 0
    entries: int = 0
    size_bytes: int = 0
    damage: str = ""


def inspect_replicas(directory: Path) -> list[ReplicaReport]:
    """Every replica, by partition. Blocks."""
    check_directory(directory)
    repairs = LossesOfRepairs(read_repairs(directory)).last_repair
    frames: defaultdict[PartitionKey, list[WalFrame]] = defaultdict(list)
    sizes: dict[tuple[PartitionKey, int, int], int] = {}
    for head, payload in _frames(directory):
        key = (head.topic_id, head.partition & ~STATE_BIT)
        if head.kind == DATA:  # its records are of no interest, and there may be many
            sizes[key, head.epoch, head.base_offset] = head.payload_bytes
            frames[key].append(head.frame(b""))
        else:
            frames[key].append(head.frame(bytes(payload)))
    replicated = {key for key, found in frames.items() if any(each.partition & STATE_BIT for each in found)}
    return [_report(key, frames[key], repairs, sizes) for key in sorted(replicated)]


def _frames(directory: Path) -> Iterator[tuple[FrameHeader, memoryview]]:
    """All that can be read, file by file, up to the first that is damaged in each."""
    for generation, path in live_files(directory):
        with WalReader(path, skip_bad_sectors=True) as reader:
            head = scan_header(reader, generation)
            if head.first_lsn is not None:
                for _, found, payload in walk(reader, head.mark, FRAMES_AT, head.first_lsn):
                    if found.kind != MARK:
                        yield found, payload


def _report(
    key: PartitionKey, frames: list[WalFrame], repairs: int, sizes: dict[tuple[PartitionKey, int, int], int]
) -> ReplicaReport:
    topic_id, partition = key[0].hex(), key[1]
    try:
        found = recover(frames, repairs)
    except CorruptError as error:
        return ReplicaReport(topic_id=topic_id, partition=partition, damage=str(error))
    log = found.log
    return ReplicaReport(
        topic_id=topic_id,
        partition=partition,
        promised=found.promised,
        base_epoch=log.base.epoch,
        base_offset=log.base.offset,
        end_epoch=log.position.epoch,
        end_offset=log.position.offset,
        entries=len(log),
        size_bytes=sum(sizes.get((key, each.epoch, each.base_offset), 0) for each in log.entries if each.count),
    )
