"""Random ClickHouse types."""

from hypothesis import strategies as st

from holdfast.clickhouse.types import (
    SCALARS,
    STRING,
    Array,
    DateTime,
    DateTime64,
    Decimal,
    EnumOf,
    FixedString,
    Json,
    LowCardinality,
    Map,
    Nullable,
    Scalar,
    Tuple,
    Type,
)

ZONES = st.none() | st.sampled_from(["UTC", "Europe/Berlin", "Etc/GMT+5"])
ENUM_NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
LEAVES: st.SearchStrategy[Type] = st.one_of(
    st.sampled_from(SCALARS).map(Scalar),
    st.integers(1, 76).flatmap(lambda p: st.builds(Decimal, st.just(p), st.integers(0, p))),
    st.builds(DateTime, ZONES),
    st.builds(DateTime64, st.integers(0, 9), ZONES),
    st.builds(FixedString, st.integers(1, 40)),
    st.sampled_from([Json(), Json(max_dynamic_paths=8), Json(max_dynamic_types=3)]),
    st.sampled_from([8, 16]).flatmap(
        lambda bits: st.dictionaries(st.integers(-128, 127), ENUM_NAMES, min_size=1, max_size=5).map(
            lambda names: EnumOf(bits, tuple((f"{name}{number}", number) for number, name in sorted(names.items())))
        )
    ),
)
KEYS: st.SearchStrategy[Type] = st.sampled_from(
    [STRING, LowCardinality(STRING), Scalar("UInt16"), Scalar("UUID"), Scalar("Date"), Scalar("IPv4"), FixedString(3)]
)
SINGLE: st.SearchStrategy[Type] = (
    LEAVES | LEAVES.map(Nullable) | st.sampled_from([LowCardinality(STRING), LowCardinality(Nullable(STRING))])
)
NAMES = st.sampled_from([(), ("a", "b"), ("od`d n'ame", "日"), ("Int8", "Tuple")])


def _tuples(inner: st.SearchStrategy[Type]) -> st.SearchStrategy[Type]:
    return st.builds(Tuple, st.tuples(inner, inner), NAMES)


TYPES: st.SearchStrategy[Type] = st.recursive(
    SINGLE, lambda inner: inner.map(Array) | st.builds(Map, inner, KEYS) | _tuples(inner), max_leaves=4
)
