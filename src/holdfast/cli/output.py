"""How commands print: a table for people, one JSON object per line for programs; errors on stderr with a code of their own."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.vocabulary.errors import (
    ClosedError,
    CorruptError,
    ExpiredError,
    FencedError,
    HoldfastError,
    InvalidError,
    OutcomeUnknownError,
    UnavailableError,
)

if TYPE_CHECKING:  # rich is imported when something is to be shown: a server never needs it
    from rich.console import Console

OK: Final = 0
FAILED: Final = 1  # the command ran, and what it checked does not hold
USAGE: Final = 2  # fix the input
UNAVAILABLE: Final = 3  # retry later
CORRUPT: Final = 4  # call the operator
OUTCOME_UNKNOWN: Final = 5  # look what became of it, then decide
OWNERSHIP_LOST: Final = 6  # somebody else owns it now
INTERRUPTED: Final = 130

EXIT_CODES: Final = """\
exit codes:
  0  done
  1  a check failed
  2  wrong input: fix it
  3  a service is unavailable: retry later
  4  stored state is corrupt or went backwards: call the operator
  5  the outcome is unknown: look, then decide
  6  ownership was lost to somebody else
"""

_CODES: Final = (
    (InvalidError, USAGE),
    (UnavailableError, UNAVAILABLE),
    (CorruptError, CORRUPT),
    (OutcomeUnknownError, OUTCOME_UNKNOWN),
    (FencedError, OWNERSHIP_LOST),
    (ExpiredError, OWNERSHIP_LOST),
    (ClosedError, UNAVAILABLE),
)


def exit_code(error: HoldfastError) -> int:
    """The exit code that tells a script what to do about `error`."""
    return next(code for kind, code in _CODES if isinstance(error, kind))


def print_json(value: object) -> None:
    """One object on one line of stdout."""
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
    sys.stdout.flush()


def print_table(title: str, rows: Iterable[Mapping[str, object]], columns: Sequence[str]) -> None:
    """A table on stdout; it says so when there is nothing to show."""
    from rich.table import Table

    table = Table(*columns, title=title, title_justify="left")
    for row in rows:
        table.add_row(*(_cell(row[column]) for column in columns))
    console().print(table if table.row_count else f"{title}: none")


def print_error(error: HoldfastError) -> None:
    """What went wrong, on stderr, in one sentence."""
    from rich.console import Console

    Console(stderr=True, highlight=False, soft_wrap=True).print(f"holdfast: {error}", markup=False, style="red")


def console() -> "Console":
    """Stdout for people."""
    from rich.console import Console

    return Console(highlight=False)


def _cell(value: object) -> str:
    if value is None:
        return "–"
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
