"""Records as text: plain, by a format, or as JSON. Whatever a record holds, printing it does nothing to a terminal."""

import base64
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import msgspec

from holdfast.cli.kafka.record_parser import unescape
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.text import escape_controls

FORMAT: Final = """\
placeholders of --format (each record ends with a newline):
  %t topic      %p partition   %o offset
  %k key        %v value       %h headers, as name=value,name=value
  %K, %V        length of key and value in bytes; -1 for null
  %T timestamp  %d the same as a date in UTC   %%  a percent sign
  \\t \\n \\r \\0 \\xNN \\\\ are what they are elsewhere
"""


class ConsumedRecord(NamedTuple):
    """A record that was read."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    timestamp_type: str | None  # "create" or "append"
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


RecordFormatter = Callable[[ConsumedRecord], bytes]


def bytes_as_text(data: bytes | None, null: str = "null") -> str:
    r"""`data` as text in which control characters and invalid UTF-8 are written \xNN."""
    return null if data is None else escape_controls(data.decode(errors="backslashreplace"))


def format_json(record: ConsumedRecord) -> bytes:
    """One JSON object: text where it is UTF-8, otherwise base64 under a name that says so."""
    fields: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "timestamp_type": record.timestamp_type,
    }
    for name, data in (("key", record.key), ("value", record.value)):
        text = _text(data)
        if text is None and data is not None:
            fields[f"{name}_base64"] = _base64(data)
        else:
            fields[name] = text
    fields["headers"] = [[name, _header(value)] for name, value in record.headers]
    return msgspec.json.encode(fields) + b"\n"


def line_formatter(*, keys: bool, headers: bool, separator: str, null: str) -> RecordFormatter:
    """The value on a line; before it, where wanted, headers and key with `separator` between them."""

    def show(record: ConsumedRecord) -> bytes:
        parts = [_header_line(record, null)] if headers else []
        if keys:
            parts.append(bytes_as_text(record.key, null))
        return (separator.join([*parts, bytes_as_text(record.value, null)]) + "\n").encode()

    return show


def format_raw(record: ConsumedRecord) -> bytes:
    """The value as it is, and a newline."""
    return (record.value or b"") + b"\n"


def template_formatter(text: str, *, null: str) -> RecordFormatter:
    """What `text` says, its placeholders filled in."""
    plain = unescape(text, "--format")
    unknown = re.search(r"%(?![tpokvhKVTd%])(.?)", re.sub("%%", "", plain))
    if unknown is not None:
        raise InvalidError("--format", text, f"placeholders %t %p %o %k %v %h %K %V %T %d %%, not {unknown[0]!r}")
    pieces = re.split(r"(%.)", plain)

    def show(record: ConsumedRecord) -> bytes:
        return ("".join(_fill(piece, record, null) for piece in pieces) + "\n").encode()

    return show


def _fill(piece: str, record: ConsumedRecord, null: str) -> str:
    match piece:
        case "%t":
            return record.topic
        case "%p":
            return str(record.partition)
        case "%o":
            return str(record.offset)
        case "%k":
            return bytes_as_text(record.key, null)
        case "%v":
            return bytes_as_text(record.value, null)
        case "%h":
            return _header_line(record, null)
        case "%K":
            return str(-1 if record.key is None else len(record.key))
        case "%V":
            return str(-1 if record.value is None else len(record.value))
        case "%T":
            return str(-1 if record.timestamp_ms is None else record.timestamp_ms)
        case "%d":
            return format_date(record.timestamp_ms) or "–"
        case "%%":
            return "%"
        case _:
            return piece


def format_date(timestamp_ms: int | None) -> str | None:
    """A date in UTC with milliseconds; a number too large for one as it is."""
    if timestamp_ms is None:
        return None
    try:
        at = datetime.fromtimestamp(timestamp_ms / 1_000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)
    return at.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def _header_line(record: ConsumedRecord, null: str) -> str:
    return ",".join(f"{bytes_as_text(name.encode())}={bytes_as_text(value, null)}" for name, value in record.headers)


def _header(value: bytes | None) -> object:
    text = _text(value)
    return {"base64": _base64(value)} if text is None and value is not None else text


def _text(data: bytes | None) -> str | None:
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError:
        return None


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
