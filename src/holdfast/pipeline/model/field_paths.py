r"""Paths of values in a record: `user.address.city`, `lines[0].sku`, `lines[].sku`, `$timestamp`.

A path is keys with dots between them. `[3]` is the fourth element of an array, `[]` every element, as an array.
A backslash takes the next character as it is: `a\.b` is the one key `a.b`. A path that begins with `$` starts outside the value:
`$key`, `$headers.trace`, `$topic`, `$partition`, `$offset`, `$timestamp`, and of a change event `$op` and `$source.ts_ms`; a key
that begins with `$` is written `\$…`.

The one rule: an absent value is None, exactly as null is. Only a malformed path is an error.
"""

import re
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any, Final, TypeAlias

from holdfast.pipeline.model.records import SourceRecord
from holdfast.vocabulary.errors import InvalidError

ROOTS: Final = ("key", "headers", "topic", "partition", "offset", "timestamp", "op", "source")
TEXT_MAX: Final = 1_000
STEPS_MAX: Final = 32

_KEY: Final = re.compile(r"(?:[^.\[\]\\]|\\.)+", re.DOTALL)
_INDEX: Final = re.compile(r"\[(\d{0,9})\]", re.ASCII)
_SPECIAL: Final = re.compile(r"([.\[\]\\])")


class Each(Enum):
    """The step into every element of an array."""

    EACH = "[]"


EACH: Final = Each.EACH
Step: TypeAlias = str | int | Each


@dataclass(frozen=True, slots=True)
class Path:
    """Steps to a value, from the decoded record or from another attribute of it."""

    steps: tuple[Step, ...]
    root: str = "fields"

    def __str__(self) -> str:
        text = "" if self.root == "fields" else f"${self.root}"
        for step in self.steps:
            if isinstance(step, str):
                key = _SPECIAL.sub(r"\\\1", step)
                if not text and key.startswith("$"):
                    key = "\\" + key
                text += f".{key}" if text else key
            else:
                text += "[]" if step is EACH else f"[{step}]"
        return text


@lru_cache(maxsize=10_000)
def parse_path(text: str) -> Path:
    """Parse a path. `InvalidError` has the position."""
    if not text or len(text) > TEXT_MAX:
        raise InvalidError("path", text[:TEXT_MAX], f"1 to {TEXT_MAX} characters")
    root, at, steps = "fields", 0, list[Step]()
    if text.startswith("$"):
        root = re.split(r"[.\[]", text[1:], maxsplit=1)[0]
        if root not in ROOTS:
            raise InvalidError(
                "path", text, "$ and one of " + ", ".join(ROOTS) + r"; a key that begins with $ is written \$…"
            )
        at = 1 + len(root)
    while at < len(text):
        at, step = _step(text, at, first=at == 0)
        steps.append(step)
    if len(steps) > STEPS_MAX:
        raise InvalidError("path", text, f"at most {STEPS_MAX} steps")
    if root == "headers" and (len(steps) > 1 or not all(isinstance(step, str) for step in steps)):
        raise InvalidError("path", text, "$headers or $headers.name: a header is a plain value")
    if root not in ("fields", "headers", "source") and steps:
        raise InvalidError("path", text, f"${root} alone: it is a plain value")
    return Path(tuple(steps), root)


def _step(text: str, at: int, *, first: bool) -> tuple[int, Step]:
    if text[at] == "[":
        found = _INDEX.match(text, at)
        if found is None or first:
            raise InvalidError("path", text, f"a key, or [number] after one, at character {at + 1}")
        return found.end(), int(found[1]) if found[1] else EACH
    begin = at if first else at + 1
    key = _KEY.match(text, begin)
    if key is None or not (first or text[at] == "."):
        raise InvalidError("path", text, f"a key at character {begin + 1}")
    return key.end(), re.sub(r"\\(.)", r"\1", key[0], flags=re.DOTALL)


def find(path: Path, record: SourceRecord) -> Any:
    """The value at a path of a record, or None."""
    return follow(path.steps, getattr(record, path.root))


def follow(steps: tuple[Step, ...], value: Any) -> Any:
    """The value that steps lead to from another, or None."""
    for number, step in enumerate(steps):
        if step is EACH:
            if not isinstance(value, list):
                return None
            return [follow(steps[number + 1 :], element) for element in value]
        value = take(value, step)
        if value is None:
            return None
    return value


def take(value: Any, step: str | int) -> Any:
    """One step: a key of an object or an element of an array."""
    if isinstance(step, str):
        return value.get(step) if isinstance(value, dict) else None
    return value[step] if isinstance(value, list) and step < len(value) else None
