"""Deadlines and retention under a clock that moves when it is told to."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.support.group import join_request, refused_with
from tests.support.group_coordinators import Coordinator, CoordinatorWorld, held_back, one_of

from holdfast.contracts.validation import StoreLimits
from holdfast.groups.errors import GroupRefusal
from holdfast.groups.model import GroupState, JoinResult, LeaveRequest
from holdfast.groups.settings import GroupSettings
from holdfast.groups.timers import DeadlineQueue
from holdfast.stores.memory import MemoryStore
from holdfast.vocabulary.clock import FakeClock
from holdfast.vocabulary.random import SeededRandom

DAY_MS = 86_400_000
SETTINGS = GroupSettings(shards=1, initial_delay_ms=0, session_max_ms=60 * DAY_MS, sweep_ms=600_000)


class TimedWorld(CoordinatorWorld):
    """A world whose time passes by `pass_ms`."""

    def __init__(self) -> None:
        self.fake = FakeClock()
        store = MemoryStore(clock=self.fake, random=SeededRandom(3), limits=StoreLimits())
        super().__init__(store, clock=self.fake)

    async def coordinator(self, name: str = "ann", settings: GroupSettings = SETTINGS) -> Coordinator:
        made = await super().coordinator(name, settings)
        made.session.deadline_ms = 10**15
        return made

    async def pass_ms(self, duration_ms: int, *, step_ms: int = 1_000) -> None:
        await self.fake.run_for_ms(duration_ms, step_ms=step_ms)

    async def member(self, ann: Coordinator, group_id: str, **changes: object) -> JoinResult:
        task = asyncio.ensure_future(ann.member(group_id, **changes))
        await self.pass_ms(100, step_ms=10)
        return await task


@pytest.fixture
async def world() -> AsyncIterator[TimedWorld]:
    made = TimedWorld()
    yield made
    await made.end()


async def test_members_that_do_not_find_the_next_coordinator_are_removed(world: TimedWorld) -> None:
    ann = await world.coordinator("ann")
    await world.member(ann, "g", session_timeout_ms=10_000)
    await ann.stop()
    bob = await world.coordinator("bob")
    assert (await bob.service.describe("g")).state is GroupState.STABLE
    await world.pass_ms(9_000)
    assert bob.service.counters.members_expired == 0
    await world.pass_ms(3_000)
    assert bob.service.counters.members_expired == 1
    assert (await bob.service.describe("g")).state is GroupState.EMPTY


async def test_one_timer_serves_many_groups(world: TimedWorld) -> None:
    ann = await world.coordinator()
    members = {f"g{n}": await world.member(ann, f"g{n}", session_timeout_ms=10_000) for n in range(20)}
    for _ in range(5):
        await world.pass_ms(8_000)
        for group_id in ("g3", "g7"):
            await ann.service.heartbeat(group_id, member_id=members[group_id].member_id, generation=1)
    states = {each.id: each.state for each in await ann.service.list()}
    assert {group_id for group_id, state in states.items() if state is GroupState.STABLE} == {"g3", "g7"}
    assert ann.service.counters.members_expired == 18


async def test_offsets_outlive_the_last_member_by_the_retention(world: TimedWorld) -> None:
    ann = await world.coordinator()
    member = await world.member(ann, "g", session_timeout_ms=30 * DAY_MS)
    await ann.commit("g", {("orders", 0): 5}, member)
    await world.pass_ms(20 * DAY_MS, step_ms=DAY_MS // 2)
    assert await ann.committed("g") == {("orders", 0): 5}  # as long as it has a member that reads the topic
    await ann.service.leave("g", [LeaveRequest(member.member_id)])
    await world.pass_ms(7 * DAY_MS - 3_600_000, step_ms=600_000)
    assert await ann.committed("g") == {("orders", 0): 5}
    await world.pass_ms(2 * 3_600_000, step_ms=600_000)
    assert await ann.committed("g") == {}
    assert await ann.service.list() == []
    assert ann.service.counters.offsets_forgotten == 1
    bob = await world.coordinator("bob")
    assert await bob.service.list() == []


async def test_the_retention_goes_on_with_the_next_coordinator(world: TimedWorld) -> None:
    ann = await world.coordinator("ann")
    member = await world.member(ann, "g")
    await ann.commit("g", {("orders", 0): 5}, member)
    await ann.service.leave("g", [LeaveRequest(member.member_id)])
    await world.pass_ms(4 * DAY_MS, step_ms=3_600_000)
    bob = await world.coordinator("bob")
    await world.pass_ms(2 * DAY_MS, step_ms=3_600_000)
    assert await bob.committed("g") == {("orders", 0): 5}
    await world.pass_ms(1 * DAY_MS + 3_600_000, step_ms=3_600_000)
    assert await bob.committed("g") == {}


async def test_offsets_without_members_expire_by_their_commits(world: TimedWorld) -> None:
    ann = await world.coordinator()
    await ann.commit("g", {("orders", 0): 5, ("orders", 1): 5})
    await world.pass_ms(4 * DAY_MS, step_ms=3_600_000)
    await ann.commit("g", {("orders", 1): 6})
    await world.pass_ms(4 * DAY_MS, step_ms=3_600_000)
    assert await ann.committed("g") == {("orders", 1): 6}


async def test_offsets_of_unsubscribed_topics_expire_while_the_group_has_members(world: TimedWorld) -> None:
    ann = await world.coordinator()
    member = await world.member(ann, "g", session_timeout_ms=30 * DAY_MS, protocols=one_of("orders"))
    await ann.commit("g", {("orders", 0): 5, ("bills", 0): 6}, member)
    await world.pass_ms(8 * DAY_MS, step_ms=3_600_000)
    assert await ann.committed("g") == {("orders", 0): 5}


async def test_offsets_of_a_deleted_topic_expire_soon_also_if_it_is_created_again(world: TimedWorld) -> None:
    ann = await world.coordinator()
    await ann.commit("g", {("orders", 0): 5, ("orders", 1): 6, ("bills", 0): 7})
    world.topics["orders"] = "id-new"
    assert await ann.committed("g") == {("bills", 0): 7}  # an old offset means nothing in a new topic
    await ann.commit("g", {("orders", 1): 1})
    assert await ann.committed("g") == {("orders", 1): 1, ("bills", 0): 7}
    del world.topics["bills"]
    ann.handler.topics_changed()
    await world.pass_ms(2_000, step_ms=100)
    bob = await world.coordinator("bob")
    world.topics.clear()  # what is left does not depend on what Bob knows
    assert await bob.committed("g") == {("orders", 1): 1}


async def test_offsets_of_a_topic_unknown_to_this_process_are_kept(world: TimedWorld) -> None:
    ann = await world.coordinator()
    await ann.commit("g", {("brand-new", 0): 5})
    ann.handler.topics_changed()
    await world.pass_ms(2_000, step_ms=100)
    assert await ann.committed("g") == {("brand-new", 0): 5}


async def test_an_offset_being_committed_does_not_expire_with_the_old_one(world: TimedWorld) -> None:
    ann = await world.coordinator(settings=GroupSettings(shards=1, retention_ms=10_000, sweep_ms=1_000))
    await ann.commit("g", {("orders", 0): 5})
    with held_back(ann.store) as go:
        committing = [asyncio.ensure_future(ann.commit("g", {("orders", 0): offset})) for offset in (6, 7)]
        await world.pass_ms(9_999, step_ms=1_111)
        await world.pass_ms(5_000)
        go.set()
        await asyncio.gather(*committing)
    assert await ann.committed("g") == {("orders", 0): 7}


async def test_a_group_emptied_a_moment_ago_survives_the_deletion_of_a_topic(world: TimedWorld) -> None:
    ann = await world.coordinator()
    member = await world.member(ann, "g")
    await ann.service.leave("g", [LeaveRequest(member.member_id)])
    ann.handler.topics_changed()
    await world.pass_ms(60_000)
    assert [(each.id, each.state) for each in await ann.service.list()] == [("g", GroupState.EMPTY)]
    await world.pass_ms(1_400_000, step_ms=10_000)
    assert await ann.service.list() == []


async def test_an_assigned_id_leaves_nothing_behind(world: TimedWorld) -> None:
    ann = await world.coordinator()
    with refused_with(GroupRefusal.MEMBER_ID_REQUIRED):
        await ann.service.join("g", join_request(require_known_member_id=True))
    assert [each.id for each in await ann.service.list()] == ["g"]
    await world.pass_ms(11_000)
    assert await ann.service.list() == []


def test_a_timer_is_early_at_worst() -> None:
    timers = DeadlineQueue()
    assert timers.set("a", 100)
    assert not timers.set("a", 200)
    assert timers.set("a", 50)
    assert not timers.set("b", 70)
    assert not timers.set("c", None)
    assert timers.next_ms() == 50
    assert timers.due(60) == ["a"]
    assert timers.due(100) == ["b"]
    assert timers.next_ms() is None


async def test_a_joining_member_that_hangs_up_is_removed(world: TimedWorld) -> None:
    ann = await world.coordinator(settings=GroupSettings(shards=1, initial_delay_ms=300, session_min_ms=50))
    impatient = asyncio.ensure_future(ann.join("g", session_timeout_ms=50))
    patient = asyncio.ensure_future(ann.join("g"))
    await world.pass_ms(10, step_ms=10)
    assert ann.service.counters.joins == 2
    impatient.cancel()
    await world.pass_ms(1_000, step_ms=10)
    joined = await patient
    assert [each.id for each in joined.members] == [joined.member_id]
