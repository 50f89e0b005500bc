"""Attention: which partitions have something to publish or booked offsets to give back, so that nobody looks at all the others.

Thousands of quiet partitions cost nothing: a partition enters when something is appended or booked, and is dropped by whoever
looks once everything is published and given back. Ringing asks for a look at once.
"""

from typing import TYPE_CHECKING

from holdfast.vocabulary.tasks import Bell

if TYPE_CHECKING:
    from holdfast.log.partition.leading import LeadingPartition


class Attention(Bell):
    """The partitions of one agent that are not at rest."""

    def __init__(self) -> None:
        super().__init__()
        self._stirred: dict[LeadingPartition, None] = {}  # in the order in which they stirred

    def stir(self, partition: "LeadingPartition") -> None:
        """It has something to publish, or offsets booked."""
        self._stirred[partition] = None

    def forget(self, partition: "LeadingPartition") -> None:
        """It is closed."""
        self._stirred.pop(partition, None)

    def stirred(self) -> "list[LeadingPartition]":
        """Those not at rest."""
        for partition in [each for each in self._stirred if each.at_rest]:
            del self._stirred[partition]
        return list(self._stirred)
