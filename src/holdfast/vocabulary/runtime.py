"""Time and randomness as one value, so that an entry point takes one argument for tests and none for everybody else."""

from dataclasses import dataclass, field

from holdfast.vocabulary.clock import Clock, FakeClock, RealClock
from holdfast.vocabulary.random import Random, SeededRandom, SystemRandom


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """Where components get time and randomness from. The default is the host's."""

    clock: Clock = field(default_factory=RealClock)
    random: Random = field(default_factory=SystemRandom)

    @staticmethod
    def fake(*, seed: int = 0) -> "FakeRuntime":
        """A clock that a test moves (`FakeClock`), and repeatable randomness."""
        return FakeRuntime(clock=FakeClock(), random=SeededRandom(seed))


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeRuntime(Runtime):
    """A runtime for tests: `runtime.clock.advance_ms(1_000)`."""

    clock: FakeClock = field(default_factory=FakeClock)
    random: SeededRandom = field(default_factory=lambda: SeededRandom(0))
