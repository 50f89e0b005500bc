"""Where records go."""

from holdfast.gateways.log_access import log_appends
from holdfast.vocabulary.hashing import kafka_partition


def test_long_keys_have_their_partition_and_are_not_kept() -> None:
    before = log_appends._partition_of_key.cache_info().currsize
    key = b"k" * 1_000_000
    assert log_appends._key_partition(key, 7) == kafka_partition(key, 7)
    assert log_appends._partition_of_key.cache_info().currsize == before
