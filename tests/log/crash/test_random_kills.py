"""Processes killed at any moment, again and again, while they work."""

import signal

import pytest
from tests.support.log_crash.world import CrashWorld

from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SeededRandom

KILLS = 8
KINDS = (  # what else is wrong with the life that is killed
    ("--leftovers", "lost"),
    ("--leftovers", "real"),
    ("--leftovers", "lost", "--objects-fail", "0.3"),
    ("--leftovers", "lost", "--quota", "4"),  # it may be on its way out already
)


WHOLE = ("--whole", "--ttl-ms", "2000")  # short: one that dies young has not said which session it held


async def killed_again_and_again(world: CrashWorld, seed: int) -> None:
    random = SeededRandom(seed)
    for kill in range(KILLS):
        told = KINDS[(seed + kill) % len(KINDS)]
        process = world.begin("--quota", "0", "--seed", str(seed * 100 + kill), *told)
        await RealClock().sleep_ms(random.jitter(250, share=0.9))
        if process.exitcode is None:
            process.kill()
        assert world.finished(process) in (0, -signal.SIGKILL), world.tail()
    world.check()
    world.work_off("--quota", "2")
    world.check()


async def agents_killed(world: CrashWorld, seed: int, kills: int) -> None:
    """The real agent, killed some time after it began to serve; it is not waited for a whole TTL each time."""
    random = SeededRandom(seed)
    for kill in range(kills):
        served = len(world.history().said("opened"))
        process = world.begin(*WHOLE, "--quota", "0", *(("--objects-fail", "0.3") if kill % 2 else ()))
        await world.until_history(lambda history, served=served: len(history.said("opened")) > served)  # type: ignore[misc]
        await RealClock().sleep_ms(random.jitter(250, share=0.9))
        process.kill()
        assert world.finished(process) == -signal.SIGKILL, world.tail()
    world.check(*WHOLE)
    world.work_off(*WHOLE, "--quota", "2")
    world.check(*WHOLE)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))])
async def test_killed_at_random(seed: int, world: CrashWorld) -> None:
    await killed_again_and_again(world, seed)


async def test_an_agent_killed_at_random(world: CrashWorld) -> None:
    await agents_killed(world, 7, kills=4)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 110))
async def test_an_agent_killed_at_random_a_hundred_times(seed: int, world: CrashWorld) -> None:
    await agents_killed(world, seed, kills=10)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 125))
async def test_killed_at_random_two_hundred_times(seed: int, world: CrashWorld) -> None:
    await killed_again_and_again(world, seed)
