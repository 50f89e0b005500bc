"""Attention: which partitions have something to publish or booked offsets to give back, so that nobody looks at all the others.

Thousands of quiet partitions cost nothing: a partition enters when something is appended or booked, and is dropped by whoever
looks once everything is published and given back. Ringing asks for a look at once.
"""

from typing import Generic, Protocol, TypeVar

from holdfast.vocabulary.tasks import Notify


class _Quiescent(Protocol):
    @property
    def is_quiescent(self) -> bool:
        """Whether there is nothing to publish and nothing to give back."""
        ...


P = TypeVar("P", bound=_Quiescent)


class DirtyPartitions(Notify, Generic[P]):
    """The partitions of one agent that are not at rest."""

    def __init__(self) -> None:
        super().__init__()
        self._dirty: dict[P, None] = {}  # in the order in which they stirred

    def mark_dirty(self, partition: P) -> None:
        """It has something to publish, or offsets booked."""
        self._dirty[partition] = None

    def forget(self, partition: P) -> None:
        """It is closed."""
        self._dirty.pop(partition, None)

    def dirty(self) -> list[P]:
        """Those not at rest."""
        for partition in [each for each in self._dirty if each.is_quiescent]:
            del self._dirty[partition]
        return list(self._dirty)
