"""Mapped ranges between two tasks: files of the executor, so that what was hashed is not mapped again to be written.

The one rule: they are only a shortcut. A file that is missing (the second task runs on another machine, the disk is full), damaged
or of another range is as good as none, and the range is mapped again. A partition has one file of each part, in the folder that
Spark removes with the executor, so what is never taken does not pile up.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal

from holdfast.pipeline.model.records import DeadLetterRow
from holdfast.pipeline.sinks.contract import FencedRange, SinkTarget

Part = Literal["rows", "refused"]
_TOKEN: Final = b"holdfast.range"


def put_rows(target: SinkTarget, fenced_range: FencedRange, rows: Any) -> None:
    """Keep rows, if there are any."""
    if rows.num_rows:
        _put(target, fenced_range, "rows", rows)


def put_refused(target: SinkTarget, fenced_range: FencedRange, refused: Sequence[DeadLetterRow]) -> None:
    """Keep dead letters, if there are any."""
    import pyarrow as pa

    if refused:
        columns = {
            "offset": pa.array([row.offset for row in refused], pa.int64()),
            "key": pa.array([row.key for row in refused], pa.large_binary()),
            "payload": pa.array([row.payload for row in refused], pa.large_binary()),
            "reason": pa.array([row.reason for row in refused], pa.string()),
        }
        _put(target, fenced_range, "refused", pa.table(columns))


def take_rows(target: SinkTarget, fenced_range: FencedRange) -> Any | None:
    """The rows of this very range, once; None: they are not here."""
    return _take(target, fenced_range, "rows")


def take_refused(target: SinkTarget, fenced_range: FencedRange) -> list[DeadLetterRow] | None:
    """The dead letters of this very range, once; None: they are not here."""
    table = _take(target, fenced_range, "refused")
    return None if table is None else [DeadLetterRow(**row) for row in table.to_pylist()]


def _put(target: SinkTarget, fenced_range: FencedRange, part: Part, table: Any) -> None:
    import pyarrow as pa

    folder = _folder()
    if folder is None:
        return
    path = _path(folder, target, fenced_range, part)
    unfinished = path.with_suffix(f".{os.getpid()}")
    marked = table.replace_schema_metadata({_TOKEN: _mark(target, fenced_range)})
    try:
        with pa.OSFile(str(unfinished), "wb") as file, pa.ipc.new_file(file, marked.schema) as writer:
            writer.write_table(marked)
        unfinished.replace(path)
    except OSError:
        with suppress(OSError):
            unfinished.unlink()


def _take(target: SinkTarget, fenced_range: FencedRange, part: Part) -> Any | None:
    import pyarrow as pa

    folder = _folder()
    if folder is None:
        return None
    path = _path(folder, target, fenced_range, part)
    try:
        table = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
        path.unlink()  # the mapping keeps the bytes
    except (OSError, pa.ArrowException):
        return None
    metadata = table.schema.metadata or {}
    if metadata.get(_TOKEN) != _mark(target, fenced_range):
        return None
    return table.replace_schema_metadata(None)


def _mark(target: SinkTarget, fenced_range: FencedRange) -> bytes:
    return f"{fenced_range.identity(target).token}@{fenced_range.epoch}/{target.revision.version}".encode()


def _path(folder: Path, target: SinkTarget, fenced_range: FencedRange, part: Part) -> Path:
    return folder / f"holdfast-{target.pipeline_id}-{target.generation}-{fenced_range.partition}-{part}.arrow"


def _folder() -> Path | None:
    """Of this executor's files; None outside of Spark's tasks."""
    from pyspark import SparkFiles, TaskContext

    if TaskContext.get() is None:
        return None
    root = SparkFiles.getRootDirectory()
    return Path(root) if root else None
