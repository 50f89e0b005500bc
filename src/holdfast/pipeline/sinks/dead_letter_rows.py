"""Dead letters as rows: the same columns in every sink."""

from collections.abc import Sequence
from typing import Any

from holdfast.pipeline.sinks.contract import DeadLetterRow, FencedRange, SinkTarget


def dead_letter_rows(target: SinkTarget, fenced_range: FencedRange, refused: Sequence[DeadLetterRow]) -> Any:
    """Dead letters as rows of the DLQ."""
    import pyarrow as pa

    count = len(refused)
    return pa.table(
        {
            "_pipeline": pa.repeat(pa.scalar(target.pipeline_id, pa.string()), count),
            "_generation": pa.repeat(pa.scalar(target.generation, pa.uint32()), count),
            "_topic": pa.repeat(pa.scalar(target.revision.source.topic, pa.string()), count),
            "_partition": pa.repeat(pa.scalar(fenced_range.partition, pa.uint32()), count),
            "_offset": pa.array([row.offset for row in refused], pa.uint64()),
            "recipe": pa.repeat(pa.scalar(target.revision.version, pa.uint32()), count),
            "reason": pa.array([row.reason for row in refused], pa.string()),
            "key": pa.array([row.key for row in refused], pa.binary()),
            "payload": pa.array([row.payload for row in refused], pa.binary()),
        }
    )


def stream_dead_letters(target: SinkTarget, rows: Any) -> Any:
    """Records that the sources of a query left out (topic, partition, offset, key, payload, reason) as rows of the DLQ."""
    import pyarrow as pa

    count = rows.num_rows
    return pa.table(
        {
            "_pipeline": pa.repeat(pa.scalar(target.pipeline_id, pa.string()), count),
            "_generation": pa.repeat(pa.scalar(target.generation, pa.uint32()), count),
            "_topic": rows.column("topic").cast(pa.string()),
            "_partition": rows.column("partition").cast(pa.uint32()),
            "_offset": rows.column("offset").cast(pa.uint64()),
            "recipe": pa.repeat(pa.scalar(target.revision.version, pa.uint32()), count),
            "reason": rows.column("reason").cast(pa.string()),
            "key": rows.column("key").cast(pa.binary()),
            "payload": rows.column("payload").cast(pa.binary()),
        }
    )


def offset_bounds(rows: Any) -> list[tuple[str, int, int, int]]:
    """Topic, partition, first and last offset of rows of the DLQ, by partition."""
    found = rows.group_by(["_topic", "_partition"]).aggregate([("_offset", "min"), ("_offset", "max")])
    columns = (found.column(name).to_pylist() for name in ("_topic", "_partition", "_offset_min", "_offset_max"))
    return sorted(zip(*columns, strict=True))
