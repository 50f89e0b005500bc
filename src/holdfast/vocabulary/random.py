"""Randomness: the only home of identifiers, jitter and back-off.

Everything else takes a `Random` as a component, so that a seed repeats a run. Lint bans the direct calls elsewhere (ruff TID251).
"""

import random
import secrets
from typing import Final, Protocol


class Random(Protocol):
    """Where a component gets identifiers and jitter from."""

    def token(self) -> str:
        """A short unique identifier."""
        ...

    def jitter(self, value: float, *, share: float = 0.2) -> float:
        """`value` moved by at most `share` of itself either way."""
        ...


# Not Python's shared generator: seeding that must not repeat our jitter, nor our jitter disturb its sequence.
_SYSTEM: Final = random.SystemRandom()
_FAST: Final = random.Random()


class SystemRandom:
    """Unpredictable identifiers, unpredictable jitter."""

    def token(self) -> str:
        return secrets.token_hex(10)

    def jitter(self, value: float, *, share: float = 0.2) -> float:
        return value * (1 + _SYSTEM.uniform(-share, share))


class SeededRandom:
    """Repeatable identifiers and jitter, for tests and simulation."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def token(self) -> str:
        return f"{self.random.getrandbits(80):020x}"

    def jitter(self, value: float, *, share: float = 0.2) -> float:
        return value * (1 + self.random.uniform(-share, share))


def fast_share() -> float:
    """A number from 0 to 1, without 1: for what is sampled, never for a secret or a decision that a seed has to repeat."""
    return _FAST.random()


def backoff_ms(attempt: int, *, base_ms: float, max_ms: float, random: Random) -> float:
    """The pause before try number `attempt` (from 0): doubling, capped, jittered."""
    return random.jitter(min(max_ms, base_ms * 2.0 ** min(attempt, 30)))
