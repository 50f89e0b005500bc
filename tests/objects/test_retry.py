"""Retries: the pauses between attempts, the deadline, and the error then. On a fake clock."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

import pytest

from holdfast.contracts.objects import AlreadyExists, ObjectInfo, Stored
from holdfast.objects.errors import RequestRefusedError, ThrottledError
from holdfast.objects.memory import MemoryObjects
from holdfast.objects.retry import RetryingObjects, RetrySettings, retry_until_deadline
from holdfast.testing.faulty_objects import FaultyObjects
from holdfast.vocabulary.clock import FakeClock, RealClock
from holdfast.vocabulary.errors import InvalidError, UnavailableError
from holdfast.vocabulary.random import SeededRandom, SystemRandom

T = TypeVar("T")


class SteadyChance(SeededRandom):
    def jitter(self, value: float, *, share: float = 0.2) -> float:
        return value


class Attempts:
    """Fails as scripted, then succeeds; records the time of each attempt."""

    def __init__(self, clock: FakeClock, *failures: UnavailableError) -> None:
        self._clock, self._failures = clock, list(failures)
        self._started_ms = 0
        self.at_ms: list[int] = []

    async def __call__(self) -> str:
        now_ms = self._clock.boot_ms()
        self._started_ms = now_ms if not self.at_ms else self._started_ms
        self.at_ms.append(now_ms - self._started_ms)
        if self._failures:
            raise self._failures.pop(0)
        return "done"


async def run(clock: FakeClock, work: Awaitable[T]) -> T:
    task = asyncio.ensure_future(work)
    while not task.done():
        await clock.run_for_ms(100, step_ms=10)
    return await task


def trying(clock: FakeClock, attempt: Callable[[], Awaitable[T]], **settings: int) -> Awaitable[T]:
    return retry_until_deadline("get", attempt, clock=clock, random=SteadyChance(1), settings=RetrySettings(**settings))


async def test_pauses_double_up_to_a_limit() -> None:
    clock = FakeClock()
    attempts = Attempts(clock, *[UnavailableError("s3", "broke")] * 6)
    assert await run(clock, trying(clock, attempts, pause_ms=100, pause_ms_max=500)) == "done"
    assert attempts.at_ms == [0, 100, 300, 700, 1_200, 1_700, 2_200]


async def test_pauses_are_jittered() -> None:
    clock = FakeClock()
    pauses = set()
    for seed in range(10):
        attempts = Attempts(clock, UnavailableError("s3", "broke"))
        settings = RetrySettings(pause_ms=1_000)
        await run(
            clock, retry_until_deadline("get", attempts, clock=clock, random=SeededRandom(seed), settings=settings)
        )
        pauses.add(attempts.at_ms[1] - attempts.at_ms[0])
    assert len(pauses) > 5
    assert all(800 <= pause <= 1_210 for pause in pauses)


async def test_throttling_makes_pauses_longer() -> None:
    clock = FakeClock()
    attempts = Attempts(clock, ThrottledError("s3", "503"))
    await run(clock, trying(clock, attempts, pause_ms=100))
    assert attempts.at_ms == [0, 400]


async def test_past_the_deadline_the_error_has_the_attempts_and_the_last_cause() -> None:
    clock = FakeClock()
    attempts = Attempts(clock, *[UnavailableError("s3://bucket", "503 Slow Down")] * 100)
    with pytest.raises(UnavailableError) as failed:
        await run(clock, trying(clock, attempts, pause_ms=100, pause_ms_max=1_000, deadline_ms=5_000))
    assert failed.value.service == "s3://bucket"
    assert failed.value.reason == "get failed 8 times in 4500 ms, last error: 503 Slow Down"
    assert attempts.at_ms[-1] <= 5_000


async def test_a_refused_request_is_not_retried() -> None:
    clock = FakeClock()
    attempts = Attempts(clock, RequestRefusedError("s3", "403"))
    with pytest.raises(RequestRefusedError, match="403"):
        await run(clock, trying(clock, attempts))
    assert len(attempts.at_ms) == 1


async def test_invalid_input_is_not_retried() -> None:
    clock = FakeClock()
    async with MemoryObjects.open(clock=clock) as engine:
        faulty = FaultyObjects(engine, clock=clock, random=SeededRandom(1))
        objects = RetryingObjects(faulty, clock=clock, random=SeededRandom(1), settings=RetrySettings())
        with pytest.raises(InvalidError):
            await objects.get("/bad")
        assert faulty.calls == {"get": 1}


async def test_an_attempt_that_hangs_ends_with_the_deadline() -> None:
    async def hang() -> None:
        await asyncio.get_running_loop().create_future()

    settings = RetrySettings(deadline_ms=100)
    with pytest.raises(UnavailableError, match="no response within"):
        await retry_until_deadline("get", hang, clock=RealClock(), random=SystemRandom(), settings=settings)


async def test_an_attempt_cut_short_does_not_hide_why_the_others_failed() -> None:
    failures = [UnavailableError("s3", "503 Slow Down")]

    async def attempt() -> None:
        if failures:
            raise failures.pop()
        await asyncio.get_running_loop().create_future()

    clock = FakeClock()  # the pause takes no real time, so the second attempt is made in any case
    with pytest.raises(UnavailableError, match=r"failed 2 times .* last error: 503 Slow Down"):
        await run(clock, trying(clock, attempt, deadline_ms=100, pause_ms=10))


async def test_cancelling_ends_the_pause() -> None:
    clock = FakeClock()
    attempts = Attempts(clock, *[UnavailableError("s3", "broke")] * 9)
    task = asyncio.ensure_future(trying(clock, attempts))
    await clock.run_for_ms(120)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    tried = len(attempts.at_ms)
    await clock.run_for_ms(10_000)
    assert len(attempts.at_ms) == tried


class BreaksOff(MemoryObjects):
    """Every listing ends after seven keys, as a connection may."""

    listings = 0

    async def list(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectInfo]:
        self.listings += 1
        seen = 0
        async for info in super().list(prefix, after=after):
            if seen == 7:
                raise UnavailableError("memory", "broke off")
            seen += 1
            yield info


async def test_a_listing_resumes_where_it_failed() -> None:
    clock = FakeClock()
    engine = BreaksOff(clock=clock)
    for n in range(40):
        await engine.put(f"k/{n:02}", [b"x"])
    objects = RetryingObjects(engine, clock=clock, random=SeededRandom(1), settings=RetrySettings())

    async def keys() -> list[str]:
        return [info.key async for info in objects.list("k/", after="k/04")]

    assert await run(clock, keys()) == [f"k/{n:02}" for n in range(5, 40)]
    assert engine.listings == 5


@pytest.mark.parametrize("seed", range(5))
async def test_a_third_of_failures_and_lost_answers_lose_nothing(seed: int) -> None:
    clock, random = FakeClock(), SeededRandom(seed)
    async with MemoryObjects.open(clock=clock) as engine:
        faulty = FaultyObjects(engine, clock=clock, random=random)
        faulty.fail_share, faulty.lose_put_share, faulty.delay_ms = 0.3, 0.2, 20
        objects = RetryingObjects(faulty, clock=clock, random=random, settings=RetrySettings())

        async def use() -> None:
            outcomes = await asyncio.gather(*(objects.put(f"k/{n:03}", [b"%d" % n]) for n in range(200)))
            assert {type(outcome) for outcome in outcomes} == {Stored, AlreadyExists}
            assert [info.key async for info in objects.list("k/")] == [f"k/{n:03}" for n in range(200)]
            found = await asyncio.gather(*(objects.get(f"k/{n:03}") for n in range(200)))
            assert found == [b"%d" % n for n in range(200)]

        await run(clock, use())
        assert faulty.faults > 100


async def test_an_outage_of_a_minute_is_survived_with_a_long_deadline() -> None:
    clock = FakeClock()
    async with MemoryObjects.open(clock=clock) as engine:
        faulty = FaultyObjects(engine, clock=clock, random=SeededRandom(1))
        settings = RetrySettings(deadline_ms=120_000)
        objects = RetryingObjects(faulty, clock=clock, random=SeededRandom(2), settings=settings)
        faulty.reachable = False
        putting = asyncio.ensure_future(objects.put("k", [b"body"]))
        await clock.run_for_ms(60_000)
        assert not putting.done()
        assert faulty.calls["put"] < 30  # it does not hammer
        faulty.reachable = True
        await clock.run_for_ms(8_000)
        assert putting.done()
        assert await putting == Stored("k", 4)
