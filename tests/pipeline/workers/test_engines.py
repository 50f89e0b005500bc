"""Several workers in one process on real stores under the real clock: scaling, takeover, and a store that goes away."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
from tests.support.worker_cluster import WorkerCluster
from tests.support.worker_process import brief

from holdfast.testing.harness import StoreHarness
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SystemRandom

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(params=["postgres", *(pytest.param(each, marks=pytest.mark.long) for each in ("sqlite", "etcd"))])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def world(harness: StoreHarness) -> AsyncIterator[WorkerCluster]:
    """Every worker has a client of its own, as a process would."""
    async with AsyncExitStack() as stack:
        made = WorkerCluster(await stack.enter_async_context(harness.client()), RealClock(), SystemRandom())
        made.settings = brief(max(3_000, harness.ttl_ms_min))
        made.new_client = lambda: stack.enter_async_context(harness.client())
        stack.push_async_callback(made.dismiss)
        yield made


def actors(world: WorkerCluster) -> set[str]:
    return {actor for [(actor, _)] in world.acting().values()}


async def test_scaling_one_three_one_over_three_workers(world: WorkerCluster) -> None:
    world.settings = brief(20_000)  # no session ends
    await world.pipeline("p", partitions=6)
    await world.hire_apart("ann", "bob", "cat")
    await world.run_until(lambda: len(world.acting()) == 6)
    [first] = (await world.holders("p")).values()
    await world.catalog.set_state("p", replicas=3)
    await world.run_until(lambda: len(actors(world)) == 3 and len(world.acting()) == 6)
    assert (await world.holders("p"))[0] == first
    await world.catalog.set_state("p", replicas=1)
    await world.run_until(lambda: actors(world) == {first} and len(world.acting()) == 6)
    assert (await world.epochs("p"))[0] == 1


async def test_a_crashed_workers_slot_and_partitions_are_taken_over_with_the_open_range(world: WorkerCluster) -> None:
    world.settings = brief(8_000)  # long enough for those who live, on a busy machine
    await world.pipeline("p", partitions=4)
    await world.hire_apart("ann", "bob")
    await world.run_until(lambda: len(world.acting()) == 4)
    [first] = (await world.holders("p")).values()
    intent = '{"end":10,"recipe":1,"start":0}'
    assert await world.registry("p").begin_range(2, "p.1.0", 1, intent)
    world.hired[first].crash()
    await world.run_until(lambda: first not in actors(world) and len(world.acting()) == 4)
    state = (await world.view("p")).partitions[2]
    assert (state.epoch, state.intent) == (3, intent)
    assert not await world.registry("p").update_checkpoint(2, "p.1.0", 10, 1)
    assert await world.registry("p").update_checkpoint(2, "p.1.0", 10, 3)


async def test_a_store_outage_past_the_ttl_stops_all_workers_and_they_resume(
    world: WorkerCluster, harness: StoreHarness
) -> None:
    await world.pipeline("p", partitions=4, replicas=2)
    await world.hire_apart("ann", "bob")
    await world.run_until(lambda: len(world.acting()) == 4 and len(actors(world)) == 2)
    before = await world.epochs("p")
    await harness.set_reachable(False)
    try:
        await world.run_until(lambda: not world.acting(), within_ms=world.settings.lease_ttl_ms + 1_000)
        await world.run_ms(2 * world.settings.lease_ttl_ms)
        assert world.acting() == {}
    finally:
        await harness.set_reachable(True)
    await world.run_until(lambda: len(world.acting()) == 4)
    assert all(epoch > before[number] for number, epoch in (await world.epochs("p")).items())
    assert [hired.stage.behaviour.lives for hired in world.hired.values()] == [1, 1]
