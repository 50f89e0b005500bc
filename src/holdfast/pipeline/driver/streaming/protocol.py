"""What an owner of a streaming generation does, decided from its record. No I/O, no Spark.

Spark is no fence: a driver that was paused finishes its `foreachBatch`, may run old batch ids again with other data, and on some
file systems two drivers write one checkpoint. So the record decides, not the checkpoint:

1. `take_over` raises the record's epoch and names a checkpoint folder of this epoch's own, filled with what the record calls done.
   A former owner goes on in its own folder, which nobody reads, until its next change of the record is refused.
2. `decide_batch` is asked for every batch that Spark runs. Only the batch after the last done one is computed; one that was begun
   is written as it was begun; one that is done is run for its state alone.
3. `begun` records offsets and pieces before the first row is inserted, `finished` after the last. Only then does Spark commit.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import msgspec

from holdfast.pipeline.driver.streaming.stream_record import (
    BatchIntent,
    DoneBatch,
    StreamRecord,
    lowest,
    retained_from,
    topic_ids,
)
from holdfast.vocabulary.errors import FencedError

OFFSETS: Final = "offsets"
COMMITS: Final = "commits"
METADATA: Final = "metadata"
_STATE_VERSION: Final = re.compile(r"(\d+)(?:_[0-9a-f-]+)*\.(?:zip|changelog|delta|snapshot)(?:\.crc)?$")

_OPERATOR_METADATA: Final = re.compile(r"state/\d+/_metadata/(?:metadata|v\d+/\d+)")


@dataclass(frozen=True, slots=True)
class StreamTakeover:
    """The record of the new owner, once its folder is ready; how that is filled: files copied from another, then files written."""

    record: StreamRecord
    copy_from: int
    """The epoch of the folder to copy from; 0: none."""
    write: dict[str, str] = field(default_factory=dict)
    is_filled: bool = False
    """There is nothing to do."""


def claimed(record: StreamRecord | None, resource: str, epoch: int) -> StreamRecord:
    """The record under a newer owner. From its commit on, every write of a former owner is refused. `FencedError`."""
    if record is None:
        return StreamRecord(epoch=epoch)
    if record.epoch > epoch:
        raise FencedError(resource, epoch, record.epoch)
    return msgspec.structs.replace(record, epoch=epoch)


def take_over(record: StreamRecord, *, has_folder: bool = True) -> StreamTakeover:
    """How the folder of the record's epoch is made. `has_folder`: it is there, if the record names it."""
    if record.folder == record.epoch and has_folder:
        return StreamTakeover(record, 0, is_filled=True)
    write = {}
    if record.done is not None:
        write[f"{OFFSETS}/{record.done.batch}"] = record.done.offsets
    if record.intent is not None:
        write[f"{OFFSETS}/{record.intent.batch}"] = record.intent.offsets
    # Before a first batch is done there is no state: what lies in the folder is of attempts, and Spark refuses a new one with it.
    copy_from = 0 if record.done is None else record.folder
    return StreamTakeover(msgspec.structs.replace(record, folder=record.epoch), copy_from, write)


def files_to_copy(names: Iterable[str], done_batch: int) -> list[str]:
    """Of the files in a checkpoint folder, by path in it, those that belong to batches up to the last done one.

    A former owner may have gone on in the folder. What it planned beyond is not taken: either it was begun, and its offsets are in
    the record, or nobody has seen a row of it, and the new owner plans anew.
    """
    return [name for name in names if _is_kept(name, done_batch)]


def is_operator_metadata(name: str) -> bool:
    """Whether a file says what an operator's state is. It names schema files of `transformWithState` by their whole path."""
    return _OPERATOR_METADATA.fullmatch(name) is not None


def is_unfinished(name: str) -> bool:
    """Whether a file is no part of a checkpoint: it is being written, or has checksums of a file system that writes them anew."""
    leaf = name.rpartition("/")[2]
    return leaf.startswith(".") or leaf.endswith(".tmp")


def _is_kept(name: str, done_batch: int) -> bool:
    folder, _, rest = name.partition("/")
    leaf = name.rpartition("/")[2]
    if is_unfinished(name):
        return False
    if leaf.endswith(".crc") and is_operator_metadata(name.removesuffix(".crc")):  # its text changes
        return False
    if name == METADATA:  # the query's id: every epoch has its own
        return False
    if folder in (OFFSETS, COMMITS):
        return rest.isdecimal() and int(rest) <= done_batch
    if folder == "state" and (found := _STATE_VERSION.match(leaf)) is not None:
        return int(found[1]) <= done_batch + 1  # the state after batch N is version N + 1
    return True


def epoch_of_piece(key: str, prefix: str) -> int:
    """The epoch that stored a piece; beyond all: a key of another form, which is nobody's to remove."""
    epoch = key.removeprefix(prefix).partition("/")[0]
    return int(epoch) if epoch.isdecimal() else 1 << 62


@dataclass(frozen=True, slots=True)
class Compute:
    """Compute the batch, store its pieces, begin it."""


@dataclass(frozen=True, slots=True)
class WriteBegun:
    """Run the batch for its state, and write the pieces of its intent: an earlier attempt may have written some."""

    intent: BatchIntent


@dataclass(frozen=True, slots=True)
class RunState:
    """The batch is done: run it for its state alone."""


@dataclass(frozen=True, slots=True)
class Blocked:
    """The checkpoint contradicts the record. Nothing can be written without a person's decision."""

    reason: str


BatchDecision = Compute | WriteBegun | RunState | Blocked


def decide_batch(record: StreamRecord, batch: int, offsets: str) -> BatchDecision:
    """What becomes of a batch that Spark runs, with the text of its `offsets/N`."""
    if reason := recreated_topics(record, offsets):
        return Blocked(reason)
    intent, done = record.intent, record.done
    if batch <= record.done_batch:
        if done is not None and batch == done.batch and offsets != done.offsets:
            return Blocked(f"batch {batch} is done with other offsets than the checkpoint has")
        return RunState()
    if intent is not None and intent.batch == batch:
        if offsets != intent.offsets:
            return Blocked(f"batch {batch} was begun with other offsets than the checkpoint has")
        return WriteBegun(intent)
    if intent is not None:
        return Blocked(f"batch {intent.batch} was begun and is not done; the checkpoint is at batch {batch}")
    if batch != record.done_batch + 1:
        return Blocked(f"batch {batch} does not follow the last done one, {record.done_batch}")
    return Compute()


def recreated_topics(record: StreamRecord, offsets: str) -> str:
    """Why offsets are not of the topics that the record is about; empty: they are."""
    for topic, found in topic_ids(offsets).items():
        fixed = record.topics.get(topic, "")
        if fixed and found and fixed != found:
            return f"topic {topic!r} was deleted and recreated (id {fixed}, now {found}): rewind the pipeline to read the new one"
    return ""


def begun(record: StreamRecord, intent: BatchIntent) -> StreamRecord:
    """The record before the first row of a batch. Spark has committed the batch before, so only this one may be read again."""
    start = record.retain if record.done is None else retained_from(record.done.offsets)
    return msgspec.structs.replace(record, intent=intent, retain=start)


def finished(record: StreamRecord, batch: int, offsets: str) -> StreamRecord:
    """The record after the last row of a batch. Until Spark has committed it, it may be read again for its state."""
    return msgspec.structs.replace(record, done=DoneBatch(batch=batch, offsets=offsets), intent=None)


def committed(record: StreamRecord) -> StreamRecord:
    """The record once Spark has committed the last done batch: nothing of it is read again."""
    return record if record.intent is not None else msgspec.structs.replace(record, retain=())


def started(
    record: StreamRecord, starts: tuple[dict[str, dict[str, int]], ...], topics: dict[str, str]
) -> StreamRecord:
    """The record with the decided starts; they are kept until the first batch is done."""
    retain = lowest(
        (topic, int(partition), at)
        for each in starts
        for topic, offsets in each.items()
        for partition, at in offsets.items()
    )
    return msgspec.structs.replace(record, starts=starts, topics=topics, retain=retain)
