"""Deadlines of many groups in one heap. An entry may be early (a session was renewed meanwhile), never late."""

import heapq


class DeadlineQueue:
    """At most one valid entry per name; outdated ones are skipped when they come up."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, str]] = []
        self._at_ms: dict[str, int] = {}

    def set(self, name: str, at_ms: int | None) -> bool:
        """Set the deadline of `name` unless it has an earlier one; whether this is now the earliest of all."""
        known_ms = self._at_ms.get(name)
        if at_ms is None or (known_ms is not None and known_ms <= at_ms):
            return False
        self._at_ms[name] = at_ms
        heapq.heappush(self._heap, (at_ms, name))
        return self._heap[0] == (at_ms, name)

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
