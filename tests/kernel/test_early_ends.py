"""The planner ends a dead agent's session on the reports of two others: in the store, under a fake clock."""

import msgspec
import pytest
from tests.support.kernel_cluster import KernelCluster, SimulatedAgent

from holdfast.contracts.store import Delete, Entry, Put
from holdfast.kernel.early_ends import EarlyEndRecord, SuspicionRecord
from holdfast.kernel.keys import PLANNER, early_end_key, holder_key, member_key, suspicion_key
from holdfast.kernel.lease import read_holder

TTL_MS = 30_000


class Trio:
    """Three agents, one of which plans and has done so for longer than a TTL."""

    def __init__(self, world: KernelCluster) -> None:
        self.world = world
        self.planner: SimulatedAgent
        self.other: SimulatedAgent
        self.dead: SimulatedAgent

    async def begin(self, *, settled: bool = True) -> "Trio":
        world = self.world
        await world.workload("orders", 6)
        agents = world.start("agent-1", "agent-2", "agent-3")
        await world.run_until(lambda: all(len(agent.owns()) == 2 for agent in agents))
        entry = await world.store.get(holder_key(PLANNER))
        assert entry is not None
        planner = read_holder(entry).holder
        self.planner = world.agents[planner]
        self.dead, self.other = (agent for agent in agents if agent.name != planner)
        world.movable.add(self.dead.name)
        if settled:
            await world.clock.run_for_ms(TTL_MS, step_ms=1_000)
        return self

    def die(self) -> None:
        """Cut off from the store: its session lives on there, for a TTL."""
        self.dead.store.reachable = False

    async def report(
        self, observer: SimulatedAgent, *, session: str = "", ago_ms: int = 100, of: SimulatedAgent | None = None
    ) -> None:
        suspect = of or self.dead
        assert observer.session is not None
        assert suspect.session is not None
        record = SuspicionRecord(session=session or suspect.session.id, reset_ago_ms=ago_ms, refused_ago_ms=ago_ms - 50)
        put = Put(suspicion_key(suspect.name, observer.name), msgspec.json.encode(record), observer.session.id)
        await self.world.store.commit(apply=[put])

    async def is_member(self) -> bool:
        return await self.world.store.get(member_key("agent", self.dead.name)) is not None


@pytest.fixture
async def trio(world: KernelCluster) -> Trio:
    return await Trio(world).begin()


async def test_two_reports_end_a_session_and_its_leases_move_long_before_the_ttl(trio: Trio) -> None:
    trio.die()
    died_at_ms = trio.world.clock.boot_ms()
    await trio.report(trio.planner)
    await trio.report(trio.other)
    survivors = [trio.planner, trio.other]
    await trio.world.run_until(lambda: sum(len(agent.owns()) for agent in survivors) == 6)
    assert trio.world.clock.boot_ms() - died_at_ms < 2_000
    assert trio.planner.sessions_ended_early == 1
    entry = await trio.world.store.get(early_end_key(trio.dead.name))
    assert entry is not None
    assert msgspec.json.decode(entry.value, type=EarlyEndRecord).process == f"process-{trio.dead.name}"


async def test_one_report_ends_nothing(trio: Trio) -> None:
    await trio.report(trio.other)
    await trio.world.run_ms(5_000)
    assert await trio.is_member()


async def test_reports_of_another_session_or_too_old_end_nothing(trio: Trio) -> None:
    await trio.report(trio.planner)
    await trio.report(trio.other, session="an earlier one")
    await trio.world.run_ms(200)
    await trio.report(trio.other, ago_ms=1_200)
    await trio.world.run_ms(5_000)
    assert await trio.is_member()


async def test_a_report_that_was_withdrawn_does_not_count(trio: Trio) -> None:
    await trio.report(trio.planner)
    await trio.world.store.commit(apply=[Delete(suspicion_key(trio.dead.name, trio.planner.name))])
    await trio.report(trio.other)
    await trio.world.run_ms(5_000)
    assert await trio.is_member()


async def test_a_report_that_is_withdrawn_between_the_decision_and_its_commit_does_not_count(
    trio: Trio, monkeypatch: pytest.MonkeyPatch
) -> None:
    get, looked = trio.planner.store.get, []

    async def withdraw_first(key: str) -> Entry | None:
        if key == member_key("agent", trio.dead.name):
            looked.append(key)
            await trio.world.store.commit(apply=[Delete(suspicion_key(trio.dead.name, trio.other.name))])
        return await get(key)

    monkeypatch.setattr(trio.planner.store, "get", withdraw_first)
    await trio.report(trio.planner)
    await trio.report(trio.other)
    await trio.world.run_until(lambda: bool(looked))
    await trio.world.run_ms(5_000)
    assert await trio.is_member()
    assert trio.planner.sessions_ended_early == 0


async def test_an_agent_of_which_nothing_could_move_is_left_to_its_ttl(trio: Trio) -> None:
    trio.world.movable.clear()
    await trio.report(trio.planner)
    await trio.report(trio.other)
    await trio.world.run_ms(5_000)
    assert await trio.is_member()


async def test_the_planners_own_death_is_ended_by_another_agent_that_plans_at_once(trio: Trio) -> None:
    world, died = trio.world, trio.planner
    world.movable.add(died.name)
    before = await world.store.get(holder_key(PLANNER))
    assert before is not None
    died.store.reachable = False
    died_at_ms = world.clock.boot_ms()
    survivors = [trio.dead, trio.other]
    for observer in survivors:
        await trio.report(observer, of=died)
    await world.run_until(lambda: sum(len(agent.owns()) for agent in survivors) == 6)
    assert world.clock.boot_ms() - died_at_ms < 1_000
    assert sum(agent.sessions_ended_early for agent in survivors) == 1, "of two that may, one does"
    after = await world.store.get(holder_key(PLANNER))
    assert after is not None
    assert read_holder(after).holder in {agent.name for agent in survivors}
    assert read_holder(after).epoch > read_holder(before).epoch


async def test_a_planner_that_is_replaced_though_it_lives_writes_no_plan_any_more(trio: Trio) -> None:
    world, former = trio.world, trio.planner
    world.movable.add(former.name)
    for observer in (trio.dead, trio.other):
        await trio.report(observer, of=former)
    await world.run_until(lambda: trio.dead.sessions_ended_early + trio.other.sessions_ended_early == 1)
    assert former.sessions_ended_early == 0, "whoever decides is alive, and does not end its own session"
    planner = await world.store.get(holder_key(PLANNER))
    assert planner is not None
    assert read_holder(planner).holder != former.name
    await world.workload("audit", 3)
    await world.run_until(lambda: sum(r.startswith("partition/audit/") for r in world.owners()) == 3)
    assert not [resource for resource in former.owns() if resource.startswith("partition/audit/")]
    await world.run_until(lambda: former.task.done(), within_ms=2 * TTL_MS)  # its next keep-alive shows it


async def test_one_report_of_two_survivors_does_not_replace_the_planner(trio: Trio) -> None:
    trio.world.movable.add(trio.planner.name)
    await trio.report(trio.other, of=trio.planner)
    await trio.world.run_ms(5_000)
    assert trio.other.sessions_ended_early == 0
    assert trio.planner.session is not None
    planner = await trio.world.store.get(holder_key(PLANNER))
    assert planner is not None
    assert planner.session == trio.planner.session.id


async def test_who_is_being_ended_itself_does_not_replace_the_planner(
    trio: Trio, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, planner, others = trio.world, trio.planner, [trio.dead, trio.other]
    world.movable.add(planner.name)
    looked: list[str] = []

    def ended_meanwhile(agent: SimulatedAgent) -> None:
        get = agent.store.get

        async def get_late(key: str) -> Entry | None:
            if key == member_key("agent", planner.name):
                looked.append(agent.name)
                record = EarlyEndRecord(session="s", process="p", ended_at_ms=0)
                await world.store.commit(apply=[Put(early_end_key(agent.name), msgspec.json.encode(record))])
            return await get(key)

        monkeypatch.setattr(agent.store, "get", get_late)

    for agent in others:
        ended_meanwhile(agent)
        await trio.report(agent, of=planner)
    await world.run_until(lambda: len(looked) == 2)
    await world.run_ms(3_000)
    assert trio.dead.sessions_ended_early == trio.other.sessions_ended_early == 0


async def test_a_new_planner_ends_nothing(world: KernelCluster) -> None:
    trio = await Trio(world).begin(settled=False)
    await trio.report(trio.planner)
    await trio.report(trio.other)
    await trio.world.run_ms(5_000)
    assert await trio.is_member()


async def test_an_agent_that_comes_back_without_a_restart_was_ended_wrongly_and_is_left_alone(trio: Trio) -> None:
    world = trio.world
    await trio.report(trio.planner)
    await trio.report(trio.other)
    await world.run_until(lambda: trio.planner.sessions_ended_early == 1)
    await world.run_until(lambda: trio.dead.task.done(), within_ms=2 * TTL_MS)  # its next keep-alive shows it
    (trio.dead,) = world.start(trio.dead.name)  # the same process, with another session
    await world.run_until(lambda: trio.planner.sessions_ended_wrongly == 1)
    await world.clock.run_for_ms(2 * 60_000, step_ms=4_000)  # past every other limit
    assert await trio.is_member()
    await trio.report(trio.planner)
    await trio.report(trio.other)
    await world.run_ms(5_000)
    assert await trio.is_member(), "for ten minutes"
    assert trio.planner.sessions_ended_wrongly == 1
    await world.clock.run_for_ms(10 * 60_000, step_ms=4_000)
    trio.die()
    await world.run_ms(1_000)  # its last sign of life is older than what is reported
    await trio.report(trio.planner)
    await trio.report(trio.other)
    await world.run_until(lambda: trio.planner.sessions_ended_early == 2)


async def test_without_the_store_nothing_is_ended(trio: Trio) -> None:
    await trio.report(trio.other)
    trio.planner.store.reachable = False
    await trio.report(trio.planner)
    await trio.world.run_ms(3_000)
    assert await trio.is_member()
    assert trio.planner.sessions_ended_early == 0
