"""A place in the order of a partition's appends.

A task that is to append begins a turn of the loop after it was made; what arrives in between must not be appended before it. So the
place is held when the batches arrive, and left when they have their offsets, or never will.
"""

from collections.abc import Callable


class AppendPlace:
    """A place among the appends of a partition, held before the task that appends has begun."""

    def __init__(self, on_left: Callable[[], None]) -> None:
        self._on_left: Callable[[], None] | None = on_left

    def leave(self) -> None:
        """Once is enough."""
        on_left, self._on_left = self._on_left, None
        if on_left is not None:
            on_left()
