"""The lag of every group that is coordinated here, looked up now and then, for metrics.

The one rule: nobody who reads it waits. Ends of partitions led here are read from memory when somebody asks; those of other
agents are as old as the last look, and what could not be looked up is counted instead of guessed.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NamedTuple

from holdfast.groups.service import GroupService
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import HoldfastError
from holdfast.vocabulary.types import TopicPartition

_log: Final = logging.getLogger(__name__)

EndHere = Callable[[TopicPartition], int | None]
EndsElsewhere = Callable[[str, list[int]], Awaitable[Mapping[int, int]]]


class GroupPartitionLag(NamedTuple):
    """Records of a partition that a group has not read."""

    group: str
    topic: str
    number: int
    lag: int


class GroupLags:
    """`end_here`: of a partition led here; `ends_elsewhere`: of partitions of a topic, asked of their leaders."""

    def __init__(self, groups: GroupService, end_here: EndHere, ends_elsewhere: EndsElsewhere, *, clock: Clock) -> None:
        self._groups, self._end_here, self._ends_elsewhere, self._clock = groups, end_here, ends_elsewhere, clock
        self._elsewhere: dict[TopicPartition, int] = {}
        self.unknown = 0  # partitions whose end was not known at the last reading

    def read(self) -> list[GroupPartitionLag]:
        """The lag of each partition of each group whose end is known."""
        found, unknown = [], 0
        for group, offsets in self._groups.committed():
            for partition, offset in offsets.items():
                end = self._end_here(partition)
                if end is None:
                    end = self._elsewhere.get(partition)
                if end is None or offset.offset < 0:
                    unknown += 1
                else:
                    found.append(
                        GroupPartitionLag(group, partition.topic, partition.number, max(0, end - offset.offset))
                    )
        self.unknown = unknown
        return found

    async def keep_looking(self, interval_ms: int) -> None:
        """Ask other agents for the ends of their partitions, again and again, until cancelled."""
        while True:
            await self.look()
            await self._clock.sleep_ms(interval_ms)

    async def look(self) -> None:
        """Ask once. What does not answer is unknown from now on."""
        wanted: dict[str, set[int]] = {}
        for _, offsets in self._groups.committed():
            for partition in offsets:
                if self._end_here(partition) is None:
                    wanted.setdefault(partition.topic, set()).add(partition.number)
        ends: dict[TopicPartition, int] = {}
        for topic, numbers in wanted.items():
            try:
                found = await self._ends_elsewhere(topic, sorted(numbers))
            except HoldfastError as error:
                _log.debug("ends of %s are not known: %s", topic, error)
                continue
            ends.update({TopicPartition(topic, number): end for number, end in found.items()})
        self._elsewhere = ends
