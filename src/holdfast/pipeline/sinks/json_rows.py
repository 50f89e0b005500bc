"""Rows as JSON objects: maps as objects, times as ISO 8601 in UTC, decimals as text. Needs `pyarrow`.

The one rule: columns become texts one by one, and Arrow joins them. No Python code runs per row but for types that Arrow has no
such text of: decimals, nanoseconds, arrays and maps, and texts that must be escaped.
"""

from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final

import msgspec

_encode: Final = msgspec.json.Encoder().encode
_MUST_BE_ESCAPED: Final = r'["\\\x00-\x1f]'


def json_rows(rows: Any) -> Any:
    """An Arrow array of the rows (a table or a batch) as JSON objects."""
    import pyarrow as pa
    import pyarrow.compute as pc

    parts: list[Any] = []
    for at, name in enumerate(rows.schema.names):
        parts.append(("," if at else "{") + _encode(name).decode() + ":")
        parts.append(pc.fill_null(_json_texts(_one_array(rows.column(at))), "null"))
    if not parts:
        return pa.array([b"{}"] * rows.num_rows, pa.binary())
    return pc.binary_join_element_wise(*parts, "}", "").cast(pa.binary())


def key_texts(column: Any) -> Any:
    """An Arrow array of a column's values as keys: text as it is, anything else as its JSON without quotes. Nulls stay null."""
    import pyarrow as pa

    array = _one_array(column)
    if pa.types.is_string(array.type):
        return array.cast(pa.binary())
    if pa.types.is_integer(array.type) or pa.types.is_boolean(array.type):
        return _json_texts(array).cast(pa.binary())
    return pa.array([_key(value) for value in _values(array)], pa.binary())


def _json_texts(array: Any) -> Any:
    """The values as texts of JSON; null where there is none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = array.type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return array.cast(pa.string())
    if pa.types.is_floating(kind):
        return _floats(array)
    if pa.types.is_date32(kind):
        return pc.binary_join_element_wise('"', array.cast(pa.string()), '"', "")
    if pa.types.is_timestamp(kind) and kind.unit != "ns":
        return pc.binary_join_element_wise('"', _times(array), '"', "")
    if pa.types.is_string(kind) and not pc.any(pc.match_substring_regex(array, _MUST_BE_ESCAPED)).as_py():
        return pc.binary_join_element_wise('"', array, '"', "")
    return pa.array(
        [None if value is None else _encode(_plain(value)).decode() for value in _values(array)], pa.string()
    )


def _floats(array: Any) -> Any:
    """As `msgspec` writes them, which differs from Arrow. A null is NaN here, and a NaN is null in JSON."""
    import pyarrow as pa

    if not len(array):
        return array.cast(pa.string())
    numbers = array.cast(pa.float64()).to_numpy(zero_copy_only=False).tolist()
    return pa.array(_encode(numbers)[1:-1].decode().split(","), pa.string())


def _times(array: Any) -> Any:
    """As `datetime.isoformat` writes them: six digits of a second, or none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    times = array.cast(pa.timestamp("us", array.type.tz)).cast(pa.int64()).cast(pa.timestamp("us"))
    seconds = pc.floor_temporal(times, unit="second")
    fraction = pc.subtract(times.cast(pa.int64()), seconds.cast(pa.int64()))
    digits = pc.binary_join_element_wise(".", pc.utf8_lpad(fraction.cast(pa.string()), 6, "0"), "")
    whole = pc.strftime(seconds.cast(pa.timestamp("s")), format="%Y-%m-%dT%H:%M:%S")
    return pc.binary_join_element_wise(whole, pc.if_else(pc.equal(fraction, 0), "", digits), "Z", "")


def _one_array(column: Any) -> Any:
    import pyarrow as pa

    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _values(array: Any) -> Sequence[Any]:
    # Maps as objects: as a list of pairs, Arrow's default, an empty map is no different from an empty array.
    values: Sequence[Any] = array.to_pylist(maps_as_pydicts="lossy")
    return values


def _plain(value: Any) -> Any:
    match value:
        case datetime():
            return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
        case date():
            return value.isoformat()
        case Decimal():
            return format(value, "f")
        case dict():
            return {name: _plain(inner) for name, inner in value.items()}
        case list():
            return [_plain(each) for each in value]
    return value


def _key(value: Any) -> bytes | None:
    if value is None:
        return None
    plain = _plain(value)
    return plain.encode() if isinstance(plain, str) else _encode(plain)
