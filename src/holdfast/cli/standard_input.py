"""Standard input that says when it cannot be read, because its descriptor is closed.

The one rule: there always is one. A command that reads it ends with an error, and one that asks is not at a terminal.
"""

import io
import sys
from typing import TYPE_CHECKING, Final, cast

from holdfast.vocabulary.errors import HoldfastError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_STDIN: Final = 0


class InputError(HoldfastError):
    """Standard input could not be read. Nothing of it was used."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"cannot read standard input: {self.reason}"


class _GuardedFile(io.FileIO):
    def readinto(self, buffer: "WriteableBuffer", /) -> int | None:
        try:
            return super().readinto(buffer)
        except OSError as error:
            raise InputError(error.strerror or str(error)) from None

    def readall(self) -> bytes:
        try:
            return super().readall() or b""
        except OSError as error:
            raise InputError(error.strerror or str(error)) from None


def guard_stdin() -> None:
    """Give `sys.stdin` a stream if its descriptor is closed: one whose reads are an `InputError`."""
    if cast("io.TextIOWrapper | None", sys.stdin) is None:
        sys.stdin = io.TextIOWrapper(io.BufferedReader(_GuardedFile(_STDIN, "r", closefd=False)), encoding="utf-8")
