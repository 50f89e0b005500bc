"""Standard output that says when it cannot be written to: full, closed, on a broken disk.

The one rule: such a failure is an `OutputError` and nothing else is, so that it can be told from an `OSError` of the command's own
work. A closed pipe remains a `BrokenPipeError`: whoever read has seen enough.
"""

import io
import os
import sys
from typing import TYPE_CHECKING, Final, cast

from holdfast.vocabulary.errors import HoldfastError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_STDOUT: Final = 1
_STDERR: Final = 2


class OutputError(HoldfastError):
    """Standard output could not be written to. What the command did is done; what it printed may be cut off."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"cannot write to standard output: {self.reason}"


class _GuardedFile(io.FileIO):
    def write(self, data: "ReadableBuffer", /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputError(error.strerror or str(error)) from None


def guard_stdout() -> None:
    """Make failed writes to `sys.stdout` an `OutputError`; what its encoding lacks is written as an escape sequence."""
    before = cast("io.TextIOWrapper | None", sys.stdout)  # None: its descriptor was closed, and refuses to be written
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(_GuardedFile(_STDOUT, "w", closefd=False)),
        encoding=before.encoding if before is not None else "utf-8",
        errors="backslashreplace",
        line_buffering=before is not None and (before.line_buffering or before.write_through),
    )


def guard_stderr() -> None:
    """Give `sys.stderr` a stream if its descriptor is closed: `print` would take standard output instead."""
    if cast("io.TextIOWrapper | None", sys.stderr) is None:
        sys.stderr = io.TextIOWrapper(
            io.FileIO(_STDERR, "w", closefd=False), errors="backslashreplace", write_through=True
        )


def discard_stdout() -> None:
    """Drop what is printed from now on, and what is still buffered, which must not fail when the interpreter ends."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)
