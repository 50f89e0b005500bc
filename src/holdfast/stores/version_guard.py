"""Guard: a store must never go backwards. If it does, every holder stops.

A restored backup, a failed-over replica that lagged, a wiped server: each shows as a lower version or another incarnation.
The first sight of it is remembered; from then on every call fails.
"""

from collections.abc import Callable
from typing import NoReturn

from holdfast.vocabulary.errors import CorruptError


class VersionGuard:
    """Remembers the highest version an engine has shown, and its incarnation."""

    def __init__(self, what: str, *, incarnation: str, version: int, on_fault: Callable[[CorruptError], None]) -> None:
        self.what, self.incarnation, self.version = what, incarnation, version
        self.fault: CorruptError | None = None
        self._on_fault = on_fault

    def check(self) -> int:
        """Refuse to go on after a fault; otherwise the version to compare the coming answer with."""
        if self.fault is not None:
            raise self.fault
        return self.version

    def saw(self, version: int, *, asked_at: int, incarnation: str | None = None) -> None:
        """Take note of an answer. `asked_at` is what `check` said when the question was sent: answers may overtake each other."""
        if version < asked_at:
            self.fail(f"version went back from {asked_at} to {version}")
        if incarnation is not None and incarnation != self.incarnation:
            self.fail(f"incarnation changed from {self.incarnation} to {incarnation}")
        self.version = max(self.version, version)

    def fail(self, found: str) -> NoReturn:
        """Stop every holder because of something only the engine can see, such as a primary that became a replica."""
        self.fault = self.fault or CorruptError(self.what, found)
        self._on_fault(self.fault)
        raise self.fault
