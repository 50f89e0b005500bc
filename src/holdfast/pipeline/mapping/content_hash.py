"""A hash of what a range was mapped to: equal for equal rows in equal order, wherever and in whatever memory they were made.

The one rule: values count, their layout does not. Chunks, slices, padding, the bytes under a null, the slack of a bitmap and a
dictionary's encoding are not hashed. Nothing is done per row: every column is a few buffers.
"""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, Final

from holdfast.pipeline.model.column_mapping import PROVENANCE
from holdfast.pipeline.model.definition import RangeDigest
from holdfast.pipeline.model.records import DeadLetterRow

_FORM: Final = "1:"
"""Of the canonical form. Hashes of another form are not compared."""
_HASH_BYTES: Final = 16
_OFFSET: Final = "_offset"
_RANGE_COLUMNS: Final = frozenset(PROVENANCE) - {_OFFSET}
"""Equal in all rows of a range: its identity, which its token holds."""


def digest_of(rows: Any, refused: Sequence[DeadLetterRow]) -> RangeDigest:
    """Of rows (a table or a batch, with provenance) and dead letters, whose reasons are for people and may be reworded."""
    return RangeDigest(
        rows=rows.num_rows, rows_hash=rows_hash(rows), refused=len(refused), refused_hash=refused_hash(refused)
    )


def rows_hash(rows: Any) -> str:
    """Of the columns by name and order, without those that are the range's identity; '': there are no rows."""
    if not rows.num_rows:
        return ""
    names = [name for name in rows.schema.names if name not in _RANGE_COLUMNS]
    return _hash((name, rows.column(name)) for name in names)


def refused_hash(refused: Sequence[DeadLetterRow]) -> str:
    """Of the dead letters' records; '': there are none."""
    import pyarrow as pa

    if not refused:
        return ""
    columns = {
        _OFFSET: pa.array([row.offset for row in refused], pa.uint64()),
        "key": pa.array([row.key for row in refused], pa.large_binary()),
        "payload": pa.array([row.payload for row in refused], pa.large_binary()),
    }
    return _hash(columns.items())


def comparable(hash_: str) -> bool:
    """Whether this release computes hashes of this form."""
    return not hash_ or hash_.startswith(_FORM)


def _hash(columns: Iterable[tuple[str, Any]]) -> str:
    state = hashlib.sha256()
    for name, column in columns:
        state.update(b"%d:%b" % (len(name.encode()), name.encode()))
        _add(state, _one_array(column))
    return _FORM + state.hexdigest()[: 2 * _HASH_BYTES]


def _one_array(column: Any) -> Any:
    import pyarrow as pa

    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks or [pa.array([], column.type)])


def _add(state: Any, array: Any) -> None:
    """Length and nulls, then the values that are not null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    state.update(b"%d,%d;" % (len(array), array.null_count))
    if pa.types.is_null(array.type):
        return
    if array.null_count:
        _add_fixed(state, pc.is_valid(array))
        array = array.drop_null()
    _add_values(state, array)


def _add_values(state: Any, array: Any) -> None:
    """Of an array without nulls."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = array.type
    if pa.types.is_binary(kind) or pa.types.is_string(kind) or _is_large(kind):
        _add_fixed(state, pc.binary_length(array).cast(pa.int64()))
        _add_bytes(state, array)
    elif pa.types.is_map(kind):
        entries = pa.StructArray.from_arrays([array.keys, array.items], names=["key", "value"])
        _add_values(state, pa.ListArray.from_arrays(array.offsets, entries))
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        _add_fixed(state, pc.list_value_length(array).cast(pa.int64()))
        _add(state, array.flatten())
    elif pa.types.is_struct(kind):
        for field in array.flatten():
            _add(state, field)
    else:
        _add_fixed(state, array)


def _is_large(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_large_binary(kind) or pa.types.is_large_string(kind))


def _add_fixed(state: Any, array: Any) -> None:
    """Of an array of fixed width without nulls. Bits become bytes: where they begin in a byte is layout."""
    import pyarrow as pa

    if pa.types.is_boolean(array.type):
        array = array.cast(pa.uint8())
    if len(array):
        width = array.type.bit_width // 8
        state.update(memoryview(array.buffers()[1])[array.offset * width : (array.offset + len(array)) * width])


def _add_bytes(state: Any, array: Any) -> None:
    """The bytes of texts, which lie one after the other."""
    if not len(array):
        return
    _, offsets, values = array.buffers()
    if values is None:
        return
    ends = memoryview(offsets).cast("q" if _is_large(array.type) else "i")
    state.update(memoryview(values)[ends[array.offset] : ends[array.offset + len(array)]])
