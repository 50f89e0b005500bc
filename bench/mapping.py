"""`python -m bench.mapping`: how many records a core decodes, filters, maps and hashes a second, without Spark.

Records have a time, floats, a nested object and texts, 149 bytes each. The reference is the way record by record, which records
that do not fit the fast one take. Both in turn, in CPU seconds of this process.
"""

import argparse
import random
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final
from unittest.mock import patch

import msgspec
import pyarrow as pa
from rich.console import Console

from bench.figures import Figure, table
from holdfast.pipeline.mapping import transform
from holdfast.pipeline.mapping.content_hash import digest_of
from holdfast.pipeline.model.definition import Revision
from holdfast.spark.worker_memory import retain_freed_memory

ROWS_S_MIN: Final = 500_000
FILTER: Final = "amount > 500 and user.country in ('de', 'fr')"
_COLUMNS: Final = {
    "id": "Int64",
    "ts": "DateTime64(3)",
    "amount": "Float64",
    "user.id": "Int64",
    "user.country": "String",
    "page": "String",
    "active": "Bool",
    "token": "String",
}


def records(count: int) -> pa.Table:
    """A range as tasks read it."""
    rng = random.Random(3)
    return pa.table(
        {
            "key": pa.nulls(count, pa.binary()),
            "value": pa.array([_value(rng, number) for number in range(count)], pa.binary()),
            "topic": pa.repeat("bench", count),
            "partition": pa.repeat(pa.scalar(0, pa.int32()), count),
            "offset": pa.array(range(count), pa.int64()),
            "timestamp": pa.array(range(count), pa.int64()).cast(pa.timestamp("us", "UTC")),
            "timestampType": pa.repeat(pa.scalar(0, pa.int32()), count),
        }
    )


def _value(rng: random.Random, number: int) -> bytes:
    at = datetime.fromtimestamp(1_760_000_000 + number * 0.037, UTC).isoformat(timespec="milliseconds")
    return (
        b'{"id":%d,"ts":"%b","amount":%b,"user":{"id":%d,"country":"%b"},"page":"/p/%d","active":%b,"token":"%016x"}'
        % (
            number,
            at.replace("+00:00", "Z").encode(),
            repr(round(rng.random() * 1_000, 2)).encode(),
            rng.randrange(1_000_000),
            rng.choice([b"de", b"fr", b"us", b"uk"]),
            rng.randrange(1_000),
            rng.choice([b"true", b"false"]),
            rng.getrandbits(64),
        )
    )


def revision(expression: str) -> Revision:
    """Eight columns, perhaps with a filter."""
    columns = [{"fieldPath": path, "column": path.replace(".", "_"), "type": kind} for path, kind in _COLUMNS.items()]
    given = {
        "version": 1,
        "source": {"topic": "bench"},
        "sink": {"kind": "clickhouse", "table": "bench"},
        "mapping": {"columns": columns},
        "filters": {"enabled": bool(expression), "expression": expression},
    }
    return msgspec.convert(given, Revision)


def _rate(work: Callable[[], Any], rows: int) -> float:
    begin = time.process_time()
    work()
    return rows / (time.process_time() - begin)


def measure(rows: int, rounds: int) -> list[Figure]:
    """Medians of rounds, the two ways in turn."""
    retain_freed_memory()  # as tasks do
    given, figures = records(rows), []
    for name, expression in (("mapped", ""), (f"filtered ({FILTER}) and mapped", FILTER)):
        chosen = revision(expression)

        def work(chosen: Revision = chosen) -> Any:
            mapped = transform.map_records(chosen, 1, given)
            return mapped, digest_of(mapped.rows, mapped.refused)

        ours, reference = list[float](), list[float]()
        mapped, digest = work()
        with patch.object(transform, "read_json_batch", lambda *_: None):
            if work()[1] != digest:
                raise RuntimeError("the two ways differ")
        for _ in range(rounds):
            ours.append(_rate(work, rows))
            with patch.object(transform, "read_json_batch", lambda *_: None):
                reference.append(_rate(work, rows))
        found, other = sorted(ours)[rounds // 2], sorted(reference)[rounds // 2]
        note = f"{rows:,} records, {mapped.rows.num_rows:,} rows with their hash; the reference reads record by record"
        figures.append(
            Figure(
                "mapping",
                name,
                "rows/s/core",
                found,
                other,
                found / other,
                f"≥ {ROWS_S_MIN:,}",
                found >= ROWS_S_MIN,
                note,
            )
        )
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.mapping", description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000, help="records of a range (100,000)")
    parser.add_argument("--rounds", type=int, default=9, help="how often (9)")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    figures = measure(args.rows, args.rounds)
    if args.json:
        print("\n".join(each.json() for each in figures))
    else:
        Console().print(table(figures, f"one core, medians of {args.rounds} rounds"))
    return 1 if any(each.met is False for each in figures) else 0


if __name__ == "__main__":
    sys.exit(main())
