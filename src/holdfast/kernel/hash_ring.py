"""The hash ring: the preferred agents of a partition. Pure, and it never changes: placements depend on every bit.

The ring alone is uneven (six partitions on three agents fall 3/2/1), so the plan uses it only to choose among agents that
still have room.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final

from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.hashing import ring_hash

VIRTUAL_NODES: Final = 150


class HashRing:
    """Agents at `vnodes` points each; a label belongs to the nearest point clockwise."""

    def __init__(self, agents: Iterable[str], *, vnodes: int = VIRTUAL_NODES) -> None:
        self.agents = tuple(sorted(set(agents)))
        points = sorted((point, agent) for agent in self.agents for point in _points(agent, vnodes))
        self._hashes = [point for point, _ in points]
        self._owners = [agent for _, agent in points]

    def owner(self, label: str) -> str:
        """The agent nearest clockwise."""
        for agent in self.walk(label):
            return agent
        raise InvalidError("ring", "empty", "at least one agent")

    def walk(self, label: str) -> Iterator[str]:
        """Every agent once, in the order in which they follow `label` clockwise."""
        return self.walk_from(self.point(label))

    def point(self, label: str) -> int:
        """The number of the point that a label belongs to. There are far fewer points than labels: what follows one can be kept."""
        return bisect_left(self._hashes, ring_hash(label))

    def walk_from(self, point: int) -> Iterator[str]:
        """Every agent once, clockwise from a point."""
        size = len(self._hashes)
        met: set[str] = set()
        for step in range(size):
            agent = self._owners[(point + step) % size]
            if agent not in met:
                met.add(agent)
                yield agent
                if len(met) == len(self.agents):
                    return


@lru_cache(maxsize=1_024)  # a plan is made again and again for the same agents, and hashing is most of its work
def _points(agent: str, vnodes: int) -> tuple[int, ...]:
    return tuple(ring_hash(f"{agent}:vn{n}") for n in range(vnodes))
