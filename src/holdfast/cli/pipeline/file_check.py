"""Every mistake of a pipeline file at once, each once, with its line. The server checks everything again."""

import re
from collections.abc import Mapping
from typing import Any, Final

from holdfast.vocabulary.errors import InvalidError, UsageError

Path = tuple[str | int, ...]

_STEP: Final = re.compile(r"[^.\[\]]+")


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
    from holdfast.pipeline.catalog.parts import read_part  # slow to import: it brings the mapping and the filters
    from holdfast.pipeline.model.errors import InvalidValuesError

    try:
        read_part(name, given)
    except InvalidError as error:
        for each in error.errors if isinstance(error, InvalidValuesError) else (error,):
            mistakes.add(_path(name, each.what), str(each))


def _path(part: str, what: str) -> Path:
    """The path of `mapping.columns[0].type`."""
    steps = _STEP.findall(what) if what.startswith((f"{part}.", f"{part}[")) else [part]
    return tuple(int(step) if step.isdecimal() else step for step in steps)
