"""Values and columns for tests."""

from typing import Any

from hypothesis import strategies as st

from holdfast.pipeline.model.column_mapping import Column, Mapping
from holdfast.pipeline.model.records import SourceRecords

JSON: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.datetimes().map(str)
    | st.dates().map(str)
    | st.uuids().map(str)
    | st.decimals(allow_nan=False, allow_infinity=False, places=2).map(str),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=6,
)
OBJECTS: st.SearchStrategy[dict[str, Any]] = st.dictionaries(
    st.sampled_from(["a", "b", "c", "d.e", "$f"]), JSON, max_size=5
)


def mapping_of(**columns: str) -> Mapping:
    """A mapping of top-level fields, each into the column of its name. A `?` behind the type makes it nullable."""
    return Mapping(tuple(Column(name, name, text.rstrip("?"), text.endswith("?")) for name, text in columns.items()))


def records_of(*values: Any) -> SourceRecords:
    return SourceRecords(fields=values, topic="t", partition=3, offsets=range(100, 100 + len(values)))


def arrow_rows(batch: Any) -> list[tuple[Any, ...]]:
    """The rows of a `pyarrow.RecordBatch`."""
    return list(zip(*(column.to_pylist() for column in batch.columns), strict=True)) if batch.num_columns else []
