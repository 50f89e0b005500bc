"""Debezium's change events: of a table with a key, as its connectors write them."""

import json
from dataclasses import dataclass, field
from typing import Any

Record = tuple[bytes | None, bytes | None]
"""Key and value."""

VALUE_SCHEMA = {
    "type": "struct",
    "fields": [
        {"type": "struct", "field": state, "optional": True, "fields": [
            {"type": "int64", "field": "id"},
            {"type": "string", "field": "name", "optional": True},
            {"type": "int64", "field": "at", "name": "io.debezium.time.MicroTimestamp"},
            {"type": "int32", "field": "day", "name": "io.debezium.time.Date"},
            {"type": "bytes", "field": "price", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}},
        ]}
        for state in ("before", "after")
    ],
}  # fmt: skip


def event(op: str, before: Any = None, after: Any = None, **source: Any) -> dict[str, Any]:
    return {"before": before, "after": after, "source": {"connector": "postgresql", **source}, "op": op, "ts_ms": 1}


def with_schema(payload: Any) -> dict[str, Any]:
    return {"schema": VALUE_SCHEMA, "payload": payload}


def encoded(value: Any) -> bytes | None:
    return None if value is None else json.dumps(value).encode()


@dataclass
class SourceTable:
    """A table and its log: what a connector would write about it."""

    rows: dict[int, dict[str, Any]] = field(default_factory=dict)
    log: list[Record] = field(default_factory=list)
    lsn: int = 1_000

    def _add(self, number: int, value: Any) -> None:
        self.lsn += 10
        if value is not None:
            value["source"] |= {"lsn": self.lsn, "ts_ms": 1_700_000_000_000 + self.lsn // 100}
        self.log.append((encoded({"id": number}), encoded(value)))

    def snapshot(self, number: int, name: str) -> None:
        self.rows[number] = {"id": number, "name": name}
        self._add(number, event("r", None, dict(self.rows[number])))

    def upsert(self, number: int, name: str) -> None:
        before = self.rows.get(number)
        self.rows[number] = {"id": number, "name": name}
        self._add(number, event("u" if before else "c", before, dict(self.rows[number])))

    def delete(self, number: int, *, full: bool = True, tombstone: bool = True, delete: bool = True) -> None:
        """As PostgreSQL does: with REPLICA IDENTITY DEFAULT `before` has the key alone. A compacted topic has lost the delete."""
        before = self.rows.pop(number, None)
        if before is None:
            return
        if delete:
            self._add(number, event("d", before if full else {"id": number, "name": None}))
        if tombstone or not delete:
            self._add(number, None)
