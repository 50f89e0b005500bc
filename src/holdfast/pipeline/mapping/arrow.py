"""Arrow types for columns, and the conversions Arrow does as a whole. Needs `pyarrow` (extra `arrow`).

The one rule: `quick` converts a column only where the result equals that of `scalars` for every value; otherwise it returns None,
and the values are converted one by one.
"""

from collections.abc import Callable
from functools import lru_cache
from itertools import accumulate, chain
from typing import Any, Final

from holdfast.clickhouse.types import (
    Array,
    DateTime,
    DateTime64,
    Decimal,
    EnumOf,
    FixedString,
    Json,
    Map,
    Scalar,
    Tuple,
    Type,
    is_nullable,
    unwrap,
)
from holdfast.pipeline.mapping.scalars import (
    DATE32_DAYS,
    DATE_DAYS_MAX,
    DATETIME64_S,
    DATETIME_S_MAX,
    FLOAT32_MAX,
    tick_digits,
)
from holdfast.pipeline.mapping.text_scalars import ConversionError, ipv6_text

_NONE: Final = type(None)
_UNITS: Final = {0: "s", 3: "ms", 6: "us", 9: "ns"}
_DIGITS: Final = {unit: digits for digits, unit in _UNITS.items()}
_LOCAL_S_MAX: Final = 2_114_380_800  # 2037-01-01: beyond, Arrow may not know the rules of a time zone
_BANDS: Final = ((0, 0, 10**11), (3, 10**11, 10**14), (6, 10**14, 10**17))  # digits of a second, as in `epoch_ns`
_CANONICAL_UUID: Final = r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"
_OCTET: Final = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_IPV4: Final = rf"^{_OCTET}(\.{_OCTET}){{3}}$"
_FIXED_POINT: Final = r"^[+-]?[0-9]{1,60}(\.[0-9]{1,60})?$"
_FLOAT64_MAX: Final = 1.7976931348623157e308
_SIGNED_ZERO: Final = -(2**63)  # the bits of -0.0
_HAS_ZONE: Final = r"[T ]\d\d(:\d\d(:\d\d(\.\d+)?)?)?(Z|[+-]\d\d(:?\d\d)?)$"


@lru_cache(maxsize=1_000)
def arrow_type(kind: Type) -> Any:
    """The Arrow type of a column. UUIDs, addresses, enums and JSON are text, which ClickHouse parses."""
    import pyarrow as pa

    match unwrap(kind):
        case Scalar("Bool"):
            return pa.bool_()
        case Scalar("Float32" | "Float64" as name):
            return pa.float32() if name == "Float32" else pa.float64()
        case Scalar("String" | "UUID" | "IPv4" | "IPv6") | EnumOf() | FixedString() | Json():
            return pa.string()
        case Scalar("Date" | "Date32"):
            return pa.date32()
        case Scalar(name):
            return getattr(pa, name.lower())()
        case Decimal(precision, scale):
            return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)
        case DateTime():
            return pa.timestamp("s", "UTC")
        case DateTime64(scale, _):
            return pa.timestamp(_UNITS[tick_digits(scale)], "UTC")
        case Array(of):
            return pa.list_(arrow_type(of))
        case Map(of, key):
            return pa.map_(arrow_type(key), arrow_type(of))
        case Tuple() as named:
            return pa.struct([(name, arrow_type(element)) for name, element in named.fields])
    raise AssertionError(kind)


def quick(kind: Type, values: list[Any]) -> Any | None:
    """The whole column by Arrow, or None if its values must be converted one by one."""
    import pyarrow as pa

    kinds = set(map(type, values))
    if _NONE in kinds and not is_nullable(kind):
        return None
    kinds.discard(_NONE)
    build = _builder(unwrap(kind), kinds)
    if build is None:
        return None
    try:
        return build(values)
    except (pa.ArrowException, OverflowError, UnicodeEncodeError):
        return None


def _builder(kind: Type, kinds: set[type]) -> Callable[[list[Any]], Any] | None:
    """How Arrow converts values of these Python types to a column."""
    import pyarrow as pa

    match kind:
        case Array(of) if kinds <= {list}:
            return lambda values: _lists(of, values)
        case Map(of, Scalar("String")) if kinds <= {dict}:
            return lambda values: _maps(of, values)
        case Tuple() if kinds <= {dict if kind.names else list}:
            return lambda values: _structs(kind, values)
        case Scalar("Bool") if kinds <= {bool}:
            return lambda values: pa.array(values, pa.bool_())
        case Scalar("Float64") if kinds <= {float}:
            return lambda values: pa.array(values, pa.float64())
        case Scalar(name) if "Int" in name and kinds <= {int}:
            return lambda values: pa.array(values, arrow_type(kind))
        case DateTime() | DateTime64(0 | 3 | 6 | 9, _) if kinds <= {int}:
            return lambda values: _epochs(kind, values)
    return _text_builder(kind) if kinds <= {str} else None


def _text_builder(kind: Type) -> Callable[[list[Any]], Any] | None:
    """How Arrow converts texts to a column."""
    import pyarrow as pa

    match kind:
        case Scalar("String"):
            return lambda values: pa.array(values, pa.string())
        case Scalar("UUID"):
            return lambda values: _matching(values, _CANONICAL_UUID)
        case Scalar("IPv4"):
            return lambda values: _matching(values, _IPV4)
        case Scalar("IPv6"):
            return _ipv6
        case EnumOf(_, names):
            return lambda values: _one_of([name for name, _ in names], values)
        case FixedString(length):
            return lambda values: _at_most(length, values)
        case Scalar("Date"):
            return lambda values: _dates(values, 0, DATE_DAYS_MAX)
        case Scalar("Date32"):
            return lambda values: _dates(values, *DATE32_DAYS)
        case Decimal():
            return lambda values: _decimals(kind, values)
        case DateTime() | DateTime64(0 | 3 | 6 | 9, _):
            return lambda values: _times(kind, values)
    return None


def from_column(kind: Type, column: Any) -> Any | None:
    """A column from an Arrow array without nulls where it has none: of texts, whole numbers, doubles or booleans that records have.

    None: the values must be converted one by one.
    """
    import pyarrow as pa

    build = _column_builder(unwrap(kind), column.type)
    if build is None:
        return None
    try:
        return build(column)
    except (pa.ArrowException, OverflowError):
        return None


def _column_builder(kind: Type, given: Any) -> Callable[[Any], Any] | None:
    """How an Arrow array becomes a column."""
    import pyarrow as pa

    match kind:
        case Scalar("Float32" | "Float64") if given == pa.float64():
            return lambda column: _floats(kind, column)
        case Scalar("String" | "Bool"):
            return (lambda column: column) if given == arrow_type(kind) else None
        case Scalar(name) if "Int" in name:
            return (lambda column: column) if given == arrow_type(kind) else None
    python_type = {pa.string(): str, pa.int64(): int}.get(given)
    return None if python_type is None else _builder(kind, {python_type})


def _floats(kind: Type, column: Any) -> Any | None:
    """Of doubles that were read from JSON. A zero with a sign may have been the whole number -0, which has none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pc.any(pc.equal(column.view(pa.int64()), _SIGNED_ZERO)).as_py():
        return None
    wanted = arrow_type(kind)
    most = FLOAT32_MAX if wanted == pa.float32() else _FLOAT64_MAX
    within = pc.all(
        pc.less_equal(pc.abs(column), most)
    ).as_py()  # neither is NaN nor Infinity, which JSON does not have
    return None if within is False else column.cast(wanted, safe=False)


def _array(values: Any, kind: Any) -> Any:
    import pyarrow as pa

    return values if isinstance(values, pa.Array) else pa.array(values, kind)


def _lists(of: Type, values: list[Any]) -> Any | None:
    import pyarrow as pa

    elements = quick(of, list(chain.from_iterable(values)))
    return None if elements is None else pa.ListArray.from_arrays(_offsets(values), elements)


def _maps(of: Type, values: list[Any]) -> Any | None:
    import pyarrow as pa

    items = quick(of, [item for value in values for item in value.values()])
    if items is None:
        return None
    keys = pa.array(list(chain.from_iterable(values)), pa.string())
    return pa.MapArray.from_arrays(_offsets(values), keys, items)


def _offsets(values: list[Any]) -> Any:
    import pyarrow as pa

    return pa.array([0, *accumulate(map(len, values))], pa.int32())


def _structs(kind: Tuple, values: list[Any]) -> Any | None:
    """Each element as a column of its own."""
    import pyarrow as pa

    if kind.names:
        known = set(kind.names)
        if not all(value.keys() <= known for value in values):
            return None
        parts = [[value.get(name) for value in values] for name in kind.names]
    else:
        if set(map(len, values)) - {len(kind.elements)}:
            return None
        parts = [[value[at] for value in values] for at in range(len(kind.elements))]
    columns = [quick(element, part) for element, part in zip(kind.elements, parts, strict=True)]
    if any(column is None for column in columns):
        return None
    return pa.StructArray.from_arrays(columns, fields=list(arrow_type(kind)))


def _matching(values: list[Any], pattern: str) -> Any | None:
    """The texts, if each has its canonical form already."""
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = _array(values, pa.string())
    return texts if pc.all(pc.match_substring_regex(texts, pattern)).as_py() is not False else None


def _ipv6(values: list[Any]) -> Any | None:
    """Each distinct address is converted once."""
    import pyarrow as pa

    encoded = _array(values, pa.string()).dictionary_encode()
    try:
        texts = pa.array([ipv6_text(text) for text in encoded.dictionary.to_pylist()], pa.string())
    except ConversionError:
        return None
    return texts.take(encoded.indices)


def _one_of(names: list[str], values: list[Any]) -> Any | None:
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = _array(values, pa.string())
    known = pc.is_in(texts.drop_null(), value_set=pa.array(names, pa.string()))
    return texts if pc.all(known).as_py() is not False else None


def _at_most(length: int, values: list[Any]) -> Any | None:
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = _array(values, pa.string())
    return texts if (pc.max(pc.binary_length(texts)).as_py() or 0) <= length else None


def _dates(values: list[Any], least: int, most: int) -> Any | None:
    import pyarrow as pa

    dates = _array(values, pa.string()).cast(pa.date32())
    return dates if _inside(dates.cast(pa.int32()), least, most) else None


def _decimals(kind: Decimal, values: list[Any]) -> Any | None:
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = _array(values, pa.string())
    plain = pc.all(pc.match_substring_regex(texts, _FIXED_POINT)).as_py()
    return texts.cast(arrow_type(kind)) if plain is not False else None


def _times(kind: DateTime | DateTime64, values: list[Any]) -> Any | None:
    import pyarrow as pa
    import pyarrow.compute as pc

    wanted = arrow_type(kind)
    texts = _array(values, pa.string())
    zoned = pc.all(pc.match_substring_regex(texts, _HAS_ZONE)).as_py()
    if zoned:
        return _in_time(kind, texts.cast(wanted))
    times = texts.cast(pa.timestamp(wanted.unit))
    if kind.zone is None:
        return _in_time(kind, times.cast(wanted))
    if not _inside(times.cast(pa.int64()), 0, _LOCAL_S_MAX * 10 ** _DIGITS[wanted.unit]):
        return None
    # A local time that occurs twice or never is an error here, and is converted by itself.
    return _in_time(kind, pc.assume_timezone(times, kind.zone).cast(wanted))


def _epochs(kind: DateTime | DateTime64, values: list[Any]) -> Any | None:
    import pyarrow as pa
    import pyarrow.compute as pc

    wanted, numbers = arrow_type(kind), _array(values, pa.int64())
    ends = pc.min_max(numbers).as_py()
    for digits, least, most in _BANDS:
        if ends["min"] is not None and least <= ends["min"] and ends["max"] < most:
            # Coarser units truncate; in finer ones an overflow must be an error.
            cut = digits > (0 if isinstance(kind, DateTime) else kind.scale)
            times = numbers.cast(pa.timestamp(_UNITS[digits], "UTC")).cast(wanted, safe=not cut)
            return _in_time(kind, times)
    return None


def _in_time(kind: DateTime | DateTime64, times: Any) -> Any | None:
    import pyarrow as pa

    if isinstance(kind, DateTime):
        least, most, ticks = 0, DATETIME_S_MAX, 1
    else:
        (least, most), ticks = DATETIME64_S, 10**kind.scale
    return times if _inside(times.cast(pa.int64()), least * ticks, most * ticks + ticks - 1) else None


def _inside(numbers: Any, least: int, most: int) -> bool:
    import pyarrow.compute as pc

    ends = pc.min_max(numbers).as_py()
    return ends["min"] is None or (least <= ends["min"] and ends["max"] <= most)
