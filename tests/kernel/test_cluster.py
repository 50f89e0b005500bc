"""Planner and followers together: agents join, die, hang and leave, and every partition has one owner."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import pytest
from tests.support.kernel_cluster import KernelCluster

from holdfast.contracts.store import Changed, Delete, Resync
from holdfast.kernel import planner
from holdfast.kernel.keys import MEMBERS, PLANNER, WORKLOADS, member_key
from holdfast.kernel.lease import Held, acquire
from holdfast.kernel.membership import MembershipSettings, list_members
from holdfast.kernel.planner import PlannerSettings


def spread(world: KernelCluster) -> list[int]:
    counts = Counter(names[0] for names in world.owners().values())
    return sorted(counts.values())


async def test_agents_share_the_partitions_and_each_has_one_owner(world: KernelCluster) -> None:
    await world.workload("orders", 6)
    world.start("agent-1", "agent-2", "agent-3")
    await world.run_until(lambda: spread(world) == [2, 2, 2])
    assert all(len(names) == 1 for names in world.owners().values())


async def test_leases_that_are_planned_together_are_acquired_in_few_commits(world: KernelCluster) -> None:
    (ann,) = world.start("ann")
    await world.run_until(lambda: ann.executor is not None)
    commits = ann.store.calls.get("commit", 0)
    await world.workload("orders", 100)
    await world.run_until(lambda: len(ann.owns()) == 100)
    assert ann.store.calls["commit"] - commits < 20


async def test_a_planner_writes_and_encodes_only_topics_whose_placement_changes(
    world: KernelCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.start("ann", "bob")
    for number in range(5):
        await world.workload(f"topic-{number}", 4)
    await world.run_until(lambda: len(world.owners()) == 20)
    real, encoded = planner.encode_placements, []

    def counted(placements: Iterable[tuple[str, ...]]) -> bytes:
        encoded.append(placements)
        return real(placements)

    monkeypatch.setattr(planner, "encode_placements", counted)
    await world.workload("another", 4)
    await world.run_until(lambda: len(world.owners()) == 24)
    await world.run_ms(60_000)  # two ticks
    assert len(encoded) == 1


async def test_what_is_new_is_placed_at_once_and_only_what_moves_waits(world: KernelCluster) -> None:
    (one,) = world.start("agent-1")
    await world.run_until(lambda: one.executor is not None)
    began_ms = world.clock.boot_ms()
    await world.workload("orders", 6)
    await world.run_until(lambda: len(one.owns()) == 6)
    assert world.clock.boot_ms() - began_ms < PlannerSettings().settle_ms
    (two,) = world.start("agent-2")
    await world.run_until(lambda: two.executor is not None)
    began_ms = world.clock.boot_ms()
    await world.run_until(lambda: bool(two.owns()))
    assert world.clock.boot_ms() - began_ms >= PlannerSettings().settle_ms - 100


async def test_a_planner_that_is_behind_takes_no_topic_for_deleted(
    world: KernelCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    (one,) = world.start("agent-1")
    await world.run_until(lambda: one.executor is not None)
    (two,) = world.start("agent-2")
    watch = two.store.watch

    @asynccontextmanager
    async def behind(prefix: str, *, from_version: int) -> AsyncIterator[AsyncIterator[Changed | Resync]]:
        async with watch(prefix, from_version=from_version) as changes:
            yield silent() if prefix == WORKLOADS else changes

    monkeypatch.setattr(two.store, "watch", behind)
    await world.workload("before", 2)
    await world.run_until(lambda: spread(world) == [1, 1])
    await world.workload("orders", 4)
    await world.run_until(lambda: spread(world) == [3, 3])
    served = two.owns()
    await one.stop()
    await world.run_until(lambda: len(two.owns()) == 6)
    assert not [resource for what, resource, _ in two.serving.log if what == "close" and resource in served]


async def silent() -> AsyncIterator[Changed | Resync]:
    """A watch that is behind, for ever."""
    await asyncio.Event().wait()
    yield Resync(0)


async def test_a_joining_agent_gets_its_share_by_transfer_without_a_gap(world: KernelCluster) -> None:
    await world.workload("orders", 12)
    one, two = world.start("agent-1", "agent-2")
    await world.run_until(lambda: spread(world) == [6, 6])
    before = {resource: names[0] for resource, names in world.owners().items()}
    (three,) = world.start("agent-3")
    await world.run_until(lambda: spread(world) == [4, 4, 4])
    moved = {resource for resource, names in world.owners().items() if before[resource] != names[0]}
    assert moved == three.owns()
    for resource in moved:
        giver = one if before[resource] == "agent-1" else two
        assert ("drain", resource, 1) in giver.serving.log
        assert three.serving.open_now[resource] == 2  # the lease went straight from epoch 1 to 2


async def test_a_cut_off_agent_stops_itself_before_its_partitions_move(world: KernelCluster) -> None:
    await world.workload("orders", 8)
    one, two = world.start("agent-1", "agent-2")
    await world.run_until(lambda: spread(world) == [4, 4])
    lost, kept = one.owns(), two.owns()
    one.store.reachable = False
    while two.owns() == kept:
        await world.run_ms(100)
        assert not (one.owns() & two.owns())
    assert one.owns() == set()
    await world.run_until(lambda: two.owns() == lost | kept)
    assert {two.serving.open_now[resource] for resource in lost} == {2}
    assert {two.serving.open_now[resource] for resource in kept} == {1}


async def test_when_one_of_three_dies_exactly_its_partitions_move(world: KernelCluster) -> None:
    await world.workload("orders", 30)
    one, *others = world.start("agent-1", "agent-2", "agent-3")
    await world.run_until(lambda: spread(world) == [10, 10, 10])
    before = {agent.name: agent.owns() for agent in others}
    orphans = one.owns()
    one.store.reachable = False
    await world.run_until(lambda: spread(world) == [15, 15] and not one.owns())
    for agent in others:
        assert before[agent.name] <= agent.owns()
        assert agent.owns() - before[agent.name] <= orphans


async def test_an_agent_that_leaves_gracefully_hands_everything_over(world: KernelCluster) -> None:
    await world.workload("orders", 6)
    one, two = world.start("agent-1", "agent-2")
    await world.run_until(lambda: spread(world) == [3, 3])
    await world.store.commit(apply=[Delete(member_key("agent", "agent-1"))])  # no longer wanted, session still alive
    await world.run_until(lambda: len(two.owns()) == 6)
    assert [step for step, *_ in one.serving.log].count("drain") == 3
    assert one.owns() == set()


async def test_a_target_that_dies_while_the_source_drains_leaves_the_source_in_charge(world: KernelCluster) -> None:
    await world.workload("orders", 4)
    (one,) = world.start("agent-1")
    await world.run_until(lambda: spread(world) == [4])
    one.serving.may_drain.clear()
    (two,) = world.start("agent-2")
    await world.run_until(lambda: any(step == "drain" for step, *_ in one.serving.log))
    two.store.reachable = False
    await world.run_until(lambda: two.session is not None and not two.session.alive())
    await world.run_ms(5_000)
    one.serving.may_drain.set()
    await world.run_until(lambda: any(step == "resume" for step, *_ in one.serving.log))
    await world.run_until(lambda: len(one.owns()) == 4)
    assert set(one.serving.open_now.values()) == {1}


async def test_the_planner_role_passes_on_when_the_planner_dies(world: KernelCluster) -> None:
    await world.workload("orders", 4)
    agents = world.start("agent-1", "agent-2")
    await world.run_until(lambda: spread(world) == [2, 2])
    planner = await acquire(world.store, PLANNER, holder="x", session="none", clock=world.clock, random=world.random)
    assert isinstance(planner, Held)
    dead = world.agents[planner.holder]
    (other,) = [agent for agent in agents if agent is not dead]
    dead.store.reachable = False
    await world.run_until(lambda: len(other.owns()) == 4)
    await world.workload("more", 2)
    await world.run_until(lambda: len(other.owns()) == 6)


async def test_a_deleted_workload_is_given_up(world: KernelCluster) -> None:
    await world.workload("orders", 3)
    (one,) = world.start("agent-1")
    await world.run_until(lambda: len(one.owns()) == 3)
    await world.store.commit(apply=[Delete("workload/orders")])
    await world.run_until(lambda: not one.owns())
    assert [step for step, *_ in one.serving.log].count("drain") == 3


async def test_a_store_that_is_away_for_less_than_the_ttl_changes_nothing(world: KernelCluster) -> None:
    await world.workload("orders", 4)
    agents = world.start("agent-1", "agent-2")
    await world.run_until(lambda: spread(world) == [2, 2])
    before = world.owners()
    for agent in agents:
        agent.store.reachable = False
    await world.run_ms(12_000)
    for agent in agents:
        agent.store.reachable = True
    await world.run_ms(60_000)
    assert world.owners() == before
    assert all(epoch == 1 for agent in agents for epoch in agent.serving.open_now.values())


async def test_a_follower_that_hangs_loses_its_session_although_its_process_lives(world: KernelCluster) -> None:
    await world.workload("orders", 2)
    (one,) = world.start("agent-1")
    await world.run_until(lambda: len(one.owns()) == 2)
    assert one.executor is not None
    one.executor._session.report_progress = lambda: None  # type: ignore[method-assign] # as if the loop never came round
    await world.run_until(lambda: not one.owns())


async def test_listings_show_an_agent_for_a_minute_after_it_was_last_seen(world: KernelCluster) -> None:
    one, two = world.start("agent-1", "agent-2")
    await world.run_ms(1_000)
    settings = MembershipSettings()
    shown = await list_members(world.store, "agent", now_ms=world.clock.now_ms(), settings=settings)
    assert [(s.member.id, s.live, s.member.node) for s in shown] == [("agent-1", True, 1), ("agent-2", True, 2)]
    one.store.reachable = False
    await world.run_ms(45_000)
    shown = await list_members(world.store, "agent", now_ms=world.clock.now_ms(), settings=settings)
    assert [(s.member.id, s.live) for s in shown] == [("agent-1", False), ("agent-2", True)]
    await world.run_ms(40_000)
    shown = await list_members(world.store, "agent", now_ms=world.clock.now_ms(), settings=settings)
    assert [s.member.id for s in shown] == ["agent-2"]
    assert (await world.store.scan(MEMBERS, MEMBERS + "~")).entries[0].key.endswith("agent-2")
    assert not two.task.done()


async def test_an_agent_that_restarts_waits_for_its_former_life_and_keeps_its_node_id(world: KernelCluster) -> None:
    (one,) = world.start("agent-1")
    await world.run_ms(1_000)
    one.store.reachable = False  # killed: its session lingers
    (again,) = world.start("agent-1")
    await world.run_ms(5_000)
    assert again.executor is None
    await world.run_until(lambda: again.executor is not None)
    shown = await list_members(world.store, "agent", now_ms=world.clock.now_ms(), settings=MembershipSettings())
    assert [(s.member.id, s.live, s.member.node) for s in shown] == [("agent-1", True, 1)]
    await one.stop()


@pytest.mark.slow
async def test_600_partitions_on_three_agents_then_four_then_three(world: KernelCluster) -> None:
    await world.workload("orders", 600)
    world.start("agent-1", "agent-2", "agent-3")
    await world.run_until(lambda: spread(world) == [200, 200, 200])
    before = {resource: names[0] for resource, names in world.owners().items()}
    (four,) = world.start("agent-4")
    await world.run_until(lambda: spread(world) == [150, 150, 150, 150])
    moved = {resource for resource, names in world.owners().items() if names != [before[resource]]}
    assert len(moved) == 150
    assert moved == four.owns()
    four.store.reachable = False
    await world.run_until(lambda: spread(world) == [200, 200, 200] and not four.owns())
    epochs = Counter(epoch for agent in world.agents.values() for epoch in agent.serving.open_now.values())
    assert epochs == {1: 450, 3: 150}
