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
