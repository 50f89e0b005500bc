"""Records mapped in both ways, at once and one by one, and compared."""

from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import msgspec
import pytest

from holdfast.pipeline.mapping import transform
from holdfast.pipeline.mapping.content_hash import digest_of
from holdfast.pipeline.mapping.json_batches import read_json_batch
from holdfast.pipeline.mapping.transform import MappedBatch, map_records
from holdfast.pipeline.model.definition import Revision

pa = pytest.importorskip("pyarrow")

COLUMNS: list[dict[str, Any]] = [
    {"fieldPath": "id", "column": "id", "type": "Int64"},
    {"fieldPath": "small", "column": "small", "type": "UInt8", "nullable": True},
    {"fieldPath": "name", "column": "name", "type": "String"},
    {"fieldPath": "note", "column": "note", "type": "String", "nullable": True},
    {"fieldPath": "good", "column": "good", "type": "Bool", "nullable": True},
    {"fieldPath": "name", "column": "alias", "type": "String"},
]


def revision(columns: list[dict[str, Any]] = COLUMNS, **more: Any) -> Revision:
    told = {
        "version": 1,
        "source": {"topic": "t"},
        "sink": {"kind": "clickhouse", "dsn": "http://localhost:8123", "table": "t"},
        "mapping": {"columns": columns},
        **more,
    }
    return msgspec.convert(told, Revision)


def table(payloads: Sequence[bytes | None]) -> Any:
    rows = len(payloads)
    return pa.table(
        {
            "key": pa.nulls(rows, pa.binary()),
            "value": pa.array(payloads, pa.binary()),
            "topic": pa.repeat("t", rows),
            "partition": pa.repeat(pa.scalar(3, pa.int32()), rows),
            "offset": pa.array(range(10, 10 + rows), pa.int64()),
            "timestamp": pa.array([1_000_000 + 1_500 * row for row in range(rows)], pa.timestamp("us", "UTC")),
            "timestampType": pa.repeat(pa.scalar(0, pa.int32()), rows),
        }
    )


def both(payloads: Sequence[bytes | None], chosen: Revision | None = None) -> tuple[MappedBatch, MappedBatch, bool]:
    """The outcome, what it is one by one, and whether the batch was read at once."""
    chosen, seen = chosen or revision(), []

    def watched(*args: Any) -> Any:
        seen.append(read_json_batch(*args))
        return seen[-1]

    with patch.object(transform, "read_json_batch", watched):
        quick = map_records(chosen, 7, table(payloads))
    with patch.object(transform, "read_json_batch", lambda *_: None):
        slow = map_records(chosen, 7, table(payloads))
    return quick, slow, bool(seen) and seen[0] is not None


def check(payloads: Sequence[bytes | None], chosen: Revision | None = None) -> bool:
    quick, slow, at_once = both(payloads, chosen)
    assert quick.rows.equals(slow.rows)
    assert digest_of(quick.rows, quick.refused) == digest_of(slow.rows, slow.refused)  # to the bit: -0.0 is not 0.0
    assert quick.rows.schema.equals(slow.rows.schema)
    assert list(quick.refused) == list(slow.refused)
    assert (quick.filtered, quick.newest_ms) == (slow.filtered, slow.newest_ms)
    return at_once
