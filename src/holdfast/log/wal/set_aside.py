"""Tails set aside: records that a takeover or a repair left out of their partition, each tail in a file, for a person to decide.

    set-aside/{name}.batches    the record batches as they were written, one after the other
    set-aside/{name}.json       whose they are, what is in them, and what became of them

The one rule (docs/safety.md, rule 29): a tail is in a file before the WAL lets go of its frames, and its report stays when it is
settled. So frames that a crash brings back are not set aside, and appended, a second time. Everything here blocks.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
from crc32c import crc32c

from holdfast.log.batches import Buffer, RecordBatch, RecordBatchLimits, split_batches
from holdfast.log.wal.files import DirectoryLock
from holdfast.vocabulary import failpoints
from holdfast.vocabulary.errors import CorruptError, InvalidError, UnavailableError
from holdfast.vocabulary.files import write_atomic

KEPT: Final = "kept"
APPENDED: Final = "appended"
DROPPED: Final = "dropped"

_DIRECTORY: Final = "set-aside"


class AppendPlan(msgspec.Struct, frozen=True, kw_only=True):
    """An `append` that was begun: under which producer, and where the partition ended then."""

    producer_id: int
    producer_epoch: int
    start_offset: int


class SetAsideTail(msgspec.Struct, frozen=True, kw_only=True):
    """One tail. `topic` is the topic's name when it was set aside, "" if that was unknown."""

    version: int = 1
    name: str
    topic_id: str
    topic: str
    partition: int
    first_offset: int
    end_offset: int
    batches: int
    records: int
    bytes: int
    checksum: int
    wal: str
    reason: str
    set_aside_at_ms: int
    state: str = KEPT
    settled_at_ms: int = 0
    plan: AppendPlan | None = None


def tail_name(topic_id: str, partition: int, start: int) -> str:
    """The name of the tail that begins at `start` or behind it."""
    return f"{topic_id}-{partition:05d}-{start:020d}"


def is_set_aside(directory: Path, name: str) -> bool:
    """Whether the tail was set aside, whatever became of it since."""
    return _report(directory, name).exists()


def write_tail(
    directory: Path,
    batches: Sequence[RecordBatch],
    *,
    name: str,
    topic_id: str,
    topic: str,
    partition: int,
    wal: str,
    reason: str,
    now_ms: int,
) -> None:
    """Set `batches` aside, unless the tail of this name was before. `UnavailableError`: the disk does not take it."""
    if is_set_aside(directory, name):
        return
    body = b"".join(batch.data for batch in batches)
    tail = SetAsideTail(
        name=name,
        topic_id=topic_id,
        topic=topic,
        partition=partition,
        first_offset=batches[0].header.base_offset,
        end_offset=batches[-1].header.last_offset + 1,
        batches=len(batches),
        records=sum(batch.header.count for batch in batches),
        bytes=len(body),
        checksum=crc32c(body),
        wal=wal,
        reason=reason,
        set_aside_at_ms=now_ms,
    )
    try:
        (directory / _DIRECTORY).mkdir(mode=0o700, exist_ok=True)
        write_atomic(_body(directory, name), body, mode=0o600)
        failpoints.reached("set-aside.written")
        _save(directory, tail)
    except OSError as error:
        raise UnavailableError(f"setting {name} aside in WAL {directory}", str(error)) from error


def list_tails(directory: Path) -> list[SetAsideTail]:
    """Every tail that was ever set aside, by name."""
    return [_load(path) for path in sorted((directory / _DIRECTORY).glob("*.json"))]


def find_tail(directory: Path, name: str) -> SetAsideTail:
    """The tail of this name; the beginning of the name is enough if no other begins so."""
    tails = list_tails(directory)
    known = [tail for tail in tails if tail.name.startswith(name)]
    if len(known) != 1:
        names = ", ".join(tail.name for tail in tails)
        raise InvalidError("tail", name, f"one of {names}" if names else "that of a tail: nothing is set aside here")
    return known[0]


def read_tail(directory: Path, tail: SetAsideTail) -> list[RecordBatch]:
    """The batches of a tail that is kept."""
    path = _body(directory, tail.name)
    try:
        body: Buffer = path.read_bytes()
    except OSError as error:
        raise CorruptError(f"file {path}", str(error)) from error
    if len(body) != tail.bytes or crc32c(body) != tail.checksum:
        raise CorruptError(
            f"file {path}", f"{len(body)} bytes that do not match their checksum; {tail.bytes} were written"
        )
    return split_batches(body, limits=RecordBatchLimits(), stored=True)


def save_plan(directory: Path, tail: SetAsideTail, plan: AppendPlan) -> SetAsideTail:
    """Note, durably, how the tail is being appended."""
    planned = msgspec.structs.replace(tail, plan=plan)
    _save(directory, planned)
    return planned


def settle_tail(directory: Path, tail: SetAsideTail, state: str, *, now_ms: int) -> SetAsideTail:
    """The tail was appended or dropped: its report stays, its records go."""
    settled = msgspec.structs.replace(tail, state=state, settled_at_ms=now_ms)
    _save(directory, settled)
    failpoints.reached("set-aside.settled")
    _body(directory, tail.name).unlink(missing_ok=True)
    return settled


def settling_lock(directory: Path) -> DirectoryLock:
    """Held by a command that settles a tail: one at a time."""
    return DirectoryLock(directory / _DIRECTORY)


def _save(directory: Path, tail: SetAsideTail) -> None:
    write_atomic(_report(directory, tail.name), msgspec.json.format(msgspec.json.encode(tail)), mode=0o600)


def _load(path: Path) -> SetAsideTail:
    try:
        return msgspec.json.decode(path.read_bytes(), type=SetAsideTail)
    except msgspec.DecodeError as error:
        raise CorruptError(f"file {path}", str(error)) from None


def _report(directory: Path, name: str) -> Path:
    return directory / _DIRECTORY / f"{name}.json"


def _body(directory: Path, name: str) -> Path:
    return directory / _DIRECTORY / f"{name}.batches"
