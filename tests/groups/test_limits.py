"""What clients can make a coordinator hold: ids of groups, assigned member ids, groups that are not in the store."""

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio
from tests.support.group import GroupHarness, protocols, refused_with
from tests.support.group_coordinators import FAST_SETTINGS, Coordinator, CoordinatorWorld, held_back

from holdfast.contracts.store import Store
from holdfast.groups.errors import GroupRefusal, GroupRefusedError
from holdfast.groups.model import GroupState, LeaveRequest
from holdfast.groups.settings import GroupSettings
from holdfast.groups.timers import DeadlineQueue
from holdfast.vocabulary.errors import UnavailableError
from holdfast.vocabulary.settings import KIB


@pytest_asyncio.fixture
async def world(store: Store) -> AsyncIterator[CoordinatorWorld]:
    made = CoordinatorWorld(store)
    yield made
    await made.end()


async def new_member(ann: Coordinator, group_id: str) -> str:
    """The id that a new member is given."""
    with pytest.raises(GroupRefusedError) as told:
        await ann.join(group_id, require_known_member_id=True)
    assert told.value.refusal is GroupRefusal.MEMBER_ID_REQUIRED
    return told.value.member_id


async def fill(ann: Coordinator) -> dict[str, str]:
    """New groups until there is room for no more, with their only member's id."""
    made: dict[str, str] = {}
    for number in range(1_000):
        group_id = f"flood-{number}"
        try:
            made[group_id] = await new_member(ann, group_id)
        except UnavailableError:
            return made
    raise AssertionError("there is room for ever more groups")


async def test_a_group_id_has_a_limit(world: CoordinatorWorld) -> None:
    ann = await world.coordinator()
    longest = "g" * FAST_SETTINGS.id_chars_max
    await ann.commit(longest, {("orders", 0): 1})
    await ann.member(longest)
    with refused_with(GroupRefusal.INVALID_GROUP_ID):
        await ann.join(longest + "g")
    with refused_with(GroupRefusal.INVALID_GROUP_ID):
        await ann.commit(longest + "g", {("orders", 0): 1})


async def test_a_group_that_was_created_under_a_higher_limit_goes_on(world: CoordinatorWorld) -> None:
    ann = await world.coordinator("ann")
    await ann.commit("long-name", {("orders", 0): 1})
    bob = await world.coordinator("bob", replace(FAST_SETTINGS, id_chars_max=4))
    member = await bob.member("long-name")
    await bob.commit("long-name", {("orders", 0): 2}, member)


def test_an_assigned_id_expires_soon_whatever_the_session_timeout() -> None:
    room = GroupHarness(pending_member_ms=30_000)
    with refused_with(GroupRefusal.MEMBER_ID_REQUIRED):
        room.join("ann", require_known_member_id=True, session_timeout_ms=1_800_000)
    with refused_with(GroupRefusal.MEMBER_ID_REQUIRED):
        room.join("bob", require_known_member_id=True, session_timeout_ms=10_000)
    room.advance(10_000)
    assert list(room.group.pending_members) == ["ann-1"]
    room.advance(20_000)
    assert room.group.pending_members == {}
    assert room.group.next_deadline_ms() is None


async def test_groups_that_are_not_in_the_store_are_in_a_budget(
    world: CoordinatorWorld, caplog: pytest.LogCaptureFixture
) -> None:
    ann = await world.coordinator(settings=replace(FAST_SETTINGS, unsaved_bytes_max=64 * KIB))
    await ann.commit("known", {("orders", 0): 1})
    with caplog.at_level(logging.WARNING, logger="holdfast.groups"):
        flood = await fill(ann)
        for number in range(10):
            with pytest.raises(UnavailableError):
                await ann.join(f"more-{number}")
    assert 10 < len(flood) < 64
    assert len(await ann.service.list()) == 1 + len(flood)
    assert ann.service.counters.joins_refused == 11
    assert len(caplog.records) == 1
    await new_member(ann, "known")


async def test_whoever_got_an_id_joins_though_there_is_no_room_for_new_groups(world: CoordinatorWorld) -> None:
    ann = await world.coordinator(settings=replace(FAST_SETTINGS, unsaved_bytes_max=64 * KIB))
    flood = await fill(ann)
    group_id, member_id = flood.popitem()
    await ann.member(group_id, member_id=member_id)


async def test_groups_that_never_sync_give_way_to_new_ones_the_oldest_first(world: CoordinatorWorld) -> None:
    ann = await world.coordinator(settings=replace(FAST_SETTINGS, unsaved_bytes_max=64 * KIB, unsaved_kept_ms=100))
    await ann.member("stable", client_id="x" * 8 * KIB)
    for number in range(4):
        await ann.join(f"flood-{number}", client_id="x" * 8 * KIB, session_timeout_ms=1_800_000)
    with pytest.raises(UnavailableError):
        await ann.join("app")
    async with asyncio.timeout(10):
        while True:  # as consumers do
            try:
                member = await ann.join("app")
                break
            except UnavailableError:
                await world.clock.sleep_ms(10)
    await ann.sync("app", member, {member.member_id: b"everything"})
    listed = {each.id for each in await ann.service.list()}
    assert {"app", "stable", "flood-3"} <= listed
    assert "flood-0" not in listed
    assert ann.service.counters.groups_evicted >= 1


async def test_whoever_waits_in_a_group_that_gives_way_tries_again(world: CoordinatorWorld) -> None:
    settings = replace(FAST_SETTINGS, unsaved_bytes_max=64 * KIB, unsaved_kept_ms=1)
    ann = await world.coordinator(settings=settings)
    leader = await ann.join("slow")
    waiting = asyncio.ensure_future(ann.join("slow", client_id="second"))
    flood = [ann.join(f"flood-{number}", client_id="x" * 8 * KIB) for number in range(4)]
    await asyncio.gather(*flood)
    await ann.join("app", client_id="x" * 8 * KIB)
    with pytest.raises(UnavailableError):
        await waiting
    with refused_with(GroupRefusal.UNKNOWN_MEMBER):
        await ann.sync("slow", leader)


async def test_a_group_that_is_being_saved_does_not_give_way(world: CoordinatorWorld) -> None:
    settings = replace(FAST_SETTINGS, unsaved_bytes_max=16 * KIB, unsaved_kept_ms=1)
    ann = await world.coordinator(settings=settings)
    member = await ann.join("app", client_id="x" * 16 * KIB)
    with held_back(ann.store):
        syncing = asyncio.ensure_future(ann.sync("app", member, {member.member_id: b"everything"}))
        await world.clock.sleep_ms(20)
        with pytest.raises(UnavailableError):
            await ann.join("other")
    assert (await syncing).assignment == b"everything"


def test_members_of_a_group_that_is_not_in_the_store_have_a_minute_to_sync() -> None:
    room = GroupHarness(unsaved_sync_ms=60_000)
    room.join("ann", rebalance_timeout_ms=2**31 - 1, session_timeout_ms=1_800_000)
    room.advance(300)
    room.joined("ann")
    room.advance(59_000)
    assert room.state() is GroupState.COMPLETING
    room.advance(1_000)
    assert room.state() is GroupState.EMPTY


def test_members_of_a_group_that_is_in_the_store_have_their_rebalance_timeout_to_sync() -> None:
    room = GroupHarness(unsaved_sync_ms=60_000)
    room.group.in_store = True
    room.join("ann", rebalance_timeout_ms=200_000, session_timeout_ms=1_800_000)
    room.advance(300)
    room.joined("ann")
    room.advance(199_000)
    assert room.state() is GroupState.COMPLETING


async def test_a_member_has_so_many_protocols_at_most(world: CoordinatorWorld) -> None:
    ann = await world.coordinator(settings=replace(FAST_SETTINGS, protocols_max=2))
    await ann.join("g", protocols=protocols("a", "b"))
    with refused_with(GroupRefusal.TOO_LARGE):
        await ann.join("h", protocols=protocols("a", "b", "c"))


async def test_many_offsets_are_committed_in_batches_that_a_rebalance_may_come_between(world: CoordinatorWorld) -> None:
    ann = await world.coordinator()
    member = await ann.member("g")
    topics = [f"t{number}" for number in range(100)]
    offsets = {(topic, number): 7 for topic in topics for number in range(50)}
    await ann.commit("g", offsets, member)
    assert await ann.committed("g") == offsets
    with held_back(ann.store) as go:
        committing = asyncio.ensure_future(ann.commit("g", dict.fromkeys(offsets, 8), member))
        await world.clock.sleep_ms(1)
        await ann.service.leave("g", [LeaveRequest(member.member_id)])
        go.set()
    with refused_with(GroupRefusal.UNKNOWN_MEMBER):
        await committing
    assert {*(await ann.committed("g")).values()} <= {7, 8}


async def test_members_of_groups_that_are_not_in_the_store_are_in_the_budget(world: CoordinatorWorld) -> None:
    ann = await world.coordinator(settings=replace(FAST_SETTINGS, unsaved_bytes_max=64 * KIB))
    flood = await fill(ann)
    joins = [ann.join(group_id, member_id=each, client_id="x" * 8 * KIB) for group_id, each in flood.items()]
    results = await asyncio.gather(*joins, return_exceptions=True)
    assert 2 <= sum(not isinstance(each, BaseException) for each in results) <= 5
    assert {type(each) for each in results if isinstance(each, BaseException)} == {UnavailableError}


@pytest.mark.parametrize("ended_by", ["a save", "a commit", "leaving", "closing"])
async def test_a_group_leaves_the_budget(world: CoordinatorWorld, ended_by: str) -> None:
    ann = await world.coordinator(settings=replace(FAST_SETTINGS, unsaved_bytes_max=8 * KIB))
    flood = await fill(ann)
    for group_id, member_id in flood.items():
        if ended_by == "a save":
            await ann.member(group_id, member_id=member_id)
        elif ended_by == "a commit":
            await ann.commit(group_id, {("orders", 0): 1})
        elif ended_by == "leaving":
            await ann.service.leave(group_id, [LeaveRequest(member_id)])
    if ended_by == "closing":
        for lease in ann.leases:
            await ann.handler.close(lease)
            await ann.handler.open(lease)
    saved = ended_by in ("a save", "a commit")
    assert len(await fill(ann)) == len(flood) * (2 if saved else 1)


async def test_consumers_of_many_new_groups_may_start_at_once(world: CoordinatorWorld) -> None:
    settings = GroupSettings()
    each_bytes = 3 * KIB  # a group, its member's id and a subscription to a dozen topics
    assert 10_000 * each_bytes <= settings.unsaved_bytes_max // 2
    ann = await world.coordinator(settings=replace(settings, shards=1))
    for number in range(1_000):
        await new_member(ann, f"g{number}")
    assert ann.handler.unsaved.bytes_held <= 1_000 * each_bytes


def test_outdated_deadlines_are_not_kept() -> None:
    timers = DeadlineQueue()
    for number in range(10_000):
        timers.set(f"g{number}", 1_000_000)
        timers.set("sooner and sooner", 1_000_000 - number)
        timers.discard(f"g{number}")
    assert len(timers) < 1_000
    assert timers.due(2_000_000) == ["sooner and sooner"]
