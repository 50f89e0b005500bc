"""Errors of the embedded server as ClickHouse writes them: a code, a text, and the HTTP status of the code."""

import re
from typing import Final

from holdfast.clickhouse.error_codes import ErrorCode

_CODE_PATTERN: Final = re.compile(r"Code: (\d+)\. ")

_BAD_REQUEST: Final = (
    ErrorCode.CANNOT_PARSE_TEXT,
    ErrorCode.CANNOT_PARSE_QUOTED_STRING,
    ErrorCode.CANNOT_PARSE_INPUT_ASSERTION_FAILED,
    ErrorCode.BAD_ARGUMENTS,
    ErrorCode.CANNOT_PARSE_DATE,
    ErrorCode.CANNOT_PARSE_DATETIME,
    ErrorCode.ILLEGAL_TYPE_OF_ARGUMENT,
    ErrorCode.TYPE_MISMATCH,
    ErrorCode.SYNTAX_ERROR,
    ErrorCode.ARGUMENT_OUT_OF_BOUND,
    ErrorCode.CANNOT_CONVERT_TYPE,
    ErrorCode.CANNOT_PARSE_NUMBER,
    ErrorCode.UNKNOWN_SETTING,
    ErrorCode.INCORRECT_DATA,
    ErrorCode.TOO_LARGE_STRING_SIZE,
    ErrorCode.CANNOT_DECOMPRESS,
    ErrorCode.INDEX_NOT_USED,
    ErrorCode.VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE,
    ErrorCode.SESSION_NOT_FOUND,
    ErrorCode.SESSION_IS_LOCKED,
    ErrorCode.NO_COMMON_TYPE,
    ErrorCode.UNKNOWN_QUERY_PARAMETER,
    ErrorCode.BAD_QUERY_PARAMETER,
)
_FORBIDDEN: Final = (
    ErrorCode.UNKNOWN_USER,
    ErrorCode.WRONG_PASSWORD,
    ErrorCode.ACCESS_DENIED,
    ErrorCode.AUTHENTICATION_FAILED,
)
_NOT_FOUND: Final = (
    ErrorCode.UNKNOWN_FUNCTION,
    ErrorCode.UNKNOWN_IDENTIFIER,
    ErrorCode.UNKNOWN_TYPE,
    ErrorCode.UNKNOWN_STORAGE,
    ErrorCode.UNKNOWN_TABLE,
    ErrorCode.UNKNOWN_AGGREGATE_FUNCTION,
    ErrorCode.UNKNOWN_FORMAT,
    ErrorCode.UNKNOWN_DATABASE,
    ErrorCode.UNKNOWN_ROLE,
)
# The status ClickHouse sends for each code; every other is 500.
_HTTP_STATUS: Final[dict[int, int]] = {
    **dict.fromkeys(_BAD_REQUEST, 400),
    **dict.fromkeys(_FORBIDDEN, 403),
    **dict.fromkeys(_NOT_FOUND, 404),
    ErrorCode.TIMEOUT_EXCEEDED: 408,
    ErrorCode.TOO_MANY_BYTES: 413,
    ErrorCode.NOT_IMPLEMENTED: 501,
    ErrorCode.TOO_MANY_SIMULTANEOUS_QUERIES: 503,
    ErrorCode.ABORTED: 503,
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


def query_error(code: ErrorCode, reason: str) -> QueryError:
    """An error of the HTTP interface, in the engine's format."""
    return QueryError(code, f"Code: {code:d}. DB::Exception: {reason.rstrip('.')}. ({code.name})")


def engine_error(error: BaseException) -> QueryError:
    """An error the engine raised, with the code in its text."""
    text = str(error).strip()
    found = _CODE_PATTERN.search(text)
    if found is None:
        return query_error(ErrorCode.UNKNOWN_EXCEPTION, text or type(error).__name__)
    return QueryError(int(found.group(1)), text[found.start() :])
