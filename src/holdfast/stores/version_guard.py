"""Version guard: a store must never go backwards. If it does, every holder stops.

A restored backup, a lagging replica after failover, a wiped server: each shows as a lower version or another incarnation. The
first such observation is kept; from then on every call fails.
"""

from collections.abc import Callable
from typing import NoReturn

from holdfast.vocabulary.errors import CorruptError


class VersionGuard:
    """Keeps the highest version observed, and the incarnation."""

    def __init__(self, what: str, *, incarnation: str, version: int, on_fault: Callable[[CorruptError], None]) -> None:
        self.what, self.incarnation, self.version = what, incarnation, version
        self.fault: CorruptError | None = None
        self._on_fault = on_fault

    def check(self) -> int:
        """Raise after a fault; otherwise the version to compare the next response with."""
        if self.fault is not None:
            raise self.fault
        return self.version

    def observe(self, version: int, *, known_version: int, incarnation: str | None = None) -> None:
        """Check a response. `known_version` is what `check` returned before the request: responses may overtake each other."""
        if version < known_version:
            self.fail(f"version went back from {known_version} to {version}")
        if incarnation is not None and incarnation != self.incarnation:
            self.fail(f"incarnation changed from {self.incarnation} to {incarnation}")
        self.version = max(self.version, version)

    def fail(self, found: str) -> NoReturn:
        """Stop every holder because of something only the engine can detect, such as a primary that became a replica."""
        self.fault = self.fault or CorruptError(self.what, found)
        self._on_fault(self.fault)
        raise self.fault
