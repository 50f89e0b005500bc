"""Bugs for the checker to find: each switches off one rule of SAFETY in an agent's process."""

from collections.abc import Callable
from typing import Final

BUGS: Final[dict[str, Callable[[], None]]] = {}


def plant(bug: str) -> None:
    """In this process."""
    BUGS[bug]()
