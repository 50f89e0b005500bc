"""Quoting of identifiers and literals in ClickHouse's SQL.

The one rule: every identifier and every literal of a statement built here is quoted by this module.
"""

from typing import Final

from holdfast.vocabulary.errors import InvalidError

NAME_BYTES_MAX: Final = 127  # a column is a file, whose name also has suffixes

_ESCAPES: Final = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\0", "\b": "\\b", "\f": "\\f"}
_IN_NAME: Final = str.maketrans({"\\": "\\\\", "`": "\\`"})
_IN_TEXT: Final = str.maketrans({**_ESCAPES, "'": "\\'"})


def invalid_name_reason(name: str) -> str | None:
    """What a name of a column, table or database must be, if this one is not; None if it is valid."""
    if not name:
        return "non-empty"
    if not name.isprintable() or name != name.strip():
        return "printable, without spaces at either end"
    if len(name.encode("utf-8", "surrogatepass")) > NAME_BYTES_MAX:
        return f"at most {NAME_BYTES_MAX} bytes of UTF-8"
    return None


def quote_identifier(name: str) -> str:
    """A name in backquotes. An invalid one is an `InvalidError`."""
    if (allowed := invalid_name_reason(name)) is not None:
        raise InvalidError("name", name, allowed)
    return f"`{name.translate(_IN_NAME)}`"


def qualified_name(database: str, table: str) -> str:
    """A table's full name."""
    return f"{quote_identifier(database)}.{quote_identifier(table)}"


def quote_literal(text: str) -> str:
    """A string in single quotes. One that is not Unicode is an `InvalidError`."""
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise InvalidError("text", text, "Unicode without lone surrogates")
    return f"'{text.translate(_IN_TEXT)}'"
