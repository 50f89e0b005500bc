"""The partitions that have something to publish or reserved offsets to release, so that the others cost nothing.

A partition is marked when something is appended, reserved or requested, and dropped by `take_marked` once everything is published
and released. Who watches looks at the marked ones alone: `notify` wakes the publish scheduler at once.
"""

from collections.abc import Iterator
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
        self._marked: dict[P, None] = {}  # since the last `take_marked`

    def __contains__(self, partition: P) -> bool:
        return partition in self._dirty

    def __iter__(self) -> Iterator[P]:
        return iter(self._dirty)

    def mark_dirty(self, partition: P) -> None:
        """It has something to publish, or reserved offsets; or when it is due has changed."""
        self._dirty[partition] = self._marked[partition] = None

    def forget(self, partition: P) -> None:
        """It is closed: who watches looks at it once more, and lets it go, too."""
        if partition in self._dirty:
            del self._dirty[partition]
            self._marked[partition] = None

    def drop_if_quiescent(self, partition: P) -> bool:
        """Whether it needs nothing more: then it is forgotten until it is marked again."""
        if partition.is_quiescent:
            self._drop(partition)
        return partition not in self._dirty

    def mark_all(self) -> None:
        """Whoever takes the marked ones next sees every dirty partition: there is a new one who watches."""
        self._marked = dict(self._dirty)

    def take_marked(self) -> list[P]:
        """Those that were marked since the last call."""
        marked, self._marked = self._marked, {}
        return list(marked)

    def dirty(self) -> list[P]:
        """Those that still are."""
        for partition in [each for each in self._dirty if each.is_quiescent]:
            self._drop(partition)
        return list(self._dirty)

    def _drop(self, partition: P) -> None:
        self._dirty.pop(partition, None)
        self._marked.pop(partition, None)
