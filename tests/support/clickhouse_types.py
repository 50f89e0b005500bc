"""Random ClickHouse types."""

from hypothesis import strategies as st

from holdfast.clickhouse.types import (
    SCALARS,
    STRING,
    Array,
    DateTime,
    DateTime64,
    Decimal,
    LowCardinality,
    Map,
    Nullable,
    Scalar,
    Type,
)

ZONES = st.none() | st.sampled_from(["UTC", "Europe/Berlin", "Etc/GMT+5"])
LEAVES: st.SearchStrategy[Type] = st.one_of(
    st.sampled_from(SCALARS).map(Scalar),
    st.integers(1, 76).flatmap(lambda p: st.builds(Decimal, st.just(p), st.integers(0, p))),
    st.builds(DateTime, ZONES),
    st.builds(DateTime64, st.integers(0, 9), ZONES),
)
SINGLE: st.SearchStrategy[Type] = (
    LEAVES | LEAVES.map(Nullable) | st.sampled_from([LowCardinality(STRING), LowCardinality(Nullable(STRING))])
)
TYPES: st.SearchStrategy[Type] = st.recursive(SINGLE, lambda inner: inner.map(Array) | inner.map(Map), max_leaves=4)
