"""Records of a pipeline: decoded values with their log metadata, and the dead letters of those that are rejected.

The one rule: decoding happened before. A value that is not a JSON object is carried along and rejected by the mapping.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

NO_HEADERS: Final[Mapping[str, str | None]] = {}
ABBREVIATED_CHARS_MAX: Final = 200


class SourceRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One record. Key and header values are text, or None where the log has none."""

    fields: Any
    key: str | None = None
    headers: Mapping[str, str | None] = NO_HEADERS
    topic: str = ""
    partition: int = 0
    offset: int = 0
    timestamp: int = 0
    """Milliseconds since 1970."""
    op: str | None = None
    """Of a change event; so is `source`."""
    source: Any = None


class SourceRecords(msgspec.Struct, frozen=True, kw_only=True):
    """Records of one partition, column by column: the form that is fast. What is left empty reads as None, '' or 0."""

    fields: Sequence[Any]
    keys: Sequence[str | None] = ()
    headers: Sequence[Mapping[str, str | None]] = ()
    topic: str = ""
    partition: int = 0
    offsets: Sequence[int] = ()
    timestamps: Sequence[int] = ()
    ops: Sequence[str | None] = ()
    sources: Sequence[Any] = ()

    def __len__(self) -> int:
        return len(self.fields)

    def at(self, row: int) -> SourceRecord:
        """One of them."""
        return SourceRecord(
            fields=self.fields[row],
            key=self.keys[row] if self.keys else None,
            headers=self.headers[row] if self.headers else NO_HEADERS,
            topic=self.topic,
            partition=self.partition,
            offset=self.offsets[row] if self.offsets else 0,
            timestamp=self.timestamps[row] if self.timestamps else 0,
            op=self.ops[row] if self.ops else None,
            source=self.sources[row] if self.sources else None,
        )

    def take(self, rows: Sequence[int]) -> "SourceRecords":
        """Some of them, in that order."""
        return SourceRecords(
            fields=[self.fields[row] for row in rows],
            keys=[self.keys[row] for row in rows] if self.keys else (),
            headers=[self.headers[row] for row in rows] if self.headers else (),
            topic=self.topic,
            partition=self.partition,
            offsets=[self.offsets[row] for row in rows] if self.offsets else (),
            timestamps=[self.timestamps[row] for row in rows] if self.timestamps else (),
            ops=[self.ops[row] for row in rows] if self.ops else (),
            sources=[self.sources[row] for row in rows] if self.sources else (),
        )

    def column(self, root: str) -> list[Any]:
        """One attribute of every record, by the name it has in paths and filters."""
        match root:
            case "fields":
                return list(self.fields)
            case "key":
                return list(self.keys or [None] * len(self))
            case "headers":
                return list(self.headers or [NO_HEADERS] * len(self))
            case "topic":
                return [self.topic] * len(self)
            case "partition":
                return [self.partition] * len(self)
            case "offset":
                return list(self.offsets or [0] * len(self))
            case "op":
                return list(self.ops or [None] * len(self))
            case "source":
                return list(self.sources or [None] * len(self))
        return list(self.timestamps or [0] * len(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterRow:
    """A rejected record: its bytes as they were, and why."""

    offset: int
    key: bytes | None
    payload: bytes | None
    reason: str


def json_text(value: Any) -> str:
    """A value as JSON; NaN and the infinities by name. `ValueError` if it is no JSON value."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, RecursionError) as error:
        raise ValueError(str(error)) from None


def abbreviated(value: Any) -> str:
    """A value as JSON for messages, cut where it gets long; a lone surrogate is shown as `?`."""
    if isinstance(value, str):
        value = value[: ABBREVIATED_CHARS_MAX + 1].encode("utf-8", "replace").decode()
    try:
        text = json_text(value)
    except ValueError:
        return f"a value without a text ({type(value).__name__})"
    return text if len(text) <= ABBREVIATED_CHARS_MAX else text[:ABBREVIATED_CHARS_MAX] + "…"
