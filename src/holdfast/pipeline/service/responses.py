"""What the service answers: values that any face shows as they are. None of them holds a secret."""

from typing import Any, Literal

import msgspec

from holdfast.pipeline.model.column_mapping import Mapping


class Response(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=False):
    """camelCase on the wire."""


# --- samples, inference, previews


class SampledRecord(Response, frozen=True):
    """One record of the source. `value` is decoded JSON; `error` says why there is none, and `text` what is there instead."""

    partition: int
    offset: int
    timestamp: int
    key: str | None = None
    headers: dict[str, str | None] = {}
    value: Any = None
    text: str | None = None
    error: str = ""


class Sample(Response, frozen=True):
    """Records of the source, in the order of their times."""

    topic: str
    records: tuple[SampledRecord, ...]
    partitions: int
    not_json: int
    """How many records hold something that is not JSON. They would go to the DLQ."""


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
    """A proposal made from a sample."""

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
    """What is between the table there is and the one the pipeline needs. `statements` would help; nobody has run them."""

    exists: bool
    missing: tuple[str, ...] = ()
    differs: tuple[ColumnDiffers, ...] = ()
    extra: tuple[str, ...] = ()
    statements: tuple[str, ...] = ()
    blockers: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class Preview(Response, frozen=True):
    """What the pipeline would do with a sample, and with the table."""

    sampled: int
    filtered: int
    rows: tuple[PreviewedRow, ...]
    refused: tuple[PreviewedRefusal, ...]
    ddl: str = ""
    table: TableDiff | None = None
    notes: tuple[str, ...] = ()
    """What the preview does not show, and why."""


# --- validation and listings


class ValidationCheck(Response, frozen=True):
    """One thing that was looked at. A `warning` is no obstacle."""

    name: str
    outcome: Literal["ok", "warning", "failed", "skipped"]
    detail: str = ""


class Validation(Response, frozen=True):
    """Checks in the order in which they depend on each other; `ok` if none failed."""

    ok: bool
    checks: tuple[ValidationCheck, ...]


class TableColumn(Response, frozen=True):
    """A column as the server has it."""

    name: str
    type: str
    default_kind: str = ""


class TableSchema(Response, frozen=True):
    """A table as the server has it."""

    database: str
    table: str
    engine: str
    order_by: tuple[str, ...]
    dedup_window: int
    columns: tuple[TableColumn, ...]


# --- the DLQ


class DeadLetter(Response, frozen=True):
    """A refused record. Key and payload are text where they are UTF-8, else base64; of a long payload the beginning is shown."""

    generation: int
    topic: str
    partition: int
    offset: int
    recipe: int
    reason: str
    at_ms: int
    key: str | None = None
    key_base64: str | None = None
    payload: str | None = None
    payload_base64: str | None = None
    payload_bytes: int = 0
    replayed: str = ""
    """What a replay made of it: `stored` or `filtered`; empty: nothing yet."""


class DeadLetters(Response, frozen=True):
    """A page, oldest first. `after` asks for the next; empty: there is none."""

    letters: tuple[DeadLetter, ...]
    after: str = ""


class ReasonCount(Response, frozen=True):
    """How many records were refused for one reason."""

    reason: str
    count: int


class DeadLetterCount(Response, frozen=True):
    """How many there are, and the most frequent reasons of those that were not replayed."""

    total: int
    replayed: int
    waiting: int
    reasons: tuple[ReasonCount, ...] = ()


class StillRefused(Response, frozen=True):
    """A record that the newest recipe refuses too."""

    generation: int
    partition: int
    offset: int
    reason: str


class Replayed(Response, frozen=True):
    """What a replay came to. `more`: there are others left, ask again."""

    stored: int
    filtered: int
    refused: int
    recipe: int
    refusals: tuple[StillRefused, ...] = ()
    more: bool = False
