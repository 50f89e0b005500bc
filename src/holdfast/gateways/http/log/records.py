"""Records as JSON: what a client sends, and what it gets. Pure.

The one rule: bytes come back as they went in. Text is JSON text; what is no UTF-8 has a name that ends with `Base64` instead. A
JSON value that is neither text nor null is stored as the JSON that was sent. A header that occurs several times, as Kafka allows,
is an array; if one of its values is no UTF-8, it is in `headersBase64` as a whole, so that their order stays.
"""

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from holdfast.gateways.http.routes.bodies import RequestBody, count_entry
from holdfast.log.batches import Record
from holdfast.vocabulary.errors import InvalidError

HeaderValues = str | None | Sequence[str | None]
"""The value of a header, or the values of one that occurs several times."""

_TIMESTAMP_MAX_MS = (1 << 63) - 1


class NewRecord(RequestBody, frozen=True, gc=False):
    """A record to append. `value` may be any JSON; null is a tombstone. `timestamp`: milliseconds since 1970, by default now.

    The collector of cycles does not look at it (`gc=False`): what it holds can refer to nothing.
    """

    key: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    key_base64: str | None = None
    value: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    value_base64: str | None = None
    headers: Mapping[str, HeaderValues] = {}
    headers_base64: Mapping[str, HeaderValues] = {}
    partition: int | None = None
    timestamp: int | None = None


class BatchedRecord(NewRecord, frozen=True, gc=False):
    """A record of a batch."""

    def __post_init__(self) -> None:
        count_entry()


class ReadRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A record as it was read."""

    partition: int
    offset: int
    timestamp: int
    key: str | msgspec.UnsetType | None = msgspec.UNSET
    key_base64: str = ""
    value: str | msgspec.UnsetType | None = msgspec.UNSET
    value_base64: str = ""
    headers: Mapping[str, HeaderValues] = {}
    headers_base64: Mapping[str, HeaderValues] = {}


def to_record(number: int, given: NewRecord, now_ms: int) -> Record:
    """The record that is appended. `number` is its place in the request, for errors."""
    where = f"records[{number}]"
    timestamp_ms = now_ms if given.timestamp is None else given.timestamp
    if not 0 <= timestamp_ms <= _TIMESTAMP_MAX_MS:
        raise InvalidError(f"{where}.timestamp", timestamp_ms, "milliseconds since 1970")
    if given.value is msgspec.UNSET and given.value_base64 is None:
        raise InvalidError(f"{where}.value", "nothing", "any JSON (null is a tombstone), or bytes as valueBase64")
    headers = [(name, None if text is None else text.encode()) for name, text in _each(given.headers)]
    headers += [
        (name, None if text is None else _bytes(f"{where}.headersBase64", text))
        for name, text in _each(given.headers_base64)
    ]
    return Record(
        number,
        timestamp_ms,
        json_bytes(f"{where}.key", given.key, given.key_base64),
        json_bytes(f"{where}.value", given.value, given.value_base64),
        tuple(headers),
    )


def from_record(partition: int, record: Record) -> ReadRecord:
    """The JSON of a record."""
    key, key_base64 = _shown(record.key)
    value, value_base64 = _shown(record.value)
    named: dict[str, list[bytes | None]] = {}
    for name, data in record.headers:
        named.setdefault(name, []).append(data)
    headers: dict[str, HeaderValues] = {}
    binary: dict[str, HeaderValues] = {}
    for name, values in named.items():
        shown = [_shown(data) for data in values]
        if any(encoded for _, encoded in shown):
            binary[name] = _one_or_all([None if data is None else b64encode(data).decode() for data in values])
        else:
            headers[name] = _one_or_all([text for text, _ in shown])
    return ReadRecord(
        partition=partition,
        offset=record.offset,
        timestamp=record.timestamp_ms,
        key=msgspec.UNSET if key_base64 else key,
        key_base64=key_base64,
        value=msgspec.UNSET if value_base64 else value,
        value_base64=value_base64,
        headers=headers,
        headers_base64=binary,
    )


def line_values(body: bytes) -> list[msgspec.Raw]:
    """The JSON values of NDJSON, each as it was sent: views of the body."""
    try:
        return _VALUES.decode_lines(body)
    except msgspec.DecodeError as error:
        raise InvalidError("body", str(error), "a JSON value in each line") from None


def line_records(body: bytes) -> list[NewRecord]:
    """The lines of NDJSON, each a record with `key`, `value` and so on."""
    try:
        return _RECORDS.decode_lines(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidError("body", str(error), 'a record in each line, such as {"key": …, "value": …}') from None


_VALUES = msgspec.json.Decoder(msgspec.Raw)
_RECORDS = msgspec.json.Decoder(NewRecord)


def json_bytes(
    where: str, given: msgspec.Raw | msgspec.UnsetType, encoded: str | None, *, suffix: str = "Base64"
) -> bytes | None:
    """The bytes of a field that is JSON, or base64 under a name with a suffix: text as it is, other JSON as it was sent."""
    if encoded is not None:
        if given is not msgspec.UNSET:
            raise InvalidError(where, "given twice", f"either {where} or {where}{suffix}")
        return _bytes(f"{where}{suffix}", encoded)
    if isinstance(given, msgspec.UnsetType):
        return None
    raw = bytes(given).strip()
    if raw == b"null":
        return None
    if raw[:1] != b'"':
        return raw
    try:
        return msgspec.json.decode(raw, type=str).encode()
    except UnicodeDecodeError as error:
        raise InvalidError(where, str(error), "UTF-8") from None


def _each(headers: Mapping[str, HeaderValues]) -> Iterator[tuple[str, str | None]]:
    for name, values in headers.items():
        for text in (values,) if values is None or isinstance(values, str) else values:
            yield name, text


def _one_or_all(values: Sequence[str | None]) -> HeaderValues:
    return values[0] if len(values) == 1 else values


def _bytes(where: str, text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (Base64Error, ValueError):
        raise InvalidError(where, text[:40], "base64") from None


def _shown(data: bytes | None) -> tuple[str | None, str]:
    if data is None:
        return None, ""
    try:
        return data.decode(), ""
    except UnicodeDecodeError:
        return None, b64encode(data).decode()
