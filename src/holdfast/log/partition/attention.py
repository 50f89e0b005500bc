"""Attention: which partitions have something to publish or booked offsets to give back, so that nobody looks at all the others.

Thousands of quiet partitions cost nothing: a partition enters when something is appended or booked, and is dropped by whoever
looks once everything is published and given back. Ringing asks for a look at once.
"""

from typing import Generic, Protocol, TypeVar

from holdfast.vocabulary.tasks import Bell


class _Resting(Protocol):
    @property
    def at_rest(self) -> bool:
        """Whether there is nothing to publish and nothing to give back."""
        ...


P = TypeVar("P", bound=_Resting)


class Attention(Bell, Generic[P]):
    """The partitions of one agent that are not at rest."""

    def __init__(self) -> None:
        super().__init__()
        self._stirred: dict[P, None] = {}  # in the order in which they stirred

    def stir(self, partition: P) -> None:
        """It has something to publish, or offsets booked."""
        self._stirred[partition] = None

    def forget(self, partition: P) -> None:
        """It is closed."""
        self._stirred.pop(partition, None)

    def stirred(self) -> list[P]:
        """Those not at rest."""
        for partition in [each for each in self._stirred if each.at_rest]:
            del self._stirred[partition]
        return list(self._stirred)
