"""What a heap of a seed has beside messages and partitions: fairness, growth, dead letters, snapshots. Drawn apart from the rest.

The one rule: a seed without features is the run that it was before there were any: they have random numbers of their own, and what
is switched off draws none.
"""

from dataclasses import dataclass
from typing import Final

from holdfast.vocabulary.random import SeededRandom

_APART: Final = 0x5EED_FEA7
_NO_RETRIES: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """`keys`: fairness keys that messages draw from, None: without one. `growths`: partitions that come, one number for each time.

    `max_retries`: of a heap with dead letters, -1: it has none.
    """

    keys: tuple[str | None, ...] = ()
    weights: str = ""
    key_leases_max: int = 0
    key_rate_per_s: float = 0.0
    rate_per_s: float = 0.0
    rate_burst: int = 0
    growths: tuple[int, ...] = ()
    max_retries: int = _NO_RETRIES
    letters: int = 1  # partitions of the heap of dead letters
    snapshots: bool = False

    @property
    def has_limits(self) -> bool:
        """Whether a message that is ready may have to wait for others."""
        return bool(self.key_leases_max or self.key_rate_per_s or self.rate_per_s)

    @property
    def has_dead_letters(self) -> bool:
        """Whether messages whose retries are spent go elsewhere."""
        return self.max_retries != _NO_RETRIES


NO_FEATURES: Final = Features()


def draw_features(seed: int) -> Features:
    """None for a quarter of all seeds, and each of them for half of the others."""
    rng = SeededRandom(seed ^ _APART).random
    if rng.random() < 0.25:
        return NO_FEATURES
    given: dict[str, object] = {}
    if rng.random() < 0.5:
        given["keys"] = rng.choice((("a", "b"), ("a", "b", "c"), ("a", "a", "a", "b", None)))
        given["weights"] = rng.choice(("", "a=3", "a=2,b=5"))
        limit = rng.choice(("leases", "leases", "key rate", "rate", "none", "none"))
        if limit == "leases":
            given["key_leases_max"] = rng.choice((1, 1, 2))
        elif limit == "key rate":
            given.update(key_rate_per_s=rng.choice((25.0, 60.0)), rate_burst=rng.choice((1, 3)))
        elif limit == "rate":
            given.update(rate_per_s=rng.choice((100.0, 200.0)), rate_burst=rng.choice((0, 4)))
    if rng.random() < 0.5:
        given["growths"] = rng.choice(((1,), (2,), (1, 1)))
    if rng.random() < 0.5:
        given.update(max_retries=rng.choice((0, 0, 1, 2)), letters=rng.choice((1, 2)))
    given["snapshots"] = rng.random() < 0.5
    return Features(**given)  # type: ignore[arg-type]
