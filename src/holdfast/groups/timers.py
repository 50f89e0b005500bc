"""Deadlines of many groups in one heap. An entry may be early (a session was renewed meanwhile), never late."""

import heapq
from typing import Final

_OUTDATED_MIN: Final = 64  # fewer are not worth a new heap


class DeadlineQueue:
    """At most one valid entry per name; outdated ones are skipped when they come up, and removed when they are the most."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, str]] = []
        self._at_ms: dict[str, int] = {}

    def __len__(self) -> int:
        """The entries, with those that are outdated."""
        return len(self._heap)

    def set(self, name: str, at_ms: int | None) -> bool:
        """Set the deadline of `name` unless it has an earlier one; whether this is now the earliest of all."""
        known_ms = self._at_ms.get(name)
        if at_ms is None or (known_ms is not None and known_ms <= at_ms):
            return False
        self._at_ms[name] = at_ms
        heapq.heappush(self._heap, (at_ms, name))
        self._remove_outdated()
        return self._heap[0] == (at_ms, name)

    def discard(self, name: str) -> None:
        """`name` has no deadline any more."""
        if self._at_ms.pop(name, None) is not None:
            self._remove_outdated()

    def next_ms(self) -> int | None:
        """When the next entry is due."""
        while self._heap and self._at_ms.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def due(self, now_ms: int) -> list[str]:
        """The names whose deadlines have passed; they are no longer set."""
        names = []
        while (at_ms := self.next_ms()) is not None and at_ms <= now_ms:
            _, name = heapq.heappop(self._heap)
            del self._at_ms[name]
            names.append(name)
        return names

    def _remove_outdated(self) -> None:
        if len(self._heap) > 2 * len(self._at_ms) + _OUTDATED_MIN:
            self._heap = [(at_ms, name) for name, at_ms in self._at_ms.items()]
            heapq.heapify(self._heap)
