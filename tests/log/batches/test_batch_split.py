"""Everything a header can have wrong is refused, with the rule, the place and the value."""

import pickle

import pytest
from tests.support.batches import with_fields

from holdfast.log.batches import (
    BatchRule,
    CorruptBatchError,
    InvalidBatchError,
    Record,
    RecordBatchLimits,
    encode,
    parse_header,
    split_batches,
)
from holdfast.log.batches.kernels import BatchKernel
from holdfast.vocabulary.errors import CorruptError, InvalidError

LIMITS = RecordBatchLimits(batch_bytes_max=10_000, records_max=100)
SOUND = encode([Record(n, 1_000 + n, b"key", b"value") for n in range(3)])
SIGNED = with_fields(SOUND, producer_id=5, producer_epoch=0, base_sequence=0)


def refusal(payload: bytes, kernel: BatchKernel) -> InvalidBatchError:
    with pytest.raises(InvalidBatchError) as caught:
        split_batches(payload, limits=LIMITS, kernel=kernel)
    return caught.value


def damage(payload: bytes, kernel: BatchKernel) -> CorruptBatchError:
    with pytest.raises(CorruptBatchError) as caught:
        split_batches(payload, limits=LIMITS, stored=True, kernel=kernel)
    return caught.value


def test_several_batches_are_cut_where_they_lie(kernel: BatchKernel) -> None:
    payload = bytearray(SOUND + SIGNED + SOUND)
    batches = split_batches(payload, limits=LIMITS, kernel=kernel)
    assert [bytes(batch.data) for batch in batches] == [SOUND, SIGNED, SOUND]
    assert [batch.header for batch in batches] == [parse_header(SOUND), parse_header(SIGNED), parse_header(SOUND)]
    batches[1].data[0] = 7  # no copy: the batch is where the payload is
    assert payload[len(SOUND)] == 7


@pytest.mark.parametrize(
    ("fields", "rule", "given"),
    [
        ({"magic": 1}, BatchRule.MAGIC, 1),
        ({"magic": -1}, BatchRule.MAGIC, -1),
        ({"length": 48}, BatchRule.LENGTH, 48),
        ({"length": -5}, BatchRule.LENGTH, -5),
        ({"length": 2**31 - 1}, BatchRule.SIZE, 2**31 + 11),
        ({"length": 9_000}, BatchRule.CUT, len(SOUND)),
        ({"attributes": 5}, BatchRule.CODEC, 5),
        ({"attributes": 7}, BatchRule.CODEC, 7),
        ({"count": 0}, BatchRule.COUNT, 0),
        ({"count": -1}, BatchRule.COUNT, -1),
        ({"count": 101, "last_offset_delta": 100, "attributes": 3}, BatchRule.COUNT, 101),
        ({"count": 20, "last_offset_delta": 19}, BatchRule.COUNT, 20),  # more records than bytes
        ({"last_offset_delta": 3}, BatchRule.OFFSETS, 3),
        ({"last_offset_delta": -1}, BatchRule.OFFSETS, -1),
        ({"base_timestamp": -2}, BatchRule.TIMESTAMP, -2),
        ({"max_timestamp": -(2**63)}, BatchRule.TIMESTAMP, -(2**63)),
        ({"attributes": 0x20}, BatchRule.CONTROL, 0x20),
        ({"attributes": 0x10}, BatchRule.TRANSACTIONAL, 0x10),
        ({"producer_id": -2}, BatchRule.PRODUCER, -2),
        ({"producer_id": 1}, BatchRule.PRODUCER, -1),
        ({"producer_id": 1, "producer_epoch": 0}, BatchRule.SEQUENCE, -1),
        ({"crc": 17}, BatchRule.CRC, 17),
    ],
)
def test_a_wrong_field_is_refused_wherever_its_batch_lies(
    fields: dict[str, int], rule: BatchRule, given: int, kernel: BatchKernel
) -> None:
    error = refusal(with_fields(SOUND, **fields), kernel)
    assert (error.rule, error.fault.at, error.fault.record, error.given) == (rule, 0, -1, given)
    assert refusal(SIGNED + with_fields(SOUND, **fields), kernel).fault == error.fault._replace(at=len(SIGNED))


def test_every_flipped_bit_is_noticed_but_in_what_the_leader_writes(kernel: BatchKernel) -> None:
    for at in range(len(SOUND)):
        for bit in range(8):
            flipped = bytearray(SOUND)
            flipped[at] ^= 1 << bit
            if at < 8 or 12 <= at < 16:
                split_batches(flipped, limits=LIMITS, kernel=kernel)
            else:
                refusal(bytes(flipped), kernel)


def test_every_cut_is_noticed(kernel: BatchKernel) -> None:
    for length in range(1, len(SOUND)):
        assert refusal(SOUND[:length], kernel).rule == BatchRule.CUT
        assert refusal(SOUND + SOUND[:length], kernel).fault.at == len(SOUND)


def test_an_empty_payload_is_no_produce_request_but_an_empty_log(kernel: BatchKernel) -> None:
    assert refusal(b"", kernel).rule == BatchRule.EMPTY
    assert split_batches(b"", limits=LIMITS, stored=True, kernel=kernel) == []


def test_a_log_may_hold_what_no_producer_may_send(kernel: BatchKernel) -> None:
    lawful = [
        encode([Record(7, 1, None, b"marker")], base_offset=5, control=True, transactional=True, producer_id=9),
        encode([Record(10, 1, b"k", b"v"), Record(40, 2, b"l", b"w")], base_offset=8, last_offset=60),
        encode([], base_offset=61, last_offset=70),
        encode([Record(71, 1, None, bytes(20_000))], base_offset=71),
    ]
    for batch in lawful:
        refusal(batch, kernel)
    found = split_batches(b"".join(lawful), limits=LIMITS, stored=True, kernel=kernel)
    assert [(b.header.base_offset, b.header.last_offset) for b in found] == [(5, 7), (8, 60), (61, 70), (71, 71)]


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"crc": 17}, BatchRule.CRC),
        ({"count": -1}, BatchRule.COUNT),
        ({"last_offset_delta": 1}, BatchRule.OFFSETS),
        ({"last_offset_delta": -1, "count": 0}, BatchRule.OFFSETS),
        ({"base_offset": -1}, BatchRule.BASE_OFFSET),
        ({"base_offset": 2**63 - 2}, BatchRule.BASE_OFFSET),
        ({"producer_id": -2}, BatchRule.PRODUCER),
    ],
)
def test_damage_to_a_log_is_corruption(fields: dict[str, int], rule: BatchRule, kernel: BatchKernel) -> None:
    error = damage(with_fields(SOUND, **fields), kernel)
    assert isinstance(error, CorruptError)
    assert error.rule == rule


def test_an_error_says_what_and_where_and_survives_pickling(kernel: BatchKernel) -> None:
    error = refusal(SOUND + with_fields(SOUND, magic=0), kernel)
    assert isinstance(error, InvalidError)
    assert str(error) == f"record batch at byte {len(SOUND)}: invalid magic 0: must be 2"
    again = pickle.loads(pickle.dumps(error))
    assert (again.fault, str(again)) == (error.fault, str(error))
    stored = damage(with_fields(SOUND, crc=17), kernel)
    assert str(pickle.loads(pickle.dumps(stored))) == str(stored)


def test_limits_are_checked_when_they_are_made() -> None:
    for name in ("batch_bytes_max", "records_max", "inflated_bytes_max"):
        with pytest.raises(InvalidError, match=name):
            RecordBatchLimits(**{name: 0})
