"""The outcome of a task's range: one line of JSON, the only result that returns to the driver.

The one rule: a range's failure is a result, not an exception. So other ranges of the same job are not cancelled, and the driver
decides about each: continue, retry, or stop.
"""

from typing import Any, Final, Literal

import msgspec

from holdfast.pipeline.model.column_mapping import Column
from holdfast.pipeline.model.definition import RangeDigest

COLUMN: Final = "outcome"
SCHEMA: Final = f"{COLUMN} string"


class TaskOutcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`done`: mapped, or written (or staged); `fenced`: a newer epoch owns the partition; `blocked`: retry; `lost`: records were
    deleted; `absent`: what was mapped is on another machine."""

    partition: int
    kind: Literal["done", "fenced", "blocked", "lost", "absent"]
    reason: str = ""
    rows: int = 0
    refused: int = 0
    filtered: int = 0
    read: int = 0
    payload_bytes: int = 0
    digest: RangeDigest | None = None
    staged: str = ""
    warnings: tuple[str, ...] = ()
    bytes_objects: int = 0
    bytes_agents: int = 0
    newest_ms: int = 0
    stop: str = ""
    """Of a survey: why the range must not be begun."""
    columns: tuple[Column, ...] = ()
    """Of a survey: columns to add before the range is begun."""


def to_batch(outcomes: list[TaskOutcome]) -> Any:
    """As Arrow, for Spark."""
    import pyarrow as pa

    lines = [msgspec.json.encode(outcome).decode() for outcome in outcomes]
    return pa.RecordBatch.from_arrays([pa.array(lines, pa.string())], names=[COLUMN])


def from_rows(rows: list[Any]) -> list[TaskOutcome]:
    """The outcomes of a job's tasks."""
    return [msgspec.json.decode(row[0], type=TaskOutcome) for row in rows]
