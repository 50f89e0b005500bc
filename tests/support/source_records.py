"""Records as a range has them: a table with the schema of Spark's Kafka source."""

from collections.abc import Sequence

import pyarrow as pa

Pair = tuple[bytes | None, bytes | None]


def records_table(
    *values: bytes | None, keys: Sequence[bytes | None] = (), first: int = 100, partition: int = 5
) -> pa.Table:
    count = len(values)
    header = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    return pa.table(
        {
            "key": pa.array(keys or [None] * count, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "topic": pa.array(["t"] * count),
            "partition": pa.array([partition] * count, pa.int32()),
            "offset": pa.array(range(first, first + count), pa.int64()),
            "timestamp": pa.array([1_700_000_000_000_000 + n * 1_000 for n in range(count)], pa.timestamp("us", "UTC")),
            "timestampType": pa.array([0] * count, pa.int32()),
            "headers": pa.array([None] * count, header),
        }
    )
