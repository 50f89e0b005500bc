"""When which fault begins, where, and how long it lasts: a function of the seed alone. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.vocabulary.random import SeededRandom

# Faults that no other one may accompany: with a second one a level would have to survive more than it promises.
ALONE: Final = frozenset({"lose-disk", "lose-disk-cut-off", "diverge"})
# Faults of the whole cluster.
EVERYWHERE: Final = frozenset({"store-restart", "store-pause", "join"})

# Faults that last until the agent's session is over.
PAST_TTL: Final = frozenset({"freeze-past-ttl", "freeze-publishing-past-ttl", "cut-store"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A fault: begins at `at_s`, is over at `until_s`."""

    fault: str
    agent: int  # 0…: which one; of EVERYWHERE faults nobody asks
    at_s: float
    until_s: float

    @property
    def target(self) -> str:
        return "cluster" if self.fault in EVERYWHERE else f"agent {self.agent}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How long faults and the pauses between them last; a freeze that must end a session lasts `ttl_s` longer."""

    seconds: float
    ttl_s: float
    gap_s: tuple[float, float] = (1.0, 4.0)
    lasting_s: tuple[float, float] = (0.5, 4.0)
    overlap: float = 0.25  # how often a fault begins during the one before


def schedule(seed: int, faults: Sequence[str], pace: Pace, *, agents: int = 3) -> list[Planned]:
    """The faults of a run, each kind once before any comes again; the last is over before `pace.seconds`."""
    rng = SeededRandom(seed).random
    planned: list[Planned] = []
    at, bag = rng.uniform(*pace.gap_s), list[str]()
    while True:
        if not bag:
            bag = rng.sample(list(faults), len(faults))
        fault = bag.pop()
        last = planned[-1] if planned else None
        agent = rng.randrange(agents)
        lasting = rng.uniform(*pace.lasting_s) + (pace.ttl_s if fault in PAST_TTL else 0)
        if last is not None and _may_overlap(last, fault) and rng.random() < pace.overlap:
            at = rng.uniform(last.at_s, last.until_s)
            agent = (last.agent + rng.randrange(1, agents)) % agents  # what is down cannot be cut off
        elif last is not None:
            at = max(each.until_s for each in planned[-2:]) + rng.uniform(*pace.gap_s)
        if at + lasting > pace.seconds:
            return planned
        planned.append(Planned(fault=fault, agent=agent, at_s=round(at, 3), until_s=round(at + lasting, 3)))


def _may_overlap(last: Planned, fault: str) -> bool:
    both = {last.fault, fault}
    return not both & (ALONE | EVERYWHERE) and len(both) == 2
