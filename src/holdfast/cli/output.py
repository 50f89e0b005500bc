"""How commands print: a table for people, one JSON object per line for programs; errors on stderr, with an exit code per action.

A table that does not fit the terminal is printed vertically, one `column  value` line per cell: nothing is cut.
"""

import json
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
from holdfast.vocabulary.text import escape_controls

if TYPE_CHECKING:  # rich is imported when something is printed: a server never needs it
    from rich.console import Console, RenderableType

OK: Final = 0
FAILED: Final = 1  # the command ran, and what it checked does not hold
USAGE: Final = 2  # fix the input
UNAVAILABLE: Final = 3  # retry later
CORRUPT: Final = 4  # call the operator
OUTCOME_UNKNOWN: Final = 5  # read, then decide
OWNERSHIP_LOST: Final = 6  # a newer owner exists
INTERRUPTED: Final = 130

EXIT_CODES: Final = """\
exit codes:
  0  done
  1  a check failed
  2  invalid input: fix it
  3  a service is unavailable: retry later
  4  stored state is corrupt or went backwards: call the operator
  5  the outcome is unknown: read the state, then decide
  6  ownership was lost to a newer owner
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
# Errors without an action class of their own that may still end a command. By name: a command must not import every package.
_CODES_BY_NAME: Final = {
    "BlockedError": UNAVAILABLE,
    "ClickHouseError": USAGE,
    "ClickHouseUnreachableError": OUTCOME_UNKNOWN,
    "CompactedError": UNAVAILABLE,
    "DataLossError": CORRUPT,
    "EditConflictError": USAGE,
    "GroupRefusedError": USAGE,
    "LeaseNotFoundError": OWNERSHIP_LOST,
    "NotCoordinatorError": UNAVAILABLE,
    "NotLeaderError": UNAVAILABLE,
    "OutOfSequenceError": OWNERSHIP_LOST,
    "ShardLoadingError": UNAVAILABLE,
    "TailNotLocalError": UNAVAILABLE,
    "TopicChangedError": USAGE,
}
_VERTICAL_GAP: Final = 2


def exit_code(error: HoldfastError) -> int:
    """The exit code that tells a script what to do about `error`."""
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code
    return next(
        (_CODES_BY_NAME[kind.__name__] for kind in type(error).__mro__ if kind.__name__ in _CODES_BY_NAME), FAILED
    )


def print_json(value: object) -> None:
    """One object on one line of stdout."""
    try:
        text = msgspec.json.encode(value).decode()
    except UnicodeEncodeError:  # a file's name that is not UTF-8
        text = json.dumps(msgspec.to_builtins(value))
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def print_rows(
    title: str, rows: Iterable[Mapping[str, object]], columns: Sequence[str], *, as_json: bool = False
) -> None:
    """Rows as a table of `columns`, or each with all its fields as JSON."""
    if as_json:
        for row in rows:
            print_json(row)
    else:
        print_table(title, rows, columns)


def print_table(
    title: str, rows: Iterable[Mapping[str, object]], columns: Sequence[str], *, vertical: bool = False
) -> None:
    """A table on stdout; `title: none` without rows. `vertical`: one line per cell, however few there are."""
    out = console()
    out.print(table(title, rows, columns, width=0 if vertical else out.width))


def table(title: str, rows: Iterable[Mapping[str, object]], columns: Sequence[str], *, width: int) -> "RenderableType":
    """A table no wider than `width`: horizontal if every cell fits, otherwise vertical. Cells are text, never markup."""
    from rich.table import Table
    from rich.text import Text

    cells = [[cell(row.get(column)) for column in columns] for row in rows]
    if not cells:
        return Text(f"{escape_controls(title)}: none")
    widths = [max(len(column), *(len(row[at]) for row in cells)) for at, column in enumerate(columns)]
    if sum(widths) + 3 * len(widths) + 1 > width:
        return _vertical(title, cells, columns)
    made = Table(title=Text(escape_controls(title)), title_justify="left")
    for column in columns:
        made.add_column(Text(column), no_wrap=True)
    for row in cells:
        made.add_row(*map(Text, row))
    return made


def _vertical(title: str, cells: Sequence[Sequence[str]], columns: Sequence[str]) -> "RenderableType":
    from rich.console import Group
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    parts: list[RenderableType] = [Text(escape_controls(title), style="italic")]
    for row in cells:
        grid = Table.grid(padding=(0, _VERTICAL_GAP))
        grid.add_column(no_wrap=True)
        grid.add_column(overflow="fold")
        for column, value in zip(columns, row, strict=True):
            grid.add_row(Text(column, style="bold"), Text(value))
        parts.append(Padding(grid, (0, 0, 1, _VERTICAL_GAP), expand=False))
    return Group(*parts)


def cell(value: object) -> str:
    """One value in a table, on one line."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return str(value).lower()
    text = ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
    return escape_controls(text).replace("\n", "␤").replace("\t", " ")


def print_line(text: str, *, style: str | None = None) -> None:
    """One line of text on stdout, wrapped by the terminal alone."""
    console().print(escape_controls(text), markup=False, soft_wrap=True, style=style)


def print_warning(text: str) -> None:
    """Something to look at, on stdout."""
    print_line(f"! {text}", style="yellow")


def print_error(error: HoldfastError) -> None:
    """The error on stderr, in one sentence."""
    from rich.console import Console

    Console(stderr=True, highlight=False, soft_wrap=True).print(f"holdfast: {error}", markup=False, style="red")


def print_outcomes(outcomes: Mapping[str, HoldfastError | None], kind: str, done: str, *, as_json: bool) -> int:
    """One line per name; the code of the first that failed."""
    for name, error in outcomes.items():
        if as_json:
            print_json({kind: name, done: error is None, "error": None if error is None else str(error)})
        elif error is None:
            print_line(f"{name} {done}")
        else:
            print_error(error)
    return next((exit_code(error) for error in outcomes.values() if error is not None), OK)


def console() -> "Console":
    """Stdout for people; 80 columns wide where it is no terminal."""
    from rich.console import Console

    return Console(highlight=False)
