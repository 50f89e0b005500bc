"""Records and positions as messages, and back. Pure.

The one rule: what is unset is null, which is not the same as empty.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from holdfast.client.admin.positions import AtOffset, AtTime, Beginning, EndPosition, Position
from holdfast.log.batches import Record
from holdfast.v1 import position_pb2, record_pb2
from holdfast.vocabulary.errors import InvalidError

RECORD_BYTES: Final = 64  # what a record costs beside its key and value
_KEY: Final = record_pb2.NewRecord.KEY_FIELD_NUMBER
_VALUE: Final = record_pb2.NewRecord.VALUE_FIELD_NUMBER
_PARTITION: Final = record_pb2.NewRecord.PARTITION_FIELD_NUMBER
_TIMESTAMP: Final = record_pb2.NewRecord.TIMESTAMP_MS_FIELD_NUMBER


class GivenRecords(NamedTuple):
    """The records that are appended, each with its place in the request as its offset, and the partition that each asks for."""

    records: list[Record]
    partitions: list[int | None]


def to_records(given: Sequence[record_pb2.NewRecord], now_ms: int) -> GivenRecords:
    """The records of a request."""
    records: list[Record] = []
    partitions: list[int | None] = []
    for number, each in enumerate(given):
        key: bytes | None = None
        value: bytes | None = None
        headers: tuple[tuple[str, bytes | None], ...] = ()
        partition: int | None = None
        timestamp_ms = now_ms
        # Only what is set is looked at: asking for each field takes five times as long.
        for field, found in each.ListFields():
            at = field.number
            if at == _VALUE:
                value = found
            elif at == _KEY:
                key = found
            elif at == _PARTITION:
                partition = found
            elif at == _TIMESTAMP:
                timestamp_ms = found
            else:
                headers = tuple((one.name, one.value if one.HasField("value") else None) for one in found)
        if timestamp_ms < 0:
            raise InvalidError(f"records[{number}].timestamp_ms", timestamp_ms, "milliseconds since 1970")
        records.append(Record(number, timestamp_ms, key, value, headers))
        partitions.append(partition)
    return GivenRecords(records, partitions)


def from_record(record: Record) -> record_pb2.Record:
    """The message of a record."""
    headers = [record_pb2.Header(name=name, value=value) for name, value in record.headers]
    return record_pb2.Record(
        offset=record.offset,
        timestamp_ms=record.timestamp_ms,
        key=record.key,
        value=record.value,
        headers=headers,
    )


def size_bytes(record: Record) -> int:
    """What a record takes in a message, about."""
    headers = sum(len(name) + len(value or b"") + 8 for name, value in record.headers)
    return RECORD_BYTES + len(record.key or b"") + len(record.value or b"") + headers


def pages(records: Sequence[Record], bytes_max: int) -> Iterator[Sequence[Record]]:
    """The records in order, as many together as fit, one at least."""
    page: list[Record] = []
    taken = 0
    for record in records:
        size = size_bytes(record)
        if page and taken + size > bytes_max:
            yield page
            page, taken = [], 0
        page.append(record)
        taken += size
    if page:
        yield page


def to_position(where: str, given: position_pb2.Position, default: Position) -> Position:
    """The position of a message; `where` names it in errors."""
    match given.WhichOneof("at"):
        case "offset":
            if given.offset < 0:
                raise InvalidError(f"{where}.offset", given.offset, "at least 0")
            return AtOffset(given.offset)
        case "timestamp_ms":
            if given.timestamp_ms < 0:
                raise InvalidError(f"{where}.timestamp_ms", given.timestamp_ms, "milliseconds since 1970")
            return AtTime(given.timestamp_ms)
        case "edge":
            edges: dict[int, Position] = {
                position_pb2.EDGE_UNSPECIFIED: default,
                position_pb2.EDGE_EARLIEST: Beginning(),
                position_pb2.EDGE_LATEST: EndPosition(),
            }
            if given.edge not in edges:
                raise InvalidError(f"{where}.edge", given.edge, "EDGE_EARLIEST or EDGE_LATEST")
            return edges[given.edge]
    return default
