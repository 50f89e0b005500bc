"""Randomness: unique tokens, repeatable seeds, bounded back-off; and the runtime that carries it with the clock."""

from holdfast.vocabulary.clock import FakeClock, RealClock
from holdfast.vocabulary.random import SeededRandom, SystemRandom, backoff_ms
from holdfast.vocabulary.runtime import Runtime


def test_tokens_are_unique_and_a_seed_repeats_them() -> None:
    real, one, two = SystemRandom(), SeededRandom(9), SeededRandom(9)
    assert len({real.token() for _ in range(1_000)}) == 1_000
    assert [one.token() for _ in range(5)] == [two.token() for _ in range(5)]
    assert all(80 <= real.jitter(100) <= 120 for _ in range(100))


def test_backoff_doubles_up_to_its_cap() -> None:
    random = SeededRandom(1)
    pauses = [backoff_ms(attempt, base_ms=10, max_ms=1_000, random=random) for attempt in range(100)]
    assert 8 <= pauses[0] <= 12
    assert 800 <= pauses[-1] <= 1_200


def test_the_default_runtime_is_the_hosts_and_a_fake_one_repeats_itself() -> None:
    assert isinstance(Runtime().clock, RealClock)
    assert isinstance(Runtime().random, SystemRandom)
    one, two = Runtime.fake(seed=4), Runtime.fake(seed=4)
    assert isinstance(one.clock, FakeClock)
    assert [one.random.token() for _ in range(3)] == [two.random.token() for _ in range(3)]
