"""Writing records."""

from collections.abc import Sequence
from typing import Final, cast

from holdfast.log.batches.header import HEADER_BYTES, Buffer
from holdfast.log.batches.rules import BatchRule
from holdfast.vocabulary.varint import put_varint

_INT64_MAX: Final = 2**63 - 1
_INT32_MAX: Final = 2**31 - 1


def put_bytes(out: bytearray, value: Buffer | None) -> None:
    """Append a length and the bytes; -1 for null."""
    if value is None:
        put_varint(out, -1)
        return
    view = memoryview(value).cast("B")
    put_varint(out, len(view))
    out += view


def write(
    records: Sequence[tuple[object, ...]], base_offset: int, reserve: int, /
) -> tuple[bytearray, int, int, int, int] | tuple[int, int, int, int]:
    """`reserve` zero bytes and the records; their count, last offset delta, first and greatest timestamp."""
    if base_offset < 0 or not 0 <= reserve <= 4096:
        raise ValueError("base_offset and reserve are not negative, reserve is small")
    out = bytearray(reserve)
    count, previous, first, greatest = 0, -1, -1, -1
    for record in records:
        if not isinstance(record, tuple) or len(record) != 5:
            raise TypeError("a record is a tuple of offset, timestamp, key, value, headers")
        offset, timestamp = _int64(record[0]), _int64(record[1])
        if not previous < offset - base_offset <= _INT32_MAX:
            return (int(BatchRule.OFFSET_DELTA), 0, count, offset)
        if count == 0:
            first = timestamp
        if timestamp < -1 or timestamp - first > _INT64_MAX:
            return (int(BatchRule.RECORD_TIMESTAMP), 0, count, timestamp)
        greatest = max(greatest, timestamp)
        previous = offset - base_offset
        body = _body(timestamp - first, previous, record)
        put_varint(out, len(body))
        out += body
        if len(out) - reserve > _INT32_MAX - HEADER_BYTES:
            return (int(BatchRule.SIZE), 0, count, len(out) - reserve)
        count += 1
    return out, count, previous, first, greatest


def write_values(
    values: Sequence[Buffer | None], key: Buffer | None, timestamp: int, reserve: int, /
) -> tuple[bytearray, int, int, int, int] | tuple[int, int, int, int]:
    """`write` for values without headers that have one key and one timestamp, numbered from 0 on."""
    if timestamp < -1 or not 0 <= reserve <= 4096:
        raise ValueError("timestamp and reserve are not negative, reserve is small")
    return write([(number, timestamp, key, value, ()) for number, value in enumerate(values)], 0, reserve)


def _int64(value: object) -> int:
    if not isinstance(value, int):
        raise TypeError(f"an int is needed, not {type(value).__name__}")
    if not -_INT64_MAX - 1 <= value <= _INT64_MAX:
        raise OverflowError("a number of at most 64 bits is needed")
    return value


def _body(timestamp_delta: int, offset_delta: int, record: tuple[object, ...]) -> bytearray:
    headers = record[4]
    if not isinstance(headers, tuple):
        raise TypeError("headers are a tuple")
    body = bytearray(1)
    put_varint(body, timestamp_delta)
    put_varint(body, offset_delta)
    put_bytes(body, cast("Buffer | None", record[2]))
    put_bytes(body, cast("Buffer | None", record[3]))
    put_varint(body, len(headers))
    for pair in headers:
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise TypeError("a header is a (key, value) tuple")
        if not isinstance(pair[0], str):
            raise TypeError("a header's key is a str")
        put_bytes(body, pair[0].encode())
        put_bytes(body, pair[1])
    return body
