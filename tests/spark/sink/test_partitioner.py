"""Partitions by partition, by key as Kafka has it, or spread."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.spark.sink.partitioner import assign_partitions, murmur2_column
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.hashing import kafka_partition, murmur2

KEYS = st.lists(st.none() | st.binary(max_size=40), min_size=1, max_size=60)


@given(keys=KEYS, large=st.booleans(), cut=st.integers(0, 5))
def test_the_hash_of_a_column_is_that_of_each_key(keys: list[bytes | None], large: bool, cut: int) -> None:
    column = pa.array(keys, pa.large_binary() if large else pa.binary()).slice(min(cut, len(keys) - 1))
    hashes = murmur2_column(column)
    for key, found in zip(column.to_pylist(), hashes.tolist(), strict=True):
        assert key is None or found == murmur2(key)


@given(keys=KEYS, partitions=st.integers(1, 50))
def test_keys_go_where_kafka_puts_them(keys: list[bytes | None], partitions: int) -> None:
    assigned = assign_partitions(pa.array(keys, pa.binary()), None, partitions=partitions, spread=7, rows=len(keys))
    expected = [7 % partitions if key is None else kafka_partition(key, partitions) for key in keys]
    assert assigned.tolist() == expected


def test_a_row_without_key_goes_where_the_others_of_its_batch_go() -> None:
    assert assign_partitions(None, None, partitions=4, spread=6, rows=3).tolist() == [2, 2, 2]


def test_the_partition_column_takes_precedence_over_the_key() -> None:
    keys, requested = pa.array([b"a", b"b", None]), pa.array([3, None, 1], pa.int32())
    assigned = assign_partitions(keys, requested, partitions=4, spread=0, rows=3)
    assert assigned.tolist() == [3, kafka_partition(b"b", 4), 1]


@pytest.mark.parametrize("partition", [-1, 4])
def test_a_partition_that_does_not_exist_is_refused(partition: int) -> None:
    with pytest.raises(InvalidError, match=rf"invalid column partition {partition}: must be 0 to 3"):
        assign_partitions(None, pa.array([0, partition]), partitions=4, spread=0, rows=2)


def test_no_rows_give_no_partitions() -> None:
    assert assign_partitions(pa.array([], pa.binary()), None, partitions=4, spread=0, rows=0).dtype == np.int64
