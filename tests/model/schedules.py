"""Schedules on which planted bugs show, as they were found: one step a line in `schedules.txt`, below the name of the bug."""

from ast import literal_eval
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.model.state import Step

_PATH: Final = Path(__file__).with_name("schedules.txt")


def read_schedules() -> dict[str, tuple[Step, ...]]:
    found: dict[str, list[Step]] = {}
    bug = ""
    for line in _PATH.read_text().splitlines():
        if line.startswith("("):
            found[bug].append(literal_eval(line))
        elif line:
            bug = line
            found[bug] = []
    return {bug: tuple(schedule) for bug, schedule in found.items()}


def write_schedules(schedules: Mapping[str, Sequence[Step]]) -> None:
    parts = ("\n".join((bug, *map(repr, schedule))) for bug, schedule in schedules.items())
    _PATH.write_text("\n\n".join(parts) + "\n")
