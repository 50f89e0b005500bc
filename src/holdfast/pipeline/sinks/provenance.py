"""The pipeline in the provenance of rows: added where they are written, from the same target that is asked for them later."""

from typing import Any, Final

PIPELINE_COLUMN: Final = "_pipeline"


def with_pipeline(rows: Any, pipeline_id: str) -> Any:
    """The rows (a `pyarrow.Table` or `RecordBatch`) with the column of their pipeline."""
    import pyarrow as pa

    return rows.append_column(PIPELINE_COLUMN, pa.repeat(pa.scalar(pipeline_id, pa.string()), rows.num_rows))
