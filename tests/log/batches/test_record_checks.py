"""What no consumer could read is refused when it is produced, compressed or not, within a bound of memory; the rest is taken."""

import tracemalloc
import zlib
from collections.abc import Callable

import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from holdfast.log.batches import (
    BatchRule,
    InvalidBatchError,
    Record,
    RecordBatchLimits,
    decode,
    encode,
    split_batches,
)
from holdfast.log.batches.compression import CODECS, codec_number, compress
from holdfast.log.batches.header import CRC_AT, HEADER, HEADER_BYTES, BatchHeader, checksum, parse_header
from holdfast.log.batches.kernels import NATIVE, PURE, BatchKernel
from holdfast.log.batches.record_checks import NAMED_MAX, KeylessRecordsError, check_records
from holdfast.log.batches.rules import BatchFault
from holdfast.vocabulary.settings import MIB

LIMITS = RecordBatchLimits(inflated_bytes_max=MIB)
KERNELS = [pytest.param(kernel, id=name) for name, kernel in (("native", NATIVE), ("pure", PURE)) if kernel is not None]
RECORDS = [Record(at, 1_000 + at, b"k%d" % at, b"v" * at, (("h", b"x"),)) for at in range(20)]


def packed(payload: bytes, compression: str, **fields: int) -> bytes:
    """A batch with any payload and header, and a right checksum."""
    body = compress(codec_number(compression), payload)
    return with_body(body, attributes=codec_number(compression), **fields)


def with_body(body: bytes, **fields: int) -> bytes:
    header = parse_header(encode(RECORDS))._replace(length=len(body) + HEADER_BYTES - 12, **fields)
    batch = bytearray(HEADER.pack(*header) + body)
    batch[CRC_AT : CRC_AT + 4] = checksum(batch).to_bytes(4, "big")
    return bytes(batch)


PAYLOAD = encode(RECORDS)[HEADER_BYTES:]


def check(batch: bytes, *, keyed: bool = False, kernel: BatchKernel = PURE) -> None:
    check_records(split_batches(batch, limits=LIMITS, kernel=kernel), limits=LIMITS, keyed=keyed, kernel=kernel)


def rule_of(batch: bytes, kernel: BatchKernel) -> BatchRule:
    with pytest.raises(InvalidBatchError) as error:
        check(batch, kernel=kernel)
    return error.value.rule


def changed(change: Callable[[bytearray], None]) -> bytes:
    payload = bytearray(PAYLOAD)
    change(payload)
    return bytes(payload)


BROKEN = {
    "a record is missing": (changed(lambda p: p.__delitem__(slice(len(p) - 5, None))), {}, BatchRule.RECORD_CUT),
    "there is one record more": (PAYLOAD + PAYLOAD, {}, BatchRule.TRAILING),
    "a count too large": (PAYLOAD, {"count": 21, "last_offset_delta": 20}, BatchRule.RECORD_CUT),
    "a count too small": (PAYLOAD, {"count": 19, "last_offset_delta": 18}, BatchRule.TRAILING),
    "nothing but zeros": (bytes(len(PAYLOAD)), {}, BatchRule.RECORD_LENGTH),
}


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("compression", CODECS)
@pytest.mark.parametrize("name", BROKEN)
def test_what_a_consumer_could_not_read_is_refused(kernel: BatchKernel, compression: str, name: str) -> None:
    payload, fields, rule = BROKEN[name]
    assert rule_of(packed(payload, compression, **fields), kernel) is rule


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("compression", CODECS)
def test_records_whose_offsets_do_not_follow_each_other_are_refused(kernel: BatchKernel, compression: str) -> None:
    gap = [*RECORDS[:10], *(each._replace(offset=each.offset + 1) for each in RECORDS[10:])]
    batch = packed(encode(gap)[HEADER_BYTES:], compression)
    assert rule_of(batch, kernel) is BatchRule.OFFSET_DELTA


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("compression", CODECS[1:])
def test_what_is_not_compressed_as_the_header_says_is_refused(kernel: BatchKernel, compression: str) -> None:
    body = compress(codec_number(compression), PAYLOAD)
    for wrong in (PAYLOAD, body[:-3], b""):
        assert rule_of(with_body(wrong, attributes=codec_number(compression)), kernel) is BatchRule.COMPRESSED


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("compression", CODECS)
def test_what_a_consumer_can_read_is_taken(kernel: BatchKernel, compression: str) -> None:
    check(packed(PAYLOAD, compression), kernel=kernel)
    early = packed(PAYLOAD, compression, max_timestamp=1)  # Kafka's brokers correct it
    check(early, kernel=kernel)
    assert [each.value for each in decode(early)] == [each.value for each in RECORDS]


records = st.lists(
    st.tuples(st.none() | st.binary(max_size=20), st.none() | st.binary(max_size=50)), min_size=1, max_size=20
)


@given(pairs=records, compression=st.sampled_from(CODECS), data=st.data())
def test_both_kernels_agree_and_refuse_what_a_reader_refuses(
    pairs: list[tuple[bytes | None, bytes | None]], compression: str, data: st.DataObject
) -> None:
    plain = encode([Record(at, 1, key, value) for at, (key, value) in enumerate(pairs)])
    payload = bytearray(plain[HEADER_BYTES:])
    if data.draw(st.booleans()):
        payload[data.draw(st.integers(0, len(payload) - 1))] ^= data.draw(st.sampled_from([1, 2, 0x40, 0x80, 0xFF]))
    header = parse_header(plain)
    batch = packed(bytes(payload), compression, **_fields(header))
    outcome, *others = [_outcome(batch, kernel.values[0]) for kernel in KERNELS]  # type: ignore[arg-type]
    assert all(each == outcome for each in others)
    if not isinstance(outcome, BatchFault):
        assert len(list(decode(batch))) == len(pairs)


def _fields(header: BatchHeader) -> dict[str, int]:
    names = ("count", "last_offset_delta", "base_timestamp", "max_timestamp")
    return {name: getattr(header, name) for name in names}


def _outcome(batch: bytes, kernel: BatchKernel) -> object:
    try:
        check(batch, keyed=True, kernel=kernel)
    except KeylessRecordsError as error:
        return error.records
    except InvalidBatchError as error:
        return error.fault
    return None


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("compression", CODECS)
def test_records_without_a_key_are_named_where_every_record_needs_one(kernel: BatchKernel, compression: str) -> None:
    def batch(*keys: bytes | None) -> bytes:
        return encode([Record(at, 1, key, None) for at, key in enumerate(keys)], compression=compression)

    check(batch(b"", b"a"), keyed=True, kernel=kernel)
    check(batch(b"", None), kernel=kernel)
    with pytest.raises(KeylessRecordsError, match=r"records without a key \[1, 4, 5\]: must be none") as error:
        check(batch(b"a", None) + batch(b"", b"b", None, None, None), keyed=True, kernel=kernel)
    assert error.value.records == (1, 4, 5, 6)
    with pytest.raises(KeylessRecordsError) as error:
        check(batch(*[None] * (NAMED_MAX + 5)), keyed=True, kernel=kernel)
    assert len(error.value.records) == NAMED_MAX


BOMB_BYTES = 64 * MIB


def gzip_bomb() -> bytes:
    stream = zlib.compressobj(1, wbits=31)
    return b"".join([*(stream.compress(bytes(MIB)) for _ in range(BOMB_BYTES // MIB)), stream.flush()])


def zstd_bomb() -> bytes:
    stream = zstandard.ZstdCompressor().compressobj()  # which announces no size
    return b"".join([*(stream.compress(bytes(MIB)) for _ in range(BOMB_BYTES // MIB)), stream.flush()])


BOMBS: dict[str, Callable[[], bytes]] = {
    "gzip": gzip_bomb,
    "snappy": lambda: compress(2, bytes(BOMB_BYTES)),
    "lz4": lambda: lz4.frame.compress(bytes(BOMB_BYTES)),
    "zstd": zstd_bomb,
    "zstd, announced": lambda: compress(4, bytes(BOMB_BYTES)),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_within_the_limit_of_memory(name: str) -> None:
    batch = with_body(BOMBS[name](), attributes=codec_number(name.partition(",")[0]))
    given = split_batches(batch, limits=RecordBatchLimits(batch_bytes_max=16 * MIB))
    tracemalloc.start()
    try:
        with pytest.raises(InvalidBatchError) as error:
            check_records(given, limits=LIMITS)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert error.value.rule is BatchRule.INFLATED_SIZE
    assert peak < 4 * LIMITS.inflated_bytes_max
