"""The partitions that have something to publish or reserved offsets to release, so that the others cost nothing.

A partition is added when something is appended or reserved, and removed by `dirty` once everything is published and released.
`notify` wakes the publish scheduler at once.
"""

from typing import Generic, Protocol, TypeVar

from holdfast.vocabulary.tasks import Notify


class _Quiescent(Protocol):
    @property
    def is_quiescent(self) -> bool:
        """Whether there is nothing to publish and nothing to release."""
        ...


P = TypeVar("P", bound=_Quiescent)


class DirtyPartitions(Notify, Generic[P]):
    """The dirty partitions of one agent."""

    def __init__(self) -> None:
        super().__init__()
        self._dirty: dict[P, None] = {}  # in the order in which they became dirty

    def mark_dirty(self, partition: P) -> None:
        """It has something to publish, or reserved offsets."""
        self._dirty[partition] = None

    def forget(self, partition: P) -> None:
        """It is closed."""
        self._dirty.pop(partition, None)

    def dirty(self) -> list[P]:
        """Those that still are."""
        for partition in [each for each in self._dirty if each.is_quiescent]:
            del self._dirty[partition]
        return list(self._dirty)
