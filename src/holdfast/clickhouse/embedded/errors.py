"""Errors of the embedded server as ClickHouse writes them: a code, a text, and the HTTP status of the code."""

import re
from typing import Final

from holdfast.clickhouse.error_codes import ClickHouseErrorCode

_CODE_PATTERN: Final = re.compile(r"Code: (\d+)\. ")

REFUSAL: Final = "this function accesses more than tables and is not allowed here"
"""The text of the functions that replace the engine's own."""

_BAD_REQUEST: Final = (
    ClickHouseErrorCode.CANNOT_PARSE_TEXT,
    ClickHouseErrorCode.CANNOT_PARSE_QUOTED_STRING,
    ClickHouseErrorCode.CANNOT_PARSE_INPUT_ASSERTION_FAILED,
    ClickHouseErrorCode.BAD_ARGUMENTS,
    ClickHouseErrorCode.CANNOT_PARSE_DATE,
    ClickHouseErrorCode.CANNOT_PARSE_DATETIME,
    ClickHouseErrorCode.ILLEGAL_TYPE_OF_ARGUMENT,
    ClickHouseErrorCode.TYPE_MISMATCH,
    ClickHouseErrorCode.SYNTAX_ERROR,
    ClickHouseErrorCode.ARGUMENT_OUT_OF_BOUND,
    ClickHouseErrorCode.CANNOT_CONVERT_TYPE,
    ClickHouseErrorCode.CANNOT_PARSE_NUMBER,
    ClickHouseErrorCode.UNKNOWN_SETTING,
    ClickHouseErrorCode.INCORRECT_DATA,
    ClickHouseErrorCode.TOO_LARGE_STRING_SIZE,
    ClickHouseErrorCode.CANNOT_DECOMPRESS,
    ClickHouseErrorCode.INDEX_NOT_USED,
    ClickHouseErrorCode.VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE,
    ClickHouseErrorCode.SESSION_NOT_FOUND,
    ClickHouseErrorCode.SESSION_IS_LOCKED,
    ClickHouseErrorCode.NO_COMMON_TYPE,
    ClickHouseErrorCode.UNKNOWN_QUERY_PARAMETER,
    ClickHouseErrorCode.BAD_QUERY_PARAMETER,
)
_FORBIDDEN: Final = (
    ClickHouseErrorCode.UNKNOWN_USER,
    ClickHouseErrorCode.WRONG_PASSWORD,
    ClickHouseErrorCode.ACCESS_DENIED,
    ClickHouseErrorCode.AUTHENTICATION_FAILED,
)
_NOT_FOUND: Final = (
    ClickHouseErrorCode.UNKNOWN_FUNCTION,
    ClickHouseErrorCode.UNKNOWN_IDENTIFIER,
    ClickHouseErrorCode.UNKNOWN_TYPE,
    ClickHouseErrorCode.UNKNOWN_STORAGE,
    ClickHouseErrorCode.UNKNOWN_TABLE,
    ClickHouseErrorCode.UNKNOWN_AGGREGATE_FUNCTION,
    ClickHouseErrorCode.UNKNOWN_FORMAT,
    ClickHouseErrorCode.UNKNOWN_DATABASE,
    ClickHouseErrorCode.UNKNOWN_ROLE,
)
# The status ClickHouse sends for each code; every other is 500.
_HTTP_STATUS: Final[dict[int, int]] = {
    **dict.fromkeys(_BAD_REQUEST, 400),
    **dict.fromkeys(_FORBIDDEN, 403),
    **dict.fromkeys(_NOT_FOUND, 404),
    ClickHouseErrorCode.TIMEOUT_EXCEEDED: 408,
    ClickHouseErrorCode.TOO_MANY_BYTES: 413,
    ClickHouseErrorCode.NOT_IMPLEMENTED: 501,
    ClickHouseErrorCode.TOO_MANY_SIMULTANEOUS_QUERIES: 503,
    ClickHouseErrorCode.ABORTED: 503,
}


class QueryError(Exception):
    """An error response: ClickHouse's code and the text that is sent."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)
        self.code, self.text = code, text

    def __str__(self) -> str:
        return self.text

    @property
    def status(self) -> int:
        """The HTTP status ClickHouse sends for this code."""
        return _HTTP_STATUS.get(self.code, 500)


def query_error(code: ClickHouseErrorCode, reason: str) -> QueryError:
    """An error of the HTTP interface, in the engine's format."""
    return QueryError(code, f"Code: {code:d}. DB::Exception: {reason.rstrip('.')}. ({code.name})")


def engine_error(error: BaseException) -> QueryError:
    """An error the engine raised, with the code in its text."""
    text = str(error).strip()
    if REFUSAL in text:  # without the traceback around it
        return query_error(ClickHouseErrorCode.ACCESS_DENIED, REFUSAL)
    found = _CODE_PATTERN.search(text)
    if found is None:
        return query_error(ClickHouseErrorCode.UNKNOWN_EXCEPTION, text or type(error).__name__)
    return QueryError(int(found.group(1)), text[found.start() :])
