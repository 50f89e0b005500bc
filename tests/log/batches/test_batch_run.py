"""A run is what would be accepted batch by batch, and numbered as it would be there."""

from struct import pack_into

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from tests.support.batch_fuzzer import broken, plain_batch, sound_batch
from tests.support.partitions import batch
from tests.support.steps import executed_lines

from holdfast.log.batches import InvalidBatchError, RecordBatchLimits, batch_run, parse_header, split_batches
from holdfast.log.batches.batch_run import cut_run, locate_in_run, number_run, verify_run
from holdfast.log.batches.header import APPEND_TIME, CODEC_MASK, CONTROL, CRC_AT, TRANSACTIONAL, checksum
from holdfast.log.batches.record_checks import check_records
from holdfast.log.partition.offset_assignment import assign_offsets
from holdfast.vocabulary.random import SeededRandom

native = pytest.importorskip("holdfast._native", reason="the C kernel was not built: no compiler")

NOT_PLAIN = CODEC_MASK | APPEND_TIME | TRANSACTIONAL | CONTROL
LIMITS = RecordBatchLimits(batch_bytes_max=100_000, records_max=30)


def accepted(payloads: list[bytes], *, records: bool) -> bool:
    """Whether each is, batch by batch, and is plain."""
    try:
        batches = [each for payload in payloads for each in split_batches(payload, limits=LIMITS)]
        if records:
            check_records(batches, limits=LIMITS)
    except InvalidBatchError:
        return False
    return all(not header.attributes & NOT_PLAIN for header, _ in batches)


@pytest.mark.parametrize("seed", range(6))
def test_a_run_is_what_would_be_accepted_batch_by_batch(seed: int) -> None:
    random = SeededRandom(seed).random
    runs = 0
    for _ in range(400):
        payloads = [plain_batch(random) for _ in range(random.choice((1, 2, 5)))]
        if random.random() < 0.3:
            payloads[-1] += plain_batch(random)
        if random.random() < 0.5:
            at = random.randrange(len(payloads))
            payloads[at] = broken(random, random.choice((payloads[at], sound_batch(random))))
        for checked in (True, False):
            run = verify_run([bytearray(each) for each in payloads], limits=LIMITS, records=checked)
            assert (run is not None) == accepted(payloads, records=checked), payloads
            if run is not None:
                runs += 1
                headers = [header for header, _ in split_batches(b"".join(payloads), limits=LIMITS)]
                assert run.data == b"".join(payloads)
                assert run.batch_count == len(headers)
                assert run.record_count == sum(header.count for header in headers)
                assert run.max_timestamp_ms == max(header.max_timestamp for header in headers)
                assert run.of_producers == sum(header.producer_id >= 0 for header in headers)
                assert run.headers() == headers
    assert runs > 200


@given(st.lists(st.integers(1, 5), min_size=1, max_size=9), st.integers(0, 1 << 62), st.integers(0, 2**31 - 1))
def test_a_run_is_numbered_as_its_batches_would_be(counts: list[int], base_offset: int, epoch: int) -> None:
    payloads = [bytearray(batch(*"x" * count)) for count in counts]
    batches = [each for payload in payloads for each in split_batches(bytes(payload), limits=LIMITS)]
    expected = assign_offsets(batches, base_offset, epoch, copy_below_bytes=1 << 20)
    run = verify_run(payloads, limits=LIMITS, records=True)
    assert run is not None
    assert number_run(run, base_offset=base_offset, epoch=epoch) == [each.base_offset for each in expected]
    assert cut_run(run.data) == [each.data for each in expected]
    assert [parse_header(each) for each in cut_run(run.data)] == [each.header for each in expected]


@given(
    st.lists(st.integers(1, 3), max_size=6),
    st.integers(-1, 20),
    st.integers(-1, 20),
    st.integers(-1, 600),
    st.booleans(),
)
def test_a_part_of_a_run_is_found_as_its_twin_finds_it(
    counts: list[int], offset: int, below: int, bytes_max: int, one: bool
) -> None:
    data = bytearray(b"".join(batch(*"x" * count) for count in counts))
    native.number_run(data, 0, 1)
    found = locate_in_run(data, offset, below=below, bytes_max=bytes_max, one=one)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_run, "native", None)
        assert locate_in_run(data, offset, below=below, bytes_max=bytes_max, one=one) == found
    with pytest.raises(ValueError, match="not a run"):
        native.locate_run(data + b"x", offset, 1 << 62, 1 << 62, one)


def test_a_later_timestamp_than_the_batch_says_is_no_fault() -> None:
    late = bytearray(batch("x", at_ms=50))
    pack_into(">q", late, 35, 7)
    pack_into(">I", late, CRC_AT, checksum(late))
    assert verify_run([late], limits=LIMITS, records=True) is not None


def test_one_payload_is_not_copied() -> None:
    payload = bytearray(batch("x"))
    run = verify_run([payload], limits=LIMITS, records=True)
    assert run is not None
    assert run.data is payload


def test_what_is_too_much_at_once_is_no_run() -> None:
    payloads = [bytearray(batch("x" * 90_000)) for _ in range(30)]
    assert verify_run(payloads[:20], limits=LIMITS, records=True) is not None
    assert verify_run(payloads, limits=LIMITS, records=True) is None
    assert verify_run([], limits=LIMITS, records=True) is None
    assert verify_run([bytearray()], limits=LIMITS, records=True) is None


def test_no_step_is_taken_for_each_batch() -> None:
    few, many = ([bytearray(batch("x")) for _ in range(count)] for count in (2, 200))

    def lines(payloads: list[bytearray]) -> int:
        def work() -> None:
            run = verify_run(payloads, limits=LIMITS, records=True)
            assert run is not None
            number_run(run, base_offset=7, epoch=1)

        return executed_lines(work)

    assert lines(few) == lines(many)


def test_it_is_called_wrongly_and_lives() -> None:
    limits = (100_000, 30, 1 << 20, True)
    for payloads in ([b"bytes"], [7], (bytearray(),), None):
        with pytest.raises(TypeError):
            native.verify_run(payloads, *limits)
    sound = bytearray(batch("x"))
    for data, base_offset in ((sound[:-1], 0), (sound[:20], 0), (sound, -1), (sound, 2**63 - 1)):
        with pytest.raises(ValueError, match="room for its offsets"):
            native.number_run(data, base_offset, 1)
    with pytest.raises(TypeError):
        native.number_run(bytes(sound), 0, 1)


@given(st.binary(max_size=200))
def test_checksums_are_those_of_the_package_with_and_without_the_instruction(data: bytes) -> None:
    assert native.crc32c(data, False) == native.crc32c(data, True) == crc32c(data)
