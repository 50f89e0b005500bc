"""Batches made by hand: fields of the header set to anything, payloads of any bytes, checksums right or wrong."""

from hypothesis import strategies as st

from holdfast.log.batches import BatchHeader, Record, encode, parse_header
from holdfast.log.batches.header import CRC_AT, HEADER, HEADER_BYTES, checksum
from holdfast.log.batches.pure.record_writer import put_bytes
from holdfast.vocabulary.varint import put_varint

MAYBE_BYTES = st.none() | st.binary(max_size=40)
HEADERS = st.lists(st.tuples(st.text(max_size=20), MAYBE_BYTES), max_size=4).map(tuple)
TIMES_MS = st.integers(-1, 2**63 - 2) | st.integers(1_700_000_000_000, 1_700_000_100_000)


@st.composite
def record_lists(draw: st.DrawFn, *, gaps: bool = False, size_max: int = 12) -> list[Record]:
    """Records whose offsets grow from 0, without a gap or with some."""
    offset, records = -1, []
    for _ in range(draw(st.integers(1, size_max))):
        offset += draw(st.integers(1, 1000)) if gaps else 1
        records.append(Record(offset, draw(TIMES_MS), draw(MAYBE_BYTES), draw(MAYBE_BYTES), draw(HEADERS)))
    return records


def with_fields(batch: bytes, **fields: int) -> bytes:
    """The batch with fields of its header replaced and a checksum that is right, unless `crc` says otherwise."""
    changed = bytearray(batch)
    header: BatchHeader = parse_header(batch)._replace(**fields)
    HEADER.pack_into(changed, 0, *header)
    if "crc" not in fields:
        changed[CRC_AT : CRC_AT + 4] = checksum(changed).to_bytes(4, "big")
    return bytes(changed)


def with_payload(payload: bytes, **fields: int) -> bytes:
    """A batch of one record by its header, whatever the payload holds."""
    plain = encode([Record(0, 1_000, b"k", b"v")])
    return with_fields(plain[:HEADER_BYTES] + payload, length=49 + len(payload), **fields)


def varint(value: int) -> bytes:
    out = bytearray()
    put_varint(out, value)
    return bytes(out)


def sized(value: bytes | None) -> bytes:
    out = bytearray()
    put_bytes(out, value)
    return bytes(out)


def record_bytes(
    *,
    length: int | None = None,
    timestamp_delta: bytes = b"\0",
    offset_delta: bytes = b"\0",
    key: bytes = sized(b"k"),
    value: bytes = sized(b"v"),
    headers: bytes = b"\0",
) -> bytes:
    """One record on the wire, any of its parts wrong."""
    body = b"\0" + timestamp_delta + offset_delta + key + value + headers
    return varint(len(body) if length is None else length) + body
