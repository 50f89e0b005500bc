"""What clients can make a coordinator hold: ids of groups, assigned member ids, groups that are not in the store."""

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio
from tests.support.group import GroupHarness, refused_with
from tests.support.group_coordinators import FAST_SETTINGS, Coordinator, CoordinatorWorld

from holdfast.contracts.store import Store
from holdfast.groups.errors import GroupRefusal, GroupRefusedError
from holdfast.groups.model import LeaveRequest
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
