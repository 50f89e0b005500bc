"""Versions of etcd: which are too old, and which are known to lose or corrupt data. Pure."""

import re
from typing import Final

OLDEST: Final = (3, 4)

_INCONSISTENT: Final = ((3, 5, 0), (3, 5, 3))
_SINGLE_MEMBER_LOSS: Final = (((3, 4, 0), (3, 4, 21)), ((3, 5, 3), (3, 5, 5)))
_DEFRAGMENT: Final = ((3, 5, 5), (3, 5, 6))


def parse_version(text: str) -> tuple[int, ...]:
    """The numbers of the first version in a text; () if there is none."""
    found = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", text)
    return tuple(int(number) for number in found.groups(default="0")) if found else ()


def known_fault(version: tuple[int, ...]) -> str:
    """What a version is known to do to data, and the remedy; empty: nothing is known."""
    upgrade = "upgrade to 3.5.6 or newer"
    if _within(version, _INCONSISTENT):
        return f"can lose consistency when it is killed: {upgrade}"
    if any(_within(version, span) for span in _SINGLE_MEMBER_LOSS):
        return f"can lose acknowledged commits of a single member: {upgrade}, or 3.4.21"
    if _within(version, _DEFRAGMENT):
        return f"can lose consistency when it is killed while it defragments: {upgrade}"
    return ""


def _within(version: tuple[int, ...], span: tuple[tuple[int, ...], tuple[int, ...]]) -> bool:
    return span[0] <= version < span[1]
