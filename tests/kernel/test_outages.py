"""Only the end of a session ends a session: an outage that is shorter changes nothing (docs/safety.md, rule 21)."""

from collections.abc import AsyncIterator

import pytest
from tests.support.kernel_cluster import KernelCluster, SimulatedAgent
from tests.support.waiting import until_in_fake_time

from holdfast.contracts.store import Change, Changed, Delete, Entry, Put, Scan
from holdfast.kernel.keys import PLANNER, holder_key
from holdfast.kernel.lease import read_holder
from holdfast.kernel.mirror import Mirror, open_mirror
from holdfast.stores.memory import MemoryStore
from holdfast.testing.faulty_store import FaultyStore
from holdfast.vocabulary.clock import FakeClock
from holdfast.vocabulary.random import SeededRandom
from holdfast.vocabulary.tasks import Notify

OUTAGE_MS = 16_000  # a session of 30 s that was renewed 10 s ago survives it; a commit is given up after 10 s


def cut_off(agent: SimulatedAgent, how: str) -> None:
    if how == "unreachable":
        agent.store.reachable = False
    else:
        agent.store.answering = False


def reconnect(agent: SimulatedAgent) -> None:
    agent.store.reachable = agent.store.answering = True


@pytest.mark.slow
@pytest.mark.parametrize("how", ["unreachable", "answers lost"])
@pytest.mark.parametrize("resync", [False, True], ids=["watches go on", "watches resync"])
async def test_an_outage_that_the_sessions_survive_costs_no_leadership_and_no_epoch(
    world: KernelCluster, how: str, resync: bool
) -> None:
    await world.workload("orders", 6)
    agents = world.start("agent-1", "agent-2", "agent-3")
    await world.run_until(lambda: all(len(agent.owns()) == 2 for agent in agents))
    sessions = [agent.session for agent in agents]
    led = [dict(agent.serving.open_now) for agent in agents]
    for _ in range(5):  # so that one meets a heartbeat, one the planner, and one an agent that stands by
        for agent in agents:
            cut_off(agent, how)
            if resync:
                agent.store.resync_watches()
        await world.run_ms(OUTAGE_MS)
        for agent in agents:
            reconnect(agent)
        await world.run_ms(12_000)
    assert [agent.session for agent in agents] == sessions
    assert all(agent.executor is not None for agent in agents)
    assert [dict(agent.serving.open_now) for agent in agents] == led
    assert not any(what == "close" for agent in agents for what, _, _ in agent.serving.log)
    await world.workload("later", 3)
    await world.run_until(lambda: all(len(agent.owns()) == 3 for agent in agents))


async def test_a_planner_that_never_got_the_answer_to_its_acquisition_plans_all_the_same(world: KernelCluster) -> None:
    await world.workload("orders", 2)
    one, two = world.start("agent-1", "agent-2")
    await world.run_until(lambda: len(one.owns()) == len(two.owns()) == 1)
    found = await world.store.get(holder_key(PLANNER))
    assert found is not None
    planner, other = (one, two) if read_holder(found).holder == "agent-1" else (two, one)
    other.store.stop_answering_at(holder_key(PLANNER))
    await world.store.commit(apply=[Delete(holder_key(PLANNER))])
    await world.run_ms(OUTAGE_MS)
    reconnect(other)
    taken = await world.store.get(holder_key(PLANNER))
    assert taken is not None
    assert read_holder(taken).holder == other.name
    await world.workload("later", 2)
    await world.run_until(lambda: len(one.owns()) == len(two.owns()) == 2)
    assert planner.executor is not None
    held = await world.store.get(holder_key(PLANNER))
    assert held is not None
    # At another epoch: a plan whose answer was lost under the first one must not land after what was read under this one.
    assert read_holder(held).epoch > read_holder(taken).epoch


@pytest.fixture
async def store() -> AsyncIterator[tuple[FaultyStore, FakeClock]]:
    clock = FakeClock()
    async with MemoryStore.open(clock=clock, random=SeededRandom(1)) as opened:
        yield FaultyStore(opened, random=SeededRandom(2)), clock


def test_a_scan_that_is_older_than_what_a_mirror_shows_changes_nothing() -> None:
    mirror = Mirror("a/", lambda entry: entry.value, Notify())
    mirror.load(Scan(7, (Entry("a/1", b"new", 7),)))
    mirror.load(Scan(5, (Entry("a/1", b"old", 5),)))
    mirror.apply(Changed(6, (Change("a/1", None),)))
    assert (mirror.version, mirror.items) == (7, {"a/1": b"new"})


async def test_a_mirror_whose_watch_resyncs_during_an_outage_catches_up_when_it_is_over(
    store: tuple[FaultyStore, FakeClock],
) -> None:
    faulty, clock = store
    await faulty.commit(apply=[Put("a/1", b"1")])
    async with open_mirror(faulty, "a/", lambda entry: entry.value, clock=clock, random=SeededRandom(3)) as mirror:
        assert mirror.items == {"a/1": b"1"}
        faulty.reachable = False
        faulty.resync_watches()
        await clock.run_for_ms(60_000)
        assert mirror.items == {"a/1": b"1"}
        faulty.reachable = True
        await faulty.commit(apply=[Put("a/2", b"2")])
        await until_in_fake_time(clock, lambda: mirror.items == {"a/1": b"1", "a/2": b"2"})
