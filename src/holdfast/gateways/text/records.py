"""Several records in one frame, as FETCH answers them and nodes send them to each other: lengths in binary, payloads as they are.

payloads:  each u32 length, bytes
records:   each u64 offset, u32 length, bytes
numbers are little-endian
"""

from collections.abc import Iterable, Sequence
from struct import Struct, error
from typing import Final

from holdfast.cursors.cursor import CursorRecord
from holdfast.vocabulary.errors import InvalidError

_PAYLOAD: Final = Struct("<I")
_RECORD: Final = Struct("<QI")
RECORD_BYTES: Final = _RECORD.size
PAYLOAD_BYTES: Final = _PAYLOAD.size


def encode_payloads(payloads: Iterable[bytes]) -> bytes:
    """Payloads one after another."""
    return b"".join(part for payload in payloads for part in (_PAYLOAD.pack(len(payload)), payload))


def decode_payloads(data: bytes) -> list[bytes]:
    """What `encode_payloads` made. `InvalidError`: it did not."""
    found, at = [], 0
    try:
        while at < len(data):
            (length,) = _PAYLOAD.unpack_from(data, at)
            at += PAYLOAD_BYTES + length
            found.append(data[at - length : at])
    except error:
        at = -1
    if at != len(data):
        raise InvalidError("payloads", f"{len(data)} bytes", "lengths that fit them")
    return found


def encode_records(records: Iterable[CursorRecord]) -> bytes:
    """Records one after another."""
    return b"".join(
        part for record in records for part in (_RECORD.pack(record.offset, len(record.value)), record.value)
    )


def decode_records(data: bytes) -> Sequence[CursorRecord]:
    """What `encode_records` made. `InvalidError`: it did not."""
    found, at = [], 0
    try:
        while at < len(data):
            offset, length = _RECORD.unpack_from(data, at)
            at += RECORD_BYTES + length
            found.append(CursorRecord(offset, data[at - length : at]))
    except error:
        at = -1
    if at != len(data):
        raise InvalidError("records", f"{len(data)} bytes", "lengths that fit them")
    return found
