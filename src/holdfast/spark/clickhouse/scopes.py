"""Whose rows a write's rows are: its scope, and within it the generation. Pure.

    query/{id}       a streaming query, by the id in its checkpoint
    scope/{name}     a streaming query with the option `scope`: each new checkpoint is the next generation
    flow/{folder}    a flow of Spark Declarative Pipelines: a full refresh is the next generation
    write/{id}       a batch write with the option `writeId`

The one rule: a batch number means something within one generation alone, because a new checkpoint counts from 0 again.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from holdfast.spark.clickhouse.options import ClickHouseOptions

# Spark keeps the checkpoints of a flow in {storage}/_checkpoints/{sink}/{flow}/{n}; a full refresh adds one to n.
_FLOW_CHECKPOINT: Final = re.compile(r"(?P<flow>.+/_checkpoints/[^/]+/(?P<name>[^/]+))/(?P<number>\d{1,9})/?")


@dataclass(frozen=True, slots=True)
class WriterScope:
    """`generation` None: the writer does not know it; each query of the scope is a generation."""

    name: str
    generation: int | None = None


def stream_scope(options: ClickHouseOptions, spark_options: Mapping[str, str], query: str) -> WriterScope:
    """The scope of a streaming query."""
    if options.scope:
        return WriterScope(f"scope/{options.scope}")
    known = {name.lower(): value for name, value in spark_options.items()}
    found = _FLOW_CHECKPOINT.fullmatch(_one_spelling(known.get("checkpointlocation", "")))
    if found is not None and known.get("queryname", "").rpartition(".")[2] == found["name"]:
        return WriterScope(f"flow/{found['flow']}", int(found["number"]))
    return WriterScope(f"query/{query}", 0)


def _one_spelling(location: str) -> str:
    """A location as a URI. Spark writes one folder as `file:/x` before it exists, and as `file:///x` afterwards."""
    path = location.removeprefix("file:")
    return "file://" + re.sub("^/+", "/", path).replace("//", "/") if path.startswith("/") else location


def write_scope(write_id: str) -> WriterScope:
    """The scope of named batch writes. Within a streaming query (`foreachBatch`), each query is a generation."""
    return WriterScope(f"write/{write_id}")


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteIdentity:
    """What one commit is: batch `batch` of `query`, by `run`, in a scope. Nothing but `run` is known of an unnamed write."""

    scope: WriterScope | None
    query: str
    run: str
    batch: int

    @property
    def staged_batch(self) -> str:
        """Names what the tasks of this run stage for this batch."""
        return f"{self.run}:{self.batch}"
