"""What earlier releases wrote opens: records and snapshots from before fairness, those with it, and of heaps that grew."""

from pathlib import Path

import msgspec
import pytest

from holdfast.heap.canonical_state import encode_state
from holdfast.heap.partition_state import HeapState
from holdfast.heap.records import decode_operation
from holdfast.heap.snapshot_format import MAGIC, MAGIC_FAIR, SnapshotSubject, decode_image, encode_image
from holdfast.heap.state_image import capture, restored
from holdfast.vocabulary.errors import CorruptError

FIXTURES = Path(__file__).parents[1] / "fixtures"
SUBJECT = SnapshotSubject("t" * 32, 3)


def replayed(name: str) -> HeapState:
    state = HeapState("min")
    rows = msgspec.msgpack.decode((FIXTURES / f"{name}.records").read_bytes())
    for offset, (timestamp_ms, key, value, headers) in enumerate(rows):
        operation = decode_operation(key, value, tuple(map(tuple, headers)))
        state.apply(offset, timestamp_ms, operation)
    return state


@pytest.mark.parametrize("name", ["plain", "fair", "grown"])
def test_stored_records_and_the_stored_snapshot_of_them_are_one_state(name: str) -> None:
    snapshot = (FIXTURES / f"{name}.snap").read_bytes()
    state = restored(decode_image(snapshot, SUBJECT))
    assert encode_state(state) == encode_state(replayed(name))


def test_a_heap_without_fairness_writes_the_bytes_that_it_always_wrote() -> None:
    stored = (FIXTURES / "plain.snap").read_bytes()
    assert b"".join(encode_image(capture(replayed("plain")), SUBJECT)) == stored
    assert stored.startswith(MAGIC)


def test_a_fair_snapshot_has_a_version_of_its_own_and_keeps_rules_keys_and_leases() -> None:
    stored = (FIXTURES / "fair.snap").read_bytes()
    assert stored.startswith(MAGIC_FAIR)
    fair = restored(decode_image(stored, SUBJECT)).fair
    assert fair is not None
    assert (fair.rules.key_leases_max, dict(fair.rules.weights)) == (2, {"gold": 5})
    assert [fair.key_of(offset) for offset in (1, 2, 3, 4, 5)] == ["gold", "free", "gold", "k3", "\0"]


def test_a_snapshot_of_a_heap_that_grew_says_how_many_partitions_there_are() -> None:
    assert restored(decode_image((FIXTURES / "grown.snap").read_bytes(), SUBJECT)).partitions == 6
    assert restored(decode_image((FIXTURES / "plain.snap").read_bytes(), SUBJECT)).partitions == 0


def test_rules_that_are_cut_are_corrupt() -> None:
    key, value = bytes((1, 32)), b"\1"
    with pytest.raises(CorruptError, match="operation"):
        decode_operation(key, value)
