"""Errors of a ClickHouse client: the server returned an error, or it cannot be reached.

Two siblings, because they call for different actions: an error that was returned is the statement's outcome, while the outcome of a
statement whose response was lost is unknown. What either means for a pipeline is decided by its sink.
"""

from typing import Final

from holdfast.vocabulary.errors import HoldfastError

_REASON_CHARS_MAX: Final = 500


class ClickHouseError(HoldfastError):
    """The server returned an error. `code` is ClickHouse's own, 0 if it gave none; `text` is the whole of its message."""

    def __init__(self, address: str, text: str, code: int) -> None:
        super().__init__(address, text, code)
        self.address, self.text, self.code = address, text, code

    @property
    def reason(self) -> str:
        """One line of bounded length."""
        return f"ClickHouse at {self.address}: {_shortened(self.text)}"

    def __str__(self) -> str:
        return self.reason


class ClickHouseUnreachableError(HoldfastError):
    """The server could not be reached, or the connection broke before its response: the statement may have been run."""

    def __init__(self, address: str, text: str) -> None:
        super().__init__(address, text)
        self.address, self.text = address, text

    @property
    def reason(self) -> str:
        """One line of bounded length."""
        return f"ClickHouse at {self.address} does not answer: {_shortened(self.text)}"

    def __str__(self) -> str:
        return self.reason


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _REASON_CHARS_MAX else line[:_REASON_CHARS_MAX] + "…"
