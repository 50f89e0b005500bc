"""Responses of the service: values that a gateway returns as they are. None holds a secret."""

from typing import Any, Literal

import msgspec

from holdfast.pipeline.model.column_mapping import Mapping


class Response(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=False):
    """camelCase on the wire."""


# --- samples, inference, previews


class SampledRecord(Response, frozen=True):
    """One record of the source, decoded by its format. Where that fails, `error` has the reason and `text` the raw value."""

    partition: int
    offset: int
    timestamp: int
    key: str | None = None
    headers: dict[str, str | None] = {}
    value: Any = None
    text: str | None = None
    error: str = ""
    op: str = ""
    """Of a change event; `value` is its row then, and `d` deletes it."""


class Sample(Response, frozen=True):
    """Records of the source, by timestamp."""

    topic: str
    records: tuple[SampledRecord, ...]
    partitions: int
    not_json: int
    """Records that are not JSON, or not of the source's format. They would go to the DLQ."""
    key_fields: tuple[str, ...] = ()
    """Of change events: the fields of their keys."""


class FieldEvidence(Response, frozen=True):
    """Why a column is proposed as it is."""

    column: str
    type: str
    why: str
    seen: int
    nulls: int
    absent: int
    distinct: int | None
    examples: tuple[str, ...]


class Inferred(Response, frozen=True):
    """A mapping proposed from a sample."""

    mapping: Mapping
    order_by: tuple[str, ...]
    table: str
    evidence: tuple[FieldEvidence, ...]
    records: int
    not_objects: int
    left_out: tuple[str, ...]


class PreviewedRow(Response, frozen=True):
    """A row as it would be stored."""

    partition: int
    offset: int
    row: dict[str, Any]


class PreviewedRefusal(Response, frozen=True):
    """A record that would go to the DLQ, and why."""

    partition: int
    offset: int
    payload: str
    reason: str


class ColumnDiffers(Response, frozen=True):
    """A column of another type than the mapping's."""

    column: str
    has: str
    wants: str
    fits: bool
    why: str


class TableDiff(Response, frozen=True):
    """Differences between the existing table and the one the pipeline needs. `statements` would close them; they were not run."""

    exists: bool
    missing: tuple[str, ...] = ()
    differs: tuple[ColumnDiffers, ...] = ()
    extra: tuple[str, ...] = ()
    statements: tuple[str, ...] = ()
    blockers: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class MigrationStatements(Response, frozen=True):
    """What tables of an earlier release need before the pipeline can write them."""

    statements: tuple[str, ...]
    """Empty: nothing."""
    shared_with: tuple[str, ...] = ()
    """Other pipelines that write the table: rows of before stay without a pipeline."""
    applied: bool = False


class Preview(Response, frozen=True):
    """What the pipeline would make of a sample, and of the table."""

    sampled: int
    filtered: int
    rows: tuple[PreviewedRow, ...]
    refused: tuple[PreviewedRefusal, ...]
    ddl: str = ""
    table: TableDiff | None = None
    notes: tuple[str, ...] = ()
    """What the preview leaves out, and why."""


# --- validation and listings


class ValidationCheck(Response, frozen=True):
    """One check. A `warning` is no obstacle."""

    name: str
    outcome: Literal["ok", "warning", "failed", "skipped"]
    detail: str = ""


class Validation(Response, frozen=True):
    """Checks in order of dependency; `ok` if none failed."""

    ok: bool
    checks: tuple[ValidationCheck, ...]


class TableColumn(Response, frozen=True):
    """A column on the server."""

    name: str
    type: str
    default_kind: str = ""


class TableSchema(Response, frozen=True):
    """A table on the server."""

    database: str
    table: str
    engine: str
    order_by: tuple[str, ...]
    dedup_window: int
    columns: tuple[TableColumn, ...]


# --- the DLQ


class DeadLetter(Response, frozen=True):
    """A rejected record. Key and payload are text if they are UTF-8, else base64; a long payload is truncated."""

    generation: int
    topic: str
    partition: int
    offset: int
    revision: int = msgspec.field(name="recipe")
    reason: str
    at_ms: int
    key: str | None = None
    key_base64: str | None = None
    payload: str | None = None
    payload_base64: str | None = None
    payload_bytes: int = 0
    replayed: str = ""
    """Outcome of its replay: `stored` or `filtered`; empty: not replayed."""


class DeadLetterRows(Response, frozen=True):
    """A page, oldest first. `after` is the token of the next page; empty: this is the last."""

    letters: tuple[DeadLetter, ...]
    after: str = ""


class ReasonCount(Response, frozen=True):
    """How many records were rejected for one reason."""

    reason: str
    count: int


class DeadLetterCount(Response, frozen=True):
    """Counts, and the most frequent reasons of those that were not replayed."""

    total: int
    replayed: int
    waiting: int
    reasons: tuple[ReasonCount, ...] = ()


class StillRefused(Response, frozen=True):
    """A record that the newest revision rejects, too."""

    generation: int
    partition: int
    offset: int
    reason: str


class Replayed(Response, frozen=True):
    """Totals of a replay. `more`: there are others left, replay again."""

    stored: int
    filtered: int
    refused: int
    revision: int = msgspec.field(name="recipe")
    refusals: tuple[StillRefused, ...] = ()
    more: bool = False
