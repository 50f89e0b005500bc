"""Records as a pipeline sees them: a decoded value, and what the log says about it.

The one rule: decoding happened before. A value that is not a JSON object is carried along and refused by whoever maps it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

NO_HEADERS: Final[Mapping[str, str | None]] = {}


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


class SourceRecords(msgspec.Struct, frozen=True, kw_only=True):
    """Records of one partition, column by column: the form that is fast. What is left empty reads as None, '' or 0."""

    fields: Sequence[Any]
    keys: Sequence[str | None] = ()
    headers: Sequence[Mapping[str, str | None]] = ()
    topic: str = ""
    partition: int = 0
    offsets: Sequence[int] = ()
    timestamps: Sequence[int] = ()

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
        )

    def take(self, rows: Sequence[int]) -> "SourceRecords":
        """Some of them, in that order: what a filter kept, say."""
        return SourceRecords(
            fields=[self.fields[row] for row in rows],
            keys=[self.keys[row] for row in rows] if self.keys else (),
            headers=[self.headers[row] for row in rows] if self.headers else (),
            topic=self.topic,
            partition=self.partition,
            offsets=[self.offsets[row] for row in rows] if self.offsets else (),
            timestamps=[self.timestamps[row] for row in rows] if self.timestamps else (),
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
        return list(self.timestamps or [0] * len(self))
