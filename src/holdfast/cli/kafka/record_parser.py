"""Records from text: a line, a line with its key, or a JSON object per line. What is wrong is said with its line's number.

A JSON line is what `holdfast consume --json` prints, so that one topic's output is another one's input.
"""

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from holdfast.vocabulary.errors import InvalidError

JSON_LINE: Final = """\
a JSON line has any of these fields:
  "key", "value"                  text or null; another JSON value is sent as its JSON text
  "key_base64", "value_base64"    bytes
  "headers"                       {"name": "text"}, or [["name", "text"], ["name", {"base64": "…"}], ["name", null]]
  "partition", "timestamp"        numbers; the timestamp in milliseconds since 1970
  "topic", "offset", "timestamp_type" of `holdfast consume --json` are accepted and have no effect
"""

PARTITION_MAX: Final = 2**31 - 1
TIMESTAMP_MS_MAX: Final = 2**63 - 1

Headers = list[tuple[str, bytes | None]]


class OutgoingRecord(NamedTuple):
    """A record to be sent. No partition: its key decides. No timestamp: the time of sending."""

    key: bytes | None = None
    value: bytes | None = None
    headers: Headers = []  # noqa: RUF012 (nobody changes it)
    partition: int | None = None
    timestamp_ms: int | None = None


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    key: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    value: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    key_base64: str | None = None
    value_base64: str | None = None
    headers: list[tuple[str, Any]] | dict[str, Any] | None = None
    partition: int | None = None
    timestamp: int | None = None
    topic: str | None = None
    offset: int | None = None
    timestamp_type: str | None = None


_decode = msgspec.json.Decoder(_Line).decode


def line_parser(
    *, json_lines: bool, key_separator: str | None, null_marker: str | None, headers: Sequence[tuple[str, str]]
) -> Callable[[bytes, int], OutgoingRecord]:
    """The function that makes a record of a line and its number."""
    more: Headers = [(name, value.encode()) for name, value in headers]
    if json_lines:
        return lambda line, number: _from_json(line, number, more)
    null = None if null_marker is None else null_marker.encode()
    if key_separator is None:
        return lambda line, number: OutgoingRecord(value=None if line == null else line, headers=more)
    separator = unescape(key_separator, "--key-separator").encode()
    if not separator:
        raise InvalidError("--key-separator", key_separator, "one character or more")
    return lambda line, number: _with_key(line, number, separator, null, more)


def unescape(text: str, option: str) -> str:
    r"""`text` with \t, \n, \r, \0, \xNN and \\ as the characters they stand for; a shell cannot easily type them."""
    parts = text.split("\\")
    made, rest = parts[0], parts[1:]
    while rest:
        part = rest.pop(0)
        if not part:  # a doubled backslash; what follows it is plain
            made += "\\" + (rest.pop(0) if rest else "")
            continue
        known = {"t": "\t", "n": "\n", "r": "\r", "0": "\0"}.get(part[0])
        if known is not None:
            made += known + part[1:]
        elif part[0] == "x" and len(part) >= 3 and all(digit in "0123456789abcdefABCDEF" for digit in part[1:3]):
            made += chr(int(part[1:3], 16)) + part[3:]
        else:
            raise InvalidError(option, text, r"text in which a backslash is one of \t \n \r \0 \xNN \\")
    return made


def _with_key(line: bytes, number: int, separator: bytes, null: bytes | None, headers: Headers) -> OutgoingRecord:
    key, found, value = line.partition(separator)
    if not found:
        raise InvalidError(f"line {number}", _short(line), f"a key, {separator.decode()!r}, and a value")
    return OutgoingRecord(key=None if key == null else key, value=None if value == null else value, headers=headers)


def _from_json(line: bytes, number: int, headers: Headers) -> OutgoingRecord:
    try:
        given = _decode(line)
        _check_number("partition", given.partition, PARTITION_MAX)
        _check_number("timestamp", given.timestamp, TIMESTAMP_MS_MAX)
        return OutgoingRecord(
            key=_bytes(given.key, given.key_base64),
            value=_bytes(given.value, given.value_base64),
            headers=_headers(given.headers) + headers,
            partition=given.partition,
            timestamp_ms=given.timestamp,
        )
    except (msgspec.MsgspecError, binascii.Error, ValueError) as error:
        raise InvalidError(f"line {number}", _short(line), f"a JSON object ({error})") from None


def _check_number(field: str, number: int | None, most: int) -> None:
    if number is not None and not 0 <= number <= most:
        raise ValueError(f"{field} {number}: must be between 0 and {most}")


def _bytes(text: "msgspec.Raw | msgspec.UnsetType", encoded: str | None) -> bytes | None:
    if encoded is not None:
        if text is not msgspec.UNSET:
            raise ValueError("the same as text and as base64")
        return base64.b64decode(encoded, validate=True)
    if text is msgspec.UNSET:
        return None
    raw = bytes(text)
    if raw == b"null":
        return None
    return msgspec.json.decode(raw, type=str).encode() if raw.startswith(b'"') else raw


def _headers(given: list[tuple[str, Any]] | dict[str, Any] | None) -> Headers:
    named = list(given.items()) if isinstance(given, Mapping) else given or []
    return [(name, _header_value(value)) for name, value in named]


def _header_value(value: Any) -> bytes | None:
    if value is None or isinstance(value, str):
        return value if value is None else value.encode()
    if isinstance(value, dict) and isinstance(value.get("base64"), str) and len(value) == 1:
        return base64.b64decode(value["base64"], validate=True)
    raise ValueError('a header is text, null or {"base64": "…"}')


def _short(line: bytes) -> str:
    text = line.decode(errors="replace")
    return text if len(text) <= 60 else text[:60] + "…"
