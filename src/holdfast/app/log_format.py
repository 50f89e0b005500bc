"""Log lines: one per event, on stderr, as text or JSON. Addresses and results go to stdout, never here.

Facts belong into `extra=`, the sentence into the message: `log.info("partition opened", extra={"topic": "orders"})` is
`… INFO holdfast.agent: partition opened topic=orders` as text and a field of its own as JSON.

What is logged while a request is answered has its id as `request` and, if it belongs to a trace, `trace_id`.

Messages may repeat what clients sent: control characters are escaped, so that none begins another line, and the length is bounded.
"""

import logging
import sys
from datetime import UTC, datetime
from typing import Final, TextIO

import msgspec

from holdfast.vocabulary.correlation import correlation_fields
from holdfast.vocabulary.text import single_line

_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
NOISY_LOGGERS: Final = ("py4j", "pyspark")  # they report every lost callback and every retry
_MESSAGE_CHARS_MAX: Final = 4_000


class TextFormatter(logging.Formatter):
    """`2026-01-31T12:00:00.123Z INFO holdfast.agent: message key=value`."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, and the lines of an exception below it."""
        fields = "".join(f" {name}={_quoted(value)}" for name, value in _fields(record).items())
        line = f"{_time_of(record)} {record.levelname} {record.name}: {single_line(_message_of(record))}{fields}"
        trace = _trace_of(self, record)
        return f"{line}\n{trace}" if trace else line


class JsonFormatter(logging.Formatter):
    """One JSON object per line: `ts`, `level`, `logger`, `message`, `fields`, `exception`."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, whatever is in it."""
        line: dict[str, object] = {
            "ts": _time_of(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _message_of(record),
        }
        if fields := _fields(record):
            line["fields"] = fields
        if trace := _trace_of(self, record):
            line["exception"] = trace
        return msgspec.json.encode(line, enc_hook=str).decode()


def _fields(record: logging.LogRecord) -> dict[str, object]:
    given = {name: value for name, value in vars(record).items() if name not in _STANDARD}
    return {**given, **correlation_fields()}


def _time_of(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _message_of(record: logging.LogRecord) -> str:
    message = record.getMessage()
    if len(message) <= _MESSAGE_CHARS_MAX:
        return message
    return f"{message[:_MESSAGE_CHARS_MAX]}… ({len(message)} characters)"


def _trace_of(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    return formatter.formatException(record.exc_info) if record.exc_info and record.exc_info[0] else ""


def _quoted(value: object) -> str:
    text = str(value)
    return (
        text
        if text and not any(char.isspace() or char in '"=' for char in text)
        else msgspec.json.encode(text).decode()
    )


def configure_logging(form: str, level: str, *, stream: TextIO | None = None) -> None:
    """Log in this form from this level on; other libraries from WARNING, py4j and Spark from ERROR unless the level is debug."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("holdfast").setLevel(level.upper())
    for name in NOISY_LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING if level == "debug" else logging.ERROR)
    logging.captureWarnings(True)
