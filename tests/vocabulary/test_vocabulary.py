"""Errors, settings, clocks and tasks."""

import asyncio
import pickle
from dataclasses import dataclass

import pytest

from holdfast.vocabulary import errors
from holdfast.vocabulary.clock import FakeClock, RealClock
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.random import SeededRandom, SystemRandom, backoff_ms
from holdfast.vocabulary.settings import check_between, check_one_of, settings_from
from holdfast.vocabulary.tasks import Notify, background_tasks

EXAMPLES = [
    errors.UnavailableError("store", "refused"),
    errors.OutcomeUnknownError("c1", "connection lost"),
    errors.FencedError("orders:0", 3, 4),
    errors.ExpiredError("session s1", "its deadline has passed"),
    errors.InvalidError("ttl_ms", -1, "at least 100"),
    errors.UsageError("--commit needs --group"),
    errors.CorruptError("store", "version went back from 9 to 7"),
    errors.ClosedError("store"),
]


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_pickles_and_says_its_facts(error: errors.HoldfastError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert again.args == error.args
    assert all(str(fact) in str(error) for fact in error.args)


def test_every_error_class_has_an_example_here() -> None:
    known = {
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.HoldfastError) and kind is not errors.HoldfastError
    }
    assert {type(error) for error in EXAMPLES} == known


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    size: int = 3
    fast: bool = False

    def __post_init__(self) -> None:
        check_between("size", self.size, 1, 9)


def test_settings_are_built_from_text() -> None:
    assert settings_from(Tuning, {"size": "7", "fast": "true"}) == Tuning(size=7, fast=True)


@pytest.mark.parametrize("wrong", [{"sise": "7"}, {"size": "seven"}, {"size": "77"}, {"fast": "maybe"}])
def test_a_wrong_setting_is_refused_by_name(wrong: dict[str, str]) -> None:
    with pytest.raises(InvalidError):
        settings_from(Tuning, wrong)


def test_a_word_outside_its_list_is_refused_with_the_list() -> None:
    with pytest.raises(InvalidError, match="contiguous, sticky"):
        check_one_of("plan", "random", ("contiguous", "sticky"))


async def test_the_fake_clock_wakes_sleepers_in_the_order_of_their_deadlines() -> None:
    clock, woken = FakeClock(), list[int]()

    async def sleeper(duration_ms: int) -> None:
        await clock.sleep_ms(duration_ms)
        woken.append(duration_ms)

    tasks = [asyncio.ensure_future(sleeper(duration_ms)) for duration_ms in (300, 100, 200)]
    await clock.run_for_ms(1, step_ms=1)  # they start counting
    await clock.run_for_ms(250)
    assert woken == [100, 200]
    await clock.run_for_ms(50)
    assert woken == [100, 200, 300]
    await asyncio.gather(*tasks)


def test_a_stepping_wall_clock_does_not_move_the_boot_clock() -> None:
    clock = FakeClock(now_ms=1_000_000)
    clock.advance_ms(500)
    clock.step_wall_ms(-100_000)
    assert (clock.now_ms(), clock.boot_ms()) == (900_500, 500)


async def test_the_real_clock_moves_and_its_boot_clock_never_steps_back() -> None:
    clock = RealClock()
    before = clock.boot_ms()
    await clock.sleep_ms(5)
    assert clock.boot_ms() >= before + 4
    assert clock.now_ms() > 1_700_000_000_000


def test_chance_never_repeats_a_token_and_a_seed_repeats_them_all() -> None:
    real, one, two = SystemRandom(), SeededRandom(9), SeededRandom(9)
    assert len({real.token() for _ in range(1_000)}) == 1_000
    assert [one.token() for _ in range(5)] == [two.token() for _ in range(5)]
    assert all(80 <= real.jitter(100) <= 120 for _ in range(100))


def test_backoff_doubles_up_to_its_cap() -> None:
    random = SeededRandom(1)
    pauses = [backoff_ms(attempt, base_ms=10, max_ms=1_000, random=random) for attempt in range(100)]
    assert 8 <= pauses[0] <= 12
    assert 800 <= pauses[-1] <= 1_200


async def test_work_beside_a_body_ends_with_it_and_its_failure_ends_the_body() -> None:
    ended = []

    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    async def fail() -> None:
        raise errors.ClosedError("it")

    async with background_tasks(forever()):
        await FakeClock().run_for_ms(1)  # let the work start
    assert ended == [True]
    with pytest.raises(errors.ClosedError):
        async with background_tasks(forever(), fail()):
            await asyncio.Event().wait()
    assert ended == [True, True]


async def test_many_rings_before_a_wait_are_one_ring() -> None:
    notify, clock = Notify(), FakeClock()
    notify.notify()
    notify.notify()
    assert await notify.wait_ms(clock, 0)
    waiting = asyncio.ensure_future(notify.wait_ms(clock, 100))
    await clock.run_for_ms(200)
    assert await waiting is False
