"""Which records survive: one survey and one sieve, against a replay of everything; transactions, compressions, keys."""

from collections.abc import Sequence
from struct import pack

from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import examples

from holdfast.log.batches import Record, RecordBatchLimits, decode, encode, parse_header, set_append_time, split_batches
from holdfast.log.maintenance.compaction_filter import CompactionFilter, CompactionScan, KeyOffsetMap

KEYS = [None, b"", b"a", b"b", b"x" * 15, b"x" * 16, b"y" * 40]


def batch(base: int, pairs: Sequence[tuple[bytes | None, bytes | None]], **given: object) -> bytes:
    records = [Record(base + at, 1_000 + base + at, key, value) for at, (key, value) in enumerate(pairs)]
    return encode(records, base_offset=base, **given)  # type: ignore[arg-type]


def marker(base: int, producer_id: int, *, commit: bool) -> bytes:
    key = pack(">hh", 0, 1 if commit else 0)
    record = Record(base, 1_000 + base, key, pack(">hi", 0, 0))
    return encode(
        [record], base_offset=base, producer_id=producer_id, producer_epoch=0, control=True, transactional=True
    )


def records_of(batches: Sequence[object]) -> list[Record]:
    return [each for data in batches for each in decode(bytes(data))]  # type: ignore[call-overload]


pairs = st.lists(st.tuples(st.sampled_from(KEYS), st.sampled_from([None, b"1", b"22"])), min_size=1, max_size=5)


@examples(0.5)
@given(
    written=st.lists(st.tuples(pairs, st.sampled_from(["none", "gzip", "snappy", "lz4", "zstd"])), max_size=8),
    drop_tombstones=st.booleans(),
    slices=st.integers(1, 3),
)
def test_what_survives_is_the_last_of_each_key_where_it_was(
    written: list[tuple[list[tuple[bytes | None, bytes | None]], str]], drop_tombstones: bool, slices: int
) -> None:
    log: list[object] = []
    at = 0
    for each, compression in written:
        log.append(batch(at, each, compression=compression, leader_epoch=4))
        at += len(each)
    everything = records_of(log)
    left = log
    for number in range(slices):
        survey = CompactionScan(KeyOffsetMap(number, slices))
        survey.add(left)  # type: ignore[arg-type]
        left = list(CompactionFilter(survey, drop_tombstones=drop_tombstones).pass_all(left))  # type: ignore[arg-type]
    last = {each.key: each.offset for each in everything}
    expected = [
        each
        for each in everything
        if each.key is None or (last[each.key] == each.offset and not (each.value is None and drop_tombstones))
    ]
    assert records_of(left) == expected
    covered = {(header.base_offset, header.last_offset) for header in map(parse_header, log)}  # type: ignore[arg-type]
    for data in left:
        header = split_batches(bytes(data), limits=RecordBatchLimits(), stored=True)[0].header  # type: ignore[call-overload]
        assert (header.base_offset, header.last_offset) in covered
        assert header.leader_epoch == 4


def compacted(log: Sequence[bytes]) -> tuple[list[Record], CompactionScan]:
    survey = CompactionScan(KeyOffsetMap())
    survey.add(log)
    first = survey
    if survey.first_open is not None:
        survey = CompactionScan(KeyOffsetMap(), first=first)
        survey.add(log)
    return records_of(CompactionFilter(survey, drop_tombstones=False).pass_all(log)), first


def test_an_aborted_record_replaces_nothing_and_goes() -> None:
    of_seven = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
    log = [
        batch(0, [(b"a", b"kept")]),
        batch(1, [(b"a", b"aborted"), (b"b", b"aborted")], base_sequence=0, **of_seven),
        batch(3, [(b"c", b"between")]),
        marker(4, 7, commit=False),
        batch(5, [(b"c", b"committed")], base_sequence=2, **of_seven),
        marker(6, 7, commit=True),
    ]
    left, survey = compacted(log)
    assert [(each.offset, each.value) for each in left if each.offset not in (4, 6)] == [
        (0, b"kept"),
        (5, b"committed"),
    ]
    assert {each.offset for each in left} >= {4, 6}
    assert survey.first_open is None


def test_an_open_transaction_decides_nothing_yet() -> None:
    log = [
        batch(0, [(b"a", b"old")]),
        batch(1, [(b"b", b"old"), (b"b", b"newer")]),
        batch(3, [(b"a", b"perhaps")], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True),
        batch(4, [(b"b", b"later")]),
    ]
    left, survey = compacted(log)
    assert survey.first_open == 3
    assert [each.offset for each in left] == [0, 2, 3, 4]


def test_a_record_committed_late_counts_where_it_stands() -> None:
    log = [
        batch(0, [(b"a", b"in the transaction")], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True),
        batch(1, [(b"a", b"after it")]),
        marker(2, 7, commit=True),
    ]
    assert [each.value for each in compacted(log)[0]][:-1] == [b"after it"]


def test_a_rewritten_batch_says_what_it_said() -> None:
    stamped = bytearray(
        batch(10, [(b"a", b"1"), (b"b", b"2"), (b"a", b"3")], producer_id=5, producer_epoch=2, base_sequence=9)
    )
    set_append_time(stamped, timestamp_ms=77_777)
    survey = CompactionScan(KeyOffsetMap())
    survey.add([stamped])
    (left,) = CompactionFilter(survey, drop_tombstones=False).pass_all([stamped])
    before, after = parse_header(stamped), split_batches(left, limits=RecordBatchLimits(), stored=True)[0].header
    for name in ("base_offset", "last_offset", "producer_id", "producer_epoch", "base_sequence", "max_timestamp"):
        assert getattr(after, name) == getattr(before, name)
    assert after.append_time
    assert [(each.offset, each.timestamp_ms) for each in decode(left)] == [(11, 77_777), (12, 77_777)]


def test_a_batch_that_loses_nothing_stays_the_same_bytes() -> None:
    whole = batch(0, [(b"a", b"1"), (None, b"2")], compression="zstd")
    survey = CompactionScan(KeyOffsetMap())
    survey.add([whole])
    assert CompactionFilter(survey, drop_tombstones=False).pass_all([whole])[0] is whole


def test_a_long_key_is_never_taken_for_another() -> None:
    keys = KeyOffsetMap()
    keys.note(b"k" * 100, 5)
    digest = next(iter(keys._offsets))
    assert len(digest) == 16
    assert keys.last(digest) == -1
