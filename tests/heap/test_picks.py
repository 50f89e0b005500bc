"""Picked records are read as the messages that they are, by C as by Python."""

from array import array
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.heap import picks
from holdfast.heap.model import StoredMessage
from holdfast.heap.picks import (
    Wanted,
    bucket_counts,
    enqueues_of,
    message_of,
    picked_messages,
    sorted_words,
    stored_bytes,
    words_of,
)
from holdfast.heap.records import (
    Ack,
    Copy,
    Enqueue,
    Operation,
    Origin,
    ProducerSequence,
    Reserve,
    decode_operation,
    encode_operation,
)
from holdfast.log.batches import Record, decode, encode, pick_records
from holdfast.vocabulary.errors import CorruptError
from holdfast.vocabulary.native import native

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
ENQUEUES = st.builds(
    Enqueue,
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.binary(max_size=20),
    st.integers(0, 1 << 50),
    st.integers(-1, 1 << 30),
    st.none() | st.builds(ProducerSequence, TEXTS, st.integers(0, 1 << 40), st.integers(0, 1 << 62)),
    st.none() | TEXTS,
    st.none()
    | st.builds(Origin, TEXTS, st.integers(0, 9), st.binary(min_size=16, max_size=16), st.integers(0, 9), TEXTS),
    st.lists(st.tuples(TEXTS, st.none() | st.binary(max_size=5)), max_size=2).map(tuple),
    st.none() | TEXTS,
)
OPERATIONS = (
    ENQUEUES
    | st.builds(Copy, st.integers(0, 1 << 40), st.integers(0, 1 << 50), ENQUEUES)
    | st.builds(Reserve, st.just("0" * 32), ENQUEUES)
    | st.just(Ack((1, 2)))
)

BOTH = pytest.mark.parametrize("with_native", [True, False])


@pytest.fixture
def in_python(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    return lambda: monkeypatch.setattr(picks, "native", None)


def batch_of(operations: Sequence[Operation], first: int = 100) -> bytes:
    records = [Record(first + at, 1_000 + at, *encode_operation(each)) for at, each in enumerate(operations)]
    return bytes(encode(records))


def expected(batch: bytes, offsets: Sequence[int]) -> dict[int, StoredMessage]:
    read = [message_of(*record) for record in decode(batch) if record.offset in offsets]
    return dict(each for each in read if each is not None)


@given(st.lists(OPERATIONS, min_size=1, max_size=8), st.sets(st.integers(98, 110)))
def test_picked_records_are_the_messages_of_the_log(operations: list[Operation], chosen: set[int]) -> None:
    batch = batch_of(operations)
    buffers = [bytearray()]
    words = words_of(sorted(chosen))
    assert pick_records(batch, words, 0, buffers) == len([each for each in chosen if each < 100 + len(operations)])
    found = picked_messages(buffers[0])
    assert found == expected(batch, sorted(chosen))
    for message in found.values():
        assert type(message) is StoredMessage
        assert type(message.enqueue) is Enqueue
        assert message.enqueue.producer is None or type(message.enqueue.producer) is ProducerSequence
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(picks, "native", None)
        assert picked_messages(buffers[0]) == found


@given(st.lists(OPERATIONS, max_size=8))
def test_records_are_read_as_the_messages_they_are(operations: list[Operation]) -> None:
    records = list(decode(batch_of(operations))) if operations else []
    with pytest.MonkeyPatch.context() as patch:
        for kernel in (native, None):
            patch.setattr(picks, "native", kernel)
            for operation, found in zip(operations, enqueues_of(records), strict=True):
                if found is not None:
                    assert type(found) is Enqueue
                    assert found == operation
                else:
                    assert not isinstance(operation, Enqueue) or operation.origin is not None, "C reads plain ones"


@pytest.mark.skipif(native is None, reason="the C extension is not built")
def test_what_c_does_not_read_is_left_to_python() -> None:
    broken = encode_operation(Enqueue(1, b"x", producer=ProducerSequence("abc", 1, 2)))[0][:-1]
    records = [Record(0, 1, None, b"x"), Record(1, 1, b"\x01", b"x"), Record(2, 1, broken, b"x")]
    assert enqueues_of(records) == [None] * 3
    with pytest.raises(CorruptError):
        decode_operation(broken, b"x")
    with pytest.raises(TypeError):
        enqueues_of([(1, 2)])  # type: ignore[list-item]


OFFSETS = st.sets(st.integers(98, 110) | st.integers(0, 1 << 40))


@given(st.lists(OPERATIONS, min_size=1, max_size=8), OFFSETS, OFFSETS, OFFSETS, st.booleans())
def test_only_messages_that_are_wanted_are_read(
    operations: list[Operation], ready: set[int], needed: set[int], here: set[int], with_copies: bool
) -> None:
    if with_copies:  # their offsets are others than their places
        ready |= {each.offset for each in operations if isinstance(each, Copy)}
    batch, buffers = batch_of(operations), [bytearray()]
    pick_records(batch, words_of(range(100, 120)), 0, buffers)
    whole = expected(batch, range(100, 120))
    wanted = Wanted(ready, needed, (dict.fromkeys(here), {100: None}))
    chosen = {offset for offset in ready | needed if offset not in here and offset != 100}
    with pytest.MonkeyPatch.context() as patch:
        for kernel in (native, None):
            patch.setattr(picks, "native", kernel)
            assert wanted.of([*range(95, 115), 7]) == [each for each in (*range(95, 115), 7) if each in chosen]
            found = picked_messages(buffers[0], wanted)
            assert found == {offset: message for offset, message in whole.items() if offset in chosen}


@given(st.lists(ENQUEUES, max_size=8))
def test_what_messages_take_is_the_same_in_c_and_python(messages: list[Enqueue]) -> None:
    stored = [StoredMessage(each, 7) for each in messages]
    with pytest.MonkeyPatch.context() as patch:
        sizes = set()
        for kernel in (native, None):
            patch.setattr(picks, "native", kernel)
            sizes.add(stored_bytes(stored, 100))
            sizes.add(stored_bytes(dict(enumerate(stored)).values(), 100))
        assert len(sizes) == 1


def test_headers_keys_and_producers_count() -> None:
    laden = Enqueue(
        1, b"x" * 100, producer=ProducerSequence("p", 0, 1), partition_key="k" * 50, headers=(("h", b"v" * 5_000),)
    )
    assert stored_bytes([StoredMessage(Enqueue(1, b"x" * 100), 0)], 300) == 400
    assert 300 + 100 + 50 + 5_000 < stored_bytes([StoredMessage(laden, 0)], 300) < 6_300


@pytest.mark.skipif(native is None, reason="the C extension is not built")
def test_what_is_no_message_has_no_size() -> None:
    for other in ([1], [(1, 2)], [((1,) * 9, 0)], [(Enqueue(1, b"x", headers=(1,)), 0)], 5):  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            stored_bytes(other, 100)  # type: ignore[arg-type]


@BOTH
def test_what_was_not_picked_is_refused(with_native: bool, in_python: Callable[[], None]) -> None:
    if not with_native:
        in_python()
    buffers = [bytearray()]
    pick_records(batch_of([Enqueue(1, b"x" * 50)]), words_of([100]), 0, buffers)
    whole = bytes(buffers[0])
    for broken in (whole[:-1], whole[:10], whole + b"\x00", whole[:16] + b"\xff" * 20):
        with pytest.raises(CorruptError):
            picked_messages(broken)
    assert picked_messages(b"") == {}


@BOTH
def test_a_record_of_a_newer_release_is_refused(with_native: bool, in_python: Callable[[], None]) -> None:
    if not with_native:
        in_python()
    buffers = [bytearray()]
    pick_records(bytes(encode([Record(0, 1, b"\x02\x01", b"x")])), words_of([0]), 0, buffers)
    with pytest.raises(CorruptError, match="of a newer release"):
        picked_messages(buffers[0])


@BOTH
def test_texts_that_are_none_are_refused(with_native: bool, in_python: Callable[[], None]) -> None:
    if not with_native:
        in_python()
    key, value, headers = encode_operation(Enqueue(1, b"x", producer=ProducerSequence("abc", 1, 2), partition_key="de"))
    for broken in (
        key[:-1],
        key[:24],
        key.replace(b"abc", b"\xff\xfe\xfd"),
        key.replace(b"\x00\x03abc", b"\xff\x03abc"),
    ):
        buffers = [bytearray()]
        pick_records(bytes(encode([Record(0, 1, broken, value, headers)])), words_of([0]), 0, buffers)
        with pytest.raises(CorruptError):
            picked_messages(buffers[0])


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 255))), st.lists(st.integers(0, 50)))
def test_buckets_are_counted(placed: list[tuple[int, int]], others: list[int]) -> None:
    buckets = dict(placed)
    words = sorted_words(array("Q", [place << 8 | bucket for place, bucket in buckets.items()]).tobytes())
    assert list(array("Q", words)) == sorted(array("Q", words))
    counts = bucket_counts(words, words_of(sorted(others)))
    for bucket in range(256):
        assert counts[bucket] == len([each for each in others if buckets.get(each) == bucket])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(picks, "native", None)
        assert bucket_counts(words, words_of(sorted(others))) == counts
        assert sorted_words(words) == words


@pytest.mark.skipif(native is None, reason="the C extension was not built")
def test_what_are_no_words_is_refused() -> None:
    assert native is not None
    for call in (lambda: native.sorted_words(b"123"), lambda: native.bucket_counts(b"12345678", b"1")):
        with pytest.raises(ValueError, match="no whole words"):
            call()
    batch = batch_of([Enqueue(1, b"x")])
    with pytest.raises(ValueError, match="no bucket 3"):
        pick_records(batch, array("Q", [100 << 8 | 3]).tobytes(), 0, [bytearray()])
    with pytest.raises(TypeError, match="bytearrays"):
        pick_records(batch, words_of([100]), 0, [b""])  # type: ignore[list-item]
