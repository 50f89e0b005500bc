"""What a task of the bare insert does.

The one rule: nothing of Holdfast is imported here. The function travels by its name, and a Python process that loads this module
must not pay for ours: after each task Spark looks through everything that is loaded.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa


class Insert:
    """Inserts the block in a file, as often as there are rows."""

    def __init__(self, where: Mapping[str, Any], block: str) -> None:
        self._where, self._block = where, block

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import clickhouse_connect

        for batch in batches:
            for _ in range(batch.num_rows):
                table = pa.ipc.open_file(self._block).read_all()
                with clickhouse_connect.get_client(**self._where) as client:
                    client.insert_arrow("bare", table, settings={"async_insert": 0})
                yield pa.record_batch({"rows": pa.array([table.num_rows], pa.int64())})
