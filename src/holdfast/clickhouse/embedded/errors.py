"""ClickHouse's errors: a code, a sentence, and the HTTP status that goes with it."""

import re
from typing import Final

_CODE_PATTERN: Final = re.compile(r"Code: (\d+)\. ")
_NAME_PATTERN: Final = re.compile(r"\(([A-Z][A-Z0-9_]+)\)\s*$")

CANNOT_DECOMPRESS: Final = 271
UNKNOWN_SETTING: Final = 115
INCORRECT_DATA: Final = 117
ACCESS_DENIED: Final = 497
BAD_ARGUMENTS: Final = 36
READONLY: Final = 164
SYNTAX_ERROR: Final = 62
TOO_MANY_SIMULTANEOUS_QUERIES: Final = 202
QUERY_WITH_SAME_ID_IS_ALREADY_RUNNING: Final = 216
TOO_MANY_BYTES: Final = 307
TOO_MANY_ROWS_OR_BYTES: Final = 396
SESSION_NOT_FOUND: Final = 372
SESSION_IS_LOCKED: Final = 373
QUERY_WAS_CANCELLED: Final = 394
ABORTED: Final = 236
AUTHENTICATION_FAILED: Final = 516
UNKNOWN_ROLE: Final = 511
UNKNOWN_EXCEPTION: Final = 1002

_NAMES: Final = {
    CANNOT_DECOMPRESS: "CANNOT_DECOMPRESS",
    UNKNOWN_SETTING: "UNKNOWN_SETTING",
    INCORRECT_DATA: "INCORRECT_DATA",
    ACCESS_DENIED: "ACCESS_DENIED",
    BAD_ARGUMENTS: "BAD_ARGUMENTS",
    READONLY: "READONLY",
    SYNTAX_ERROR: "SYNTAX_ERROR",
    TOO_MANY_SIMULTANEOUS_QUERIES: "TOO_MANY_SIMULTANEOUS_QUERIES",
    QUERY_WITH_SAME_ID_IS_ALREADY_RUNNING: "QUERY_WITH_SAME_ID_IS_ALREADY_RUNNING",
    TOO_MANY_BYTES: "TOO_MANY_BYTES",
    TOO_MANY_ROWS_OR_BYTES: "TOO_MANY_ROWS_OR_BYTES",
    SESSION_NOT_FOUND: "SESSION_NOT_FOUND",
    SESSION_IS_LOCKED: "SESSION_IS_LOCKED",
    QUERY_WAS_CANCELLED: "QUERY_WAS_CANCELLED",
    ABORTED: "ABORTED",
    AUTHENTICATION_FAILED: "AUTHENTICATION_FAILED",
    UNKNOWN_ROLE: "UNKNOWN_ROLE",
    UNKNOWN_EXCEPTION: "UNKNOWN_EXCEPTION",
}
# What ClickHouse answers with for each code; every other is 500.
_HTTP_STATUS: Final = {
    **dict.fromkeys(
        (6, 26, 27, 36, 38, 41, 43, 53, 62, 69, 70, 72, 115, 117, 131, 271, 277, 321, 372, 373, 386, 456, 457), 400
    ),
    **dict.fromkeys((192, 193, 497, 516), 403),
    **dict.fromkeys((46, 47, 50, 56, 60, 63, 73, 81, 511), 404),
    159: 408,
    TOO_MANY_BYTES: 413,
    48: 501,
    TOO_MANY_SIMULTANEOUS_QUERIES: 503,
    ABORTED: 503,
}


class QueryError(Exception):
    """What a client is told instead of an answer."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)
        self.code, self.text = code, text

    def __str__(self) -> str:
        return self.text

    @property
    def status(self) -> int:
        """The HTTP status ClickHouse gives this code."""
        return _HTTP_STATUS.get(self.code, 500)


def query_error(code: int, reason: str) -> QueryError:
    """An error of the face, in the engine's words."""
    return QueryError(code, f"Code: {code}. DB::Exception: {reason.rstrip('.')}. ({_NAMES[code]})")


def engine_error(error: BaseException) -> QueryError:
    """What the engine raised, with the code it names."""
    text = str(error).strip()
    found = _CODE_PATTERN.search(text)
    if found is None:
        return query_error(UNKNOWN_EXCEPTION, text or type(error).__name__)
    return QueryError(int(found.group(1)), text[found.start() :])
