"""The rules of type inference, one field at a time.

The one rule: every value of the sample fits the inferred type exactly; when in doubt, it is String. The exception are a few
outliers in a large sample: one `"n/a"` in a hundred does not make text of a number. They will be rejected, and the reason says so.

Never inferred: Enum, since a sample does not show that no other text will come (LowCardinality costs about the same), and JSON,
which servers before 25.3 do not have.
"""

import re
from dataclasses import dataclass, replace
from typing import Final

from holdfast.clickhouse.quoting import invalid_name_reason
from holdfast.clickhouse.types import (
    INTEGERS,
    NO_NULL,
    STRING,
    Array,
    DateTime64,
    Decimal,
    LowCardinality,
    Map,
    Nullable,
    Scalar,
    Tuple,
    Type,
    unwrap,
)
from holdfast.pipeline.mapping.field_stats import DISTINCT_MAX, FieldStats
from holdfast.pipeline.model.records import abbreviated

INT64: Final = Scalar("Int64")
FLOAT64: Final = Scalar("Float64")
LOW_VALUES_MIN: Final = 20
LOW_DISTINCT_MAX: Final = 100
OUTLIERS_FROM: Final = 50
"""Values of a field from which on outliers are disregarded."""
OUTLIERS_MAX: Final = 0.02
"""The share of a field's values that may be outliers."""
MAP_KEYS_MIN: Final = 20
MAP_PRESENCE_MAX: Final = 0.25
ADDRESSES_MIN: Final = 20
"""Addresses from which on a field is one of addresses, whatever its name: three dots may also be a version."""
TUPLE_OBJECTS_MIN: Final = 20
TUPLE_KEYS_MAX: Final = 32

_NANOSECONDS_UNTIL_S: Final = 2**63 // 10**9  # in 2262
_EXACT_IN_FLOAT: Final = 2**53
_TIME_NAME: Final = re.compile(r"(^|_)(ts|time|timestamp|date|at|when|epoch|ms|millis)$")
_ADDRESS_NAME: Final = re.compile(r"(^|_)(ip|ipv4|ipv6|addr|address|host|client|server|peer|gateway)(_|$)")
_MS_1973_TO_2299: Final = (10**11, 10_413_791_999_999)
_S_2001_TO_2106: Final = (10**9, 2**32 - 1)


@dataclass(frozen=True, slots=True)
class TypeGuess:
    """A type and the reason for it."""

    type: Type
    why: str


def guess_type(name: str, seen: FieldStats) -> TypeGuess:
    """The type of one field, null disregarded."""
    found = _fitting_type(name, seen)
    usual = _without_outliers(seen)
    if found.type not in (STRING, LowCardinality(STRING)) or usual is None:
        return found
    better = _fitting_type(name, usual)
    if better.type in (STRING, LowCardinality(STRING)):
        return found
    odd = [kind for kind in seen.kinds if kind not in usual.kinds]
    count = sum(seen.kinds[kind] for kind in odd)
    do = "does" if count == 1 else "do"
    why = f"{better.why}; {count} of {seen.values} values {do} not fit and will be rejected: {abbreviated(seen.first[odd[0]])}"
    return TypeGuess(better.type, why)


def _without_outliers(seen: FieldStats) -> FieldStats | None:
    """The same without the kinds that only a few values have; None: there are none, or too few values to tell."""
    if seen.values < OUTLIERS_FROM:
        return None
    left = int(seen.values * OUTLIERS_MAX)
    kinds = seen.kinds.copy()
    for kind, count in sorted(seen.kinds.items(), key=lambda item: (item[1], item[0])):
        if count > left:
            break
        left -= count
        del kinds[kind]
    return None if kinds == seen.kinds or not kinds else replace(seen, kinds=kinds)


def _fitting_type(name: str, seen: FieldStats) -> TypeGuess:
    """The type that every value fits."""
    kinds = set(seen.kinds)
    if not kinds:
        return TypeGuess(STRING, "nothing but null was seen")
    if kinds == {"array"}:
        return _array(seen)
    if kinds == {"object"}:
        return _object(seen)
    if kinds & {"array", "object"}:
        return TypeGuess(STRING, "mixed: arrays or objects beside other values, stored as JSON")
    if kinds == {"bool"}:
        return TypeGuess(Scalar("Bool"), "true and false only")
    if kinds == {"int"}:
        return _integer(name, seen)
    if kinds <= {"int", "float"}:
        return _number(seen)
    if kinds & {"bool", "int", "float"}:
        return TypeGuess(STRING, "mixed: " + " and ".join(sorted(kinds)))
    return _text(name, kinds, seen)


def _integer(name: str, seen: FieldStats) -> TypeGuess:
    assert seen.least is not None and seen.most is not None  # there was one  # noqa: PT018
    least, most = seen.least, seen.most
    if _TIME_NAME.search(snake(name)):
        if _MS_1973_TO_2299[0] <= least and most <= _MS_1973_TO_2299[1]:
            return TypeGuess(DateTime64(3), "the name is that of a time, and the numbers are milliseconds since 1970")
        if _S_2001_TO_2106[0] <= least and most <= _S_2001_TO_2106[1]:
            return TypeGuess(DateTime64(0), "the name is that of a time, and the numbers are seconds since 1970")
    if INTEGERS["Int64"][0] <= least and most <= INTEGERS["Int64"][1]:
        return TypeGuess(INT64, "whole numbers")
    if least >= 0 and most <= INTEGERS["UInt64"][1]:
        return TypeGuess(Scalar("UInt64"), "whole numbers beyond Int64, none negative")
    if max(abs(least), abs(most)) < 10**38:
        return TypeGuess(Decimal(38, 0), "whole numbers beyond 64 bits")
    return TypeGuess(STRING, "whole numbers of more than 38 digits")


def _number(seen: FieldStats) -> TypeGuess:
    ends = [abs(end) for end in (seen.least, seen.most) if end is not None]
    if any(end > _EXACT_IN_FLOAT for end in ends):
        return TypeGuess(STRING, "fractions beside whole numbers that Float64 cannot hold")
    return TypeGuess(FLOAT64, "numbers with a fraction")


def _text(name: str, kinds: set[str], seen: FieldStats) -> TypeGuess:
    if kinds == {"date"}:
        return TypeGuess(Scalar("Date"), "calendar dates")
    if kinds <= {"date", "date32"}:
        return TypeGuess(Scalar("Date32"), "calendar dates, some before 1970 or after 2149-06-06")
    if kinds <= {"ipv4", "ipv6"} and (address := _address(name, kinds, seen)) is not None:
        return address
    if kinds <= {"date", "date32", "datetime"}:
        scale = max(3, -(-seen.fractions // 3) * 3)
        if scale == 9 and seen.latest_s >= _NANOSECONDS_UNTIL_S:
            return TypeGuess(STRING, "times with nanoseconds beyond 2262")
        return TypeGuess(DateTime64(scale), f"ISO 8601 times with up to {seen.fractions} digits of a second")
    if kinds == {"uuid"}:
        return TypeGuess(Scalar("UUID"), "UUIDs")
    if kinds == {"decimal"} and len(seen.scales) == 1 and "version" not in snake(name):
        (scale,) = seen.scales
        precision = 18 if seen.digits_before + scale <= 15 else 38
        if seen.digits_before + scale <= precision:
            return TypeGuess(Decimal(precision, scale), f"numbers in quotes, always {scale} digits behind the point")
    few = len(seen.distinct) <= min(LOW_DISTINCT_MAX, seen.values // 5)
    if few and seen.values >= LOW_VALUES_MIN and len(seen.distinct) <= DISTINCT_MAX:
        return TypeGuess(LowCardinality(STRING), f"{len(seen.distinct)} different texts in {seen.values} values")
    mixed = "mixed: " + " and ".join(sorted(kinds)) if len(kinds) > 1 else "text"
    return TypeGuess(STRING, mixed)


def _address(name: str, kinds: set[str], seen: FieldStats) -> TypeGuess | None:
    """Addresses, if the name says so or many were seen."""
    words = snake(name)
    if "version" in words or (not _ADDRESS_NAME.search(words) and seen.values < ADDRESSES_MIN):
        return None
    if kinds == {"ipv4"}:
        return TypeGuess(Scalar("IPv4"), "IPv4 addresses")
    why = "IPv6 addresses" if kinds == {"ipv6"} else "IPv4 and IPv6 addresses"
    return TypeGuess(Scalar("IPv6"), why)


def _array(seen: FieldStats) -> TypeGuess:
    elements = seen.elements
    if elements is None or not elements.times:
        return TypeGuess(Array(STRING), "only empty arrays were seen")
    if set(elements.kinds) == {"object"} and not elements.nulls:
        inner = _object(elements)
        if isinstance(inner.type, Map | Tuple):
            return TypeGuess(Array(inner.type), f"arrays: {inner.why}")
    if "object" in elements.kinds:
        return TypeGuess(STRING, "arrays of objects, stored as JSON")
    inner = guess_type("", elements)
    if isinstance(inner.type, LowCardinality):
        inner = TypeGuess(STRING, inner.why)
    if elements.kinds.get("array") and not isinstance(inner.type, Array):
        return TypeGuess(STRING, "arrays of mixed arrays, stored as JSON")
    if elements.nulls and isinstance(inner.type, Array):
        return TypeGuess(STRING, "arrays with null among their arrays, stored as JSON")
    return TypeGuess(Array(Nullable(inner.type) if elements.nulls else inner.type), f"arrays: {inner.why}")


def _object(seen: FieldStats) -> TypeGuess:
    """An object that is not flattened: empty, with keys that are data, or an element of an array."""
    if not seen.fields:
        return TypeGuess(STRING, "only empty objects were seen, stored as JSON")
    if not keys_are_data(seen):
        made = _tuple(seen)
        return TypeGuess(STRING, "objects, stored as JSON") if made is None else made
    types = {_plain(guess_type("", each).type) for each in seen.fields.values()}
    keys = f"objects with {len(seen.fields)} different keys"
    nulls = any(each.nulls for each in seen.fields.values())
    if types == {INT64, FLOAT64}:
        types = {FLOAT64}
    if len(types) != 1 or isinstance(of := types.pop(), NO_NULL):
        return TypeGuess(STRING, f"{keys}, stored as JSON")
    if of == STRING and not all(_all_texts(each) for each in seen.fields.values()):
        return TypeGuess(STRING, f"{keys}, stored as JSON")
    return TypeGuess(Map(Nullable(of) if nulls else of), f"{keys}, all {of}")


def _plain(kind: Type) -> Type:
    return unwrap(kind) if isinstance(kind, LowCardinality) else kind


def _all_texts(seen: FieldStats) -> bool:
    return not set(seen.kinds) & {"bool", "int", "float", "array", "object"}


def _tuple(seen: FieldStats) -> TypeGuess | None:
    """A Tuple, if many objects were seen and all have the same keys: an object with another key will be rejected."""
    objects = seen.kinds["object"]
    same = all(each.times == objects for each in seen.fields.values())
    if objects < TUPLE_OBJECTS_MIN or not same or len(seen.fields) > TUPLE_KEYS_MAX:
        return None
    if any(map(invalid_name_reason, seen.fields)):
        return None
    elements = []
    for name, each in seen.fields.items():
        found = _plain(guess_type(name, each).type)
        if not each.values or (each.nulls and isinstance(found, NO_NULL)):
            return None
        elements.append(Nullable(found) if each.nulls else found)
    why = f"{objects} objects, all with the keys {', '.join(seen.fields)}"
    return TypeGuess(Tuple(tuple(elements), tuple(seen.fields)), why)


def keys_are_data(seen: FieldStats) -> bool:
    """Whether an object's keys are data, such as ids: many keys, each in few of the objects."""
    if len(seen.fields) < MAP_KEYS_MIN:
        return False
    return (
        sum(each.times for each in seen.fields.values()) / len(seen.fields) <= MAP_PRESENCE_MAX * seen.kinds["object"]
    )


def snake(name: str) -> str:
    """`createdAt` and `Created-At` as `created_at`."""
    return re.sub(r"[^A-Za-z0-9]+", "_", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)).lower()
