"""Every mistake of a pipeline file at once, each once, with its line.

The readers of parts stop at the first mistake. So each part is read again without the value that was refused, until it is
accepted or nothing more can be left out. The server checks everything again; this only says it sooner and in full.
"""

import copy
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from holdfast.vocabulary.errors import InvalidError, UsageError

Path = tuple[str | int, ...]

_MISTAKES_MAX: Final = 50
_UNKNOWN: Final = re.compile(r"unknown field `([^`]+)`")
_MISSING: Final = re.compile(r"missing required field `([^`]+)`")
_AT: Final = re.compile(r"at `\$([^`]*)`")
_STEP: Final = re.compile(r"[^.\[\]\s:]+")


class FileMistakes:
    """Collects mistakes of one file; `raise_any` raises them as one error."""

    def __init__(self, file: str, lines: Mapping[Path, int]) -> None:
        self._file, self._lines = file, lines
        self._found: dict[tuple[int, str], None] = {}

    def add(self, path: Path, text: str) -> None:
        """A mistake at a path, in the line of the nearest key that has one."""
        near = next((path[:end] for end in range(len(path), -1, -1) if path[:end] in self._lines), ())
        self._found[(self._lines.get(near, 0), text)] = None

    def raise_any(self) -> None:
        """`UsageError` with every mistake in the order of lines, if there is one."""
        if not self._found:
            return
        texts = [f"{self._file}{f':{line}' if line else ''}: {text}" for line, text in sorted(self._found)]
        if len(texts) == 1:
            raise UsageError(texts[0])
        raise UsageError("\n  ".join([f"{len(texts)} mistakes in {self._file}:", *texts]))


def check_part(name: str, given: Mapping[str, Any], mistakes: FileMistakes) -> None:
    """Add every mistake of one part."""
    for path, text in _mistakes_of(name, given):
        mistakes.add((name, *path), text)


def _mistakes_of(name: str, given: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
    from holdfast.pipeline.catalog.parts import read_part  # it brings the mapping and the filters

    value: dict[str, Any] = copy.deepcopy(dict(given))
    indexes: dict[Path, list[int]] = {}  # list → the original index of what is left in it
    left_out: set[Path] = set()
    for _ in range(_MISTAKES_MAX):
        try:
            read_part(name, copy.deepcopy(value))
        except InvalidError as error:
            path, text = _located(name, error)
            original = _original(path, indexes)
            if not any(_related(original, each) for each in left_out):  # otherwise it follows from what was left out
                yield original, text.replace(dotted(path), dotted(original)) if path else text
            left_out.add(original)
            if not _leave_out(value, path, indexes):
                return
        else:
            return


def _related(one: Path, other: Path) -> bool:
    shorter = min(len(one), len(other))
    return one[:shorter] == other[:shorter]


def _located(name: str, error: InvalidError) -> tuple[Path, str]:
    """The path of a refused value inside of its part, and what to say."""
    about = f"{error.allowed} {error.given}"
    steps = _STEP.findall(error.what.removeprefix(name)) if error.what.startswith(name) else []
    if found := _AT.search(about):
        steps = _STEP.findall(found[1])
    path = tuple(int(step) if step.isdecimal() else step for step in steps)
    for pattern, kind in ((_UNKNOWN, "unknown"), (_MISSING, "missing")):
        if key := pattern.search(about):
            whole = (*path, key[1])
            return whole, f"{kind} key {dotted((name, *whole))}"
    return path, str(error)


def dotted(path: Path) -> str:
    """`sink.columns[0].type`."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")


def _original(path: Path, indexes: Mapping[Path, list[int]]) -> Path:
    made: Path = ()
    for at, step in enumerate(path):
        kept = indexes.get(path[:at])
        made += (kept[step] if kept is not None and isinstance(step, int) and step < len(kept) else step,)
    return made


def _leave_out(value: Any, path: Path, indexes: dict[Path, list[int]]) -> bool:
    """Remove the value at `path`, or else the list element it is in; whether there was one."""
    if _delete(value, path, indexes):
        return True
    inside = next((at for at, step in enumerate(path) if isinstance(step, int)), None)
    return inside is not None and _delete(value, path[: inside + 1], indexes)


def _delete(value: Any, path: Path, indexes: dict[Path, list[int]]) -> bool:
    if not path:
        return False
    holder = value
    for step in path[:-1]:
        try:
            holder = holder[step]
        except (KeyError, IndexError, TypeError):
            return False
    last = path[-1]
    if isinstance(holder, list) and isinstance(last, int) and last < len(holder):
        kept = indexes.setdefault(path[:-1], list(range(len(holder))))
        del holder[last], kept[last]
        return True
    if isinstance(holder, dict) and last in holder:
        del holder[last]
        return True
    return False
