"""The rank bound of a heap topic, and what it leaves for speed. Pure arithmetic; docs/heaps-rank-bound.md has the proof.

A pop hands out the root of one partition. Every other partition may hide `budget` messages that are better, and `in_flight`
messages may be reserved elsewhere and not yet taken, so its rank is at most 1 + (partitions - 1) * budget + in_flight, which is
at most `k`.
"""

from dataclasses import dataclass
from typing import Self

from holdfast.vocabulary.settings import check_at_least, check_between


@dataclass(frozen=True, slots=True, kw_only=True)
class RankBound:
    """How a bound of `k` is spent over `partitions`. Made by `split`."""

    k: int
    partitions: int
    budget: int
    in_flight: int

    def __post_init__(self) -> None:
        check_at_least("k", self.k, 1)
        check_at_least("partitions", self.partitions, 1)
        check_at_least("budget", self.budget, 0)
        check_between("in_flight", self.in_flight, 0, self.k - 1 - (self.partitions - 1) * self.budget)

    @classmethod
    def split(cls, k: int, partitions: int, *, in_flight: int | None = None) -> Self:
        """Spend what `k` allows: `in_flight` at least (half, unless given) on reservations, the rest on silent ready events.

        What a budget in whole messages leaves over goes to reservations.
        """
        check_at_least("k", k, 1)
        check_at_least("partitions", partitions, 1)
        reserved = (k - 1) // 2 if in_flight is None else in_flight
        check_between("in_flight", reserved, 0, k - 1)
        budget = (k - 1 - reserved) // (partitions - 1) if partitions > 1 else 0
        return cls(k=k, partitions=partitions, budget=budget, in_flight=k - 1 - (partitions - 1) * budget)

    def of(self, reserved_elsewhere: int) -> int:
        """The bound of a pop that is sent while so many messages are reserved in other partitions."""
        return 1 + (self.partitions - 1) * self.budget + reserved_elsewhere
