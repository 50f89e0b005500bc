"""A topic and its traffic, drawn from a seed: bound, partitions, skew, delays, failures, faults."""

from dataclasses import dataclass

from holdfast.heap.spine.rank_bound import RankBound
from holdfast.vocabulary.random import SeededRandom


@dataclass(frozen=True, slots=True, kw_only=True)
class HeapConfiguration:
    """What one seed runs. Shares are of 1, weights are relative."""

    k: int
    partitions: int
    in_flight: int
    fan_out: int
    ranks: int  # how many different ones there are
    skew: float  # share of messages that go to partition 0, with the best ranks
    delayed: float
    nacked: float
    enqueues: int  # weight
    faults: int  # weight
    grows: bool
    steps: int

    @property
    def bound(self) -> RankBound:
        """Of the topic as it begins."""
        return RankBound.split(self.k, self.partitions, in_flight=self.in_flight)


def draw_configuration(seeded: SeededRandom, *, k: int | None = None) -> HeapConfiguration:
    """A configuration by chance; `k` if it is given."""
    random = seeded.random
    bound = k or random.choice((1, 1, 2, 3, 5, 8, 10, 20, 50, 100))
    return HeapConfiguration(
        k=bound,
        partitions=random.choice((2, 2, 3, 3, 4, 5, 8, 20)),
        in_flight=random.choice((0, (bound - 1) // 2, bound - 1)),
        fan_out=random.choice((1, 2, 3, 5, 8, 20)),
        ranks=random.choice((3, 20, 1_000, 1_000_000)),
        skew=random.choice((0.0, 0.0, 0.5, 0.9)),
        delayed=random.choice((0.0, 0.1, 0.5)),
        nacked=random.choice((0.0, 0.2, 0.6)),
        enqueues=random.choice((2, 4, 8)),
        faults=random.choice((0, 1, 1, 3)),
        grows=random.random() < 0.3,
        steps=random.choice((200, 400, 800)),
    )
