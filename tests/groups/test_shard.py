"""Groups and offsets on a store: what is answered is there, whatever happens next."""

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest
import pytest_asyncio
from tests.support.group import refused_with, subscription
from tests.support.group_coordinators import FAST_SETTINGS, CoordinatorWorld, held_back, one_of
from tests.support.waiting import async_until

from holdfast.contracts.store import Put, Store
from holdfast.groups.errors import GroupRefusal, GroupRefusedError, NotCoordinatorError, ShardLoadingError
from holdfast.groups.keys import GROUP_SHARD, escape_group_id, group_key, offsets_prefix, shard_of
from holdfast.groups.model import AssignmentProtocol, CommittedOffset, GroupState, LeaveRequest
from holdfast.groups.service import GroupService
from holdfast.groups.settings import GroupSettings
from holdfast.kernel.shard_count import ensure_shards
from holdfast.vocabulary.errors import InvalidError, OutcomeUnknownError, UnavailableError
from holdfast.vocabulary.types import TopicPartition

ORDERS = TopicPartition("orders", 0)


@pytest_asyncio.fixture
async def world(store: Store) -> AsyncIterator[CoordinatorWorld]:
    made = CoordinatorWorld(store)
    yield made
    await made.end()


async def test_a_group_is_in_the_store_when_its_members_get_their_assignments(world: CoordinatorWorld) -> None:
    ann = await world.coordinator()
    one, two = await asyncio.gather(ann.join("g"), ann.join("g"))
    leader, follower = (one, two) if one.leader == one.member_id else (two, one)
    waiting = asyncio.ensure_future(ann.sync("g", follower))
    own = await ann.sync("g", leader, {leader.member_id: b"1", follower.member_id: b"2"})
    entry = await world.store.get(group_key(shard_of("g", 2), "g"))
    assert entry is not None
    record = msgspec.json.decode(entry.value)
    assert (record["generation"], record["state"], record["leader"]) == (1, "Stable", leader.member_id)
    assert {each["id"] for each in record["members"]} == {one.member_id, two.member_id}
    assert (own.assignment, (await waiting).assignment) == (b"1", b"2")


async def test_a_stable_group_goes_on_with_its_next_coordinator_without_a_rebalance(world: CoordinatorWorld) -> None:
    ann = await world.coordinator("ann")
    member = await ann.member("g", instance_id="i")
    await ann.commit("g", {("orders", 0): 5, ("bills", 3): 7}, member)
    await ann.stop()
    bob = await world.coordinator("bob")
    await bob.service.heartbeat("g", member_id=member.member_id, generation=member.generation, instance_id="i")
    assert (await bob.sync("g", member)).assignment == b"everything"
    assert await bob.committed("g") == {("orders", 0): 5, ("bills", 3): 7}
    described = await bob.service.describe("g")
    assert (described.state, described.protocol, described.generation) == (GroupState.STABLE, "range", 1)
    (shown,) = described.members
    assert (shown.id, shown.instance_id, shown.client_id) == (member.member_id, "i", "app")
    assert (shown.metadata, shown.assignment) == (subscription("orders"), b"everything")


async def test_an_empty_group_keeps_its_generation_and_its_offsets(world: CoordinatorWorld) -> None:
    ann = await world.coordinator("ann")
    member = await ann.member("g")
    await ann.commit("g", {("orders", 0): 5}, member)
    (left,) = await ann.service.leave("g", [LeaveRequest(member.member_id)])
    assert left.error is None
    for lease in ann.leases:
        await ann.handler.drain(lease)
    bob = await world.coordinator("bob")
    described = await bob.service.describe("g")
    assert (described.state, described.generation, described.protocol_type) == (GroupState.EMPTY, 2, "consumer")
    assert await bob.committed("g") == {("orders", 0): 5}
    assert (await bob.join("g")).generation == 3


@pytest.mark.parametrize(
    "group_id",
    ["a/b", "100%", "~", "tab\there", "ünïcode ☃ 🚀", "x" * 600, "🚀" * 300, " ", "%2F", "a~b"],
)
async def test_any_text_is_a_group_id(world: CoordinatorWorld, group_id: str) -> None:
    ann = await world.coordinator("ann")
    member = await ann.member(group_id)
    await ann.commit(group_id, {("orders", 0): 5}, member)
    bob = await world.coordinator("bob")
    assert await bob.committed(group_id) == {("orders", 0): 5}
    assert [each.id for each in await bob.service.list()] == [group_id]


def test_different_ids_have_different_keys() -> None:
    ids = ["", "a/b", "a%2Fb", "a~b", "a%7Eb", "~", "x" * 600, "x" * 601, "a\n", "a%0A", "é", "%C3%A9"]
    assert len({escape_group_id(each) for each in ids}) == len(ids)
    assert all("/" not in escape_group_id(each) and len(escape_group_id(each).encode()) <= 512 for each in ids)


async def test_the_empty_group_id_may_only_have_offsets(world: CoordinatorWorld) -> None:
    ann = await world.coordinator()
    with refused_with(GroupRefusal.INVALID_GROUP_ID):
        await ann.join("")
    await ann.commit("", {("orders", 0): 1})
    assert await ann.committed("") == {("orders", 0): 1}


async def test_concurrent_commits_share_commits_of_the_store(world: CoordinatorWorld) -> None:
    ann = await world.coordinator(settings=GroupSettings(shards=1, initial_delay_ms=10, session_min_ms=50))
    (shard,), before = ann.handler.shards(), ann.service.counters.store_commits
    wanted = {f"g{number}": {("orders", at): number + at for at in range(50)} for number in range(40)}
    with held_back(ann.store) as go:
        committing = asyncio.gather(*(ann.commit(group_id, offsets) for group_id, offsets in wanted.items()))
        await async_until(lambda: committing.done() or shard.writer.changing() == wanted.keys())
        go.set()
        await committing
    # 40 groups × 4 keys of 16 partitions, and 40 requirements: what fits into three commits; the first goes alone.
    assert ann.service.counters.store_commits - before <= 4
    for group_id, offsets in wanted.items():
        assert await ann.committed(group_id) == offsets
    await ann.stop()
    bob = await world.coordinator("bob", settings=GroupSettings(shards=1))
    for group_id, offsets in wanted.items():
        assert await bob.committed(group_id) == offsets


async def test_the_last_of_several_commits_of_a_partition_counts(world: CoordinatorWorld) -> None:
    ann = await world.coordinator("ann")
    await asyncio.gather(*(ann.commit("g", {("orders", 0): number}) for number in range(100)))
    assert await ann.committed("g") == {("orders", 0): 99}
    bob = await world.coordinator("bob")
    assert await bob.committed("g") == {("orders", 0): 99}


@pytest.mark.slow
async def test_many_partitions_are_committed_in_several_commits(world: CoordinatorWorld) -> None:
    ann = await world.coordinator()
    offsets = {(topic, number): number for topic in ("orders", "bills") for number in range(2_500)}
    await ann.commit("g", offsets)
    assert await ann.committed("g") == offsets


async def test_offsets_with_long_metadata_fit_into_commits(world: CoordinatorWorld) -> None:
    ann = await world.coordinator("ann")
    metadata = "\x01" * FAST_SETTINGS.metadata_chars_max
    offsets = {TopicPartition("orders", number): CommittedOffset(offset=1, metadata=metadata) for number in range(64)}
    assert set((await ann.service.commit_offsets("g", offsets)).values()) == {None}
    bob = await world.coordinator("bob")
    assert {each.metadata for each in (await bob.service.fetch_offsets("g")).values()} == {metadata}


async def test_invalid_offsets_are_refused_by_partition(world: CoordinatorWorld) -> None:
    ann = await world.coordinator()
    results = await ann.service.commit_offsets(
        "g",
        {
            TopicPartition("orders", 0): CommittedOffset(offset=1),
            TopicPartition("orders", 1): CommittedOffset(offset=1, metadata="x" * 4_097),
            TopicPartition("no/topic", 0): CommittedOffset(offset=1),
            TopicPartition("orders", 2): CommittedOffset(offset=-5),
        },
    )
    assert results[TopicPartition("orders", 0)] is None
    too_large = results[TopicPartition("orders", 1)]
    assert isinstance(too_large, GroupRefusedError)
    assert too_large.refusal is GroupRefusal.METADATA_TOO_LARGE
    assert isinstance(results[TopicPartition("no/topic", 0)], InvalidError)
    assert isinstance(results[TopicPartition("orders", 2)], InvalidError)
    assert await ann.committed("g") == {("orders", 0): 1}


async def test_offsets_have_the_committed_values_and_time(world: CoordinatorWorld) -> None:
    ann = await world.coordinator("ann")
    given = CommittedOffset(offset=9, leader_epoch=4, metadata="mine")
    before_ms = world.clock.now_ms()
    await ann.service.commit_offsets("g", {ORDERS: given})
    bob = await world.coordinator("bob")
    found = (await bob.service.fetch_offsets("g", [ORDERS, TopicPartition("orders", 1)]))[ORDERS]
    assert (found.offset, found.leader_epoch, found.metadata) == (9, 4, "mine")
    assert before_ms <= found.committed_at_ms <= world.clock.now_ms()


async def test_a_commit_whose_response_was_lost_is_acknowledged_once_it_is_resolved(world: CoordinatorWorld) -> None:
    ann = await world.coordinator()
    ann.store.lose_answer_to("offset/")
    await ann.commit("g", {("orders", 0): 5})
    ann.store.lose_request("offset/")
    await ann.commit("g", {("orders", 0): 6})
    assert await ann.committed("g") == {("orders", 0): 6}
    assert ann.store.calls["resolve"] == 2


async def test_a_commit_whose_outcome_stays_unknown_is_not_acknowledged_and_the_shard_is_reloaded(
    world: CoordinatorWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann = await world.coordinator()
    await ann.commit("g", {("orders", 0): 4})
    real = ann.store.resolve
    lost = True

    async def resolve(commit_id: str) -> object:
        if lost:
            raise UnavailableError("store", "away")
        return await real(commit_id)

    async def impatient(store: Store, lease: object, **commit: object) -> object:
        commit.pop("clock"), commit.pop("random")
        return await store.commit(require=(lease.fence(), *commit["require"]), apply=commit["apply"])  # type: ignore

    monkeypatch.setattr(ann.store, "resolve", resolve)
    monkeypatch.setattr("holdfast.groups.writer.commit_fenced", impatient)
    ann.store.lose_answer_to("offset/")
    with pytest.raises(OutcomeUnknownError):
        await ann.commit("g", {("orders", 0): 5})
    shard = shard_of("g", 2)
    await async_until(lambda: shard in ann.handler.loading)
    with pytest.raises(ShardLoadingError):
        await ann.committed("g")
    lost = False
    await async_until(lambda: shard not in ann.handler.loading)
    assert await ann.committed("g") == {("orders", 0): 5}  # it had happened
    await ann.commit("g", {("orders", 0): 6})


async def test_an_unavailable_store_fails_commits_and_assignments_until_it_is_back(
    world: CoordinatorWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def impatient(store: Store, lease: object, **commit: object) -> object:
        return await store.commit(require=(lease.fence(), *commit["require"]), apply=commit["apply"])  # type: ignore

    monkeypatch.setattr("holdfast.groups.writer.commit_fenced", impatient)
    ann = await world.coordinator()
    joined = await ann.join("g")
    ann.store.reachable = False
    with pytest.raises(UnavailableError):
        await ann.sync("g", joined, {joined.member_id: b"1"})
    with pytest.raises(UnavailableError):
        await ann.commit("other", {("orders", 0): 1})
    ann.store.reachable = True
    assert (await ann.sync("g", joined, {joined.member_id: b"1"})).assignment == b"1"
    await ann.commit("other", {("orders", 0): 1})


async def test_records_changed_by_another_process_are_loaded_before_anything_is_written(
    world: CoordinatorWorld,
) -> None:
    ann = await world.coordinator()
    member = await ann.member("g")
    key = group_key(shard_of("g", 2), "g")
    entry = await world.store.get(key)
    assert entry is not None
    await world.store.commit(apply=(Put(key, entry.value),))
    with pytest.raises(UnavailableError, match="another process"):
        await ann.commit("g", {("orders", 0): 1}, member)
    await async_until(lambda: not ann.handler.loading and all(s.writer.broken is None for s in ann.handler.shards()))
    await ann.commit("g", {("orders", 0): 1}, member)


async def test_calls_that_wait_while_a_shard_is_reloaded_fail(world: CoordinatorWorld) -> None:
    ann = await world.coordinator(settings=GroupSettings(shards=1, initial_delay_ms=60_000))
    await ann.commit("g", {("orders", 0): 1})
    waiting = asyncio.ensure_future(ann.join("other"))
    await async_until(lambda: ann.service.counters.joins)
    await world.store.commit(apply=(Put(group_key(0, "g"), b"{}"),))
    with pytest.raises(UnavailableError):
        await ann.commit("g", {("orders", 0): 2})
    with pytest.raises(NotCoordinatorError):
        await waiting


async def test_only_members_commit_for_a_group_that_has_some(world: CoordinatorWorld) -> None:
    ann = await world.coordinator()
    await ann.commit("g", {("orders", 0): 1})
    member = await ann.member("g")
    with refused_with(GroupRefusal.UNKNOWN_MEMBER):
        await ann.commit("g", {("orders", 0): 2})
    with refused_with(GroupRefusal.ILLEGAL_GENERATION):
        await ann.service.commit_offsets("new", {ORDERS: CommittedOffset(offset=1)}, member_id="m", generation=3)
    await ann.commit("g", {("orders", 0): 3}, member)
    assert await ann.committed("g") == {("orders", 0): 3}


async def test_closing_fails_waiting_calls_with_not_coordinator(world: CoordinatorWorld) -> None:
    ann = await world.coordinator(settings=GroupSettings(shards=1, initial_delay_ms=60_000))
    waiting = asyncio.ensure_future(ann.join("g"))
    await async_until(lambda: ann.service.counters.joins)
    await ann.handler.close(ann.leases[0])
    with pytest.raises(NotCoordinatorError):
        await waiting
    with pytest.raises(NotCoordinatorError):
        await ann.join("g")
    assert await ann.service.list() == []


async def test_draining_writes_what_was_accepted_and_accepts_nothing_more(world: CoordinatorWorld) -> None:
    ann = await world.coordinator(settings=GroupSettings(shards=1))
    (lease,), (shard,) = ann.leases, ann.handler.shards()
    with held_back(ann.store) as go:
        committing = asyncio.ensure_future(ann.commit("g", {("orders", 0): 1}))
        await async_until(lambda: shard.writer.writing)
        draining = asyncio.ensure_future(ann.handler.drain(lease))
        await async_until(lambda: not shard.accepting)
        with pytest.raises(NotCoordinatorError):
            await ann.commit("g", {("orders", 0): 2})
        assert not draining.done()
        go.set()
        await draining
    await committing
    await ann.handler.resume(lease)
    await ann.commit("g", {("orders", 0): 3})


async def test_a_shard_that_fails_to_load_is_loading_and_retried(world: CoordinatorWorld) -> None:
    ann = await world.coordinator("ann")
    await ann.commit("g", {("orders", 0): 1})
    number = shard_of("g", 2)
    lease = ann.leases[number]
    await ann.handler.close(lease)
    real = ann.store.scan

    async def broken(*args: object, **kwargs: object) -> object:
        raise UnavailableError("store", "away")

    ann.store.scan = broken  # type: ignore[assignment, method-assign]
    opening = asyncio.ensure_future(ann.handler.open(lease))
    await async_until(lambda: number in ann.handler.loading)
    with pytest.raises(ShardLoadingError):
        await ann.committed("g")
    ann.store.scan = real  # type: ignore[method-assign]
    await opening
    await async_until(lambda: number not in ann.handler.loading)
    assert await ann.committed("g") == {("orders", 0): 1}


async def test_a_node_without_shards_is_no_coordinator(world: CoordinatorWorld) -> None:
    service = GroupService(store=world.store)
    with pytest.raises(UnavailableError):
        await service.coordinator("g")
    await world.coordinator()
    assert await service.coordinator("g") == shard_of("g", 2)
    with pytest.raises(NotCoordinatorError):
        await service.describe("g")
    assert await service.list() == []


async def test_the_number_of_shards_is_that_of_the_store(world: CoordinatorWorld) -> None:
    await world.coordinator()
    assert await ensure_shards(world.store, GROUP_SHARD, 99, clock=world.clock, random=world.random) == 2


# Operators


async def test_groups_are_listed_by_state(world: CoordinatorWorld) -> None:
    ann = await world.coordinator()
    await ann.commit("simple", {("orders", 0): 1})
    await ann.member("full")
    listed = {each.id: (each.state, each.protocol_type) for each in await ann.service.list()}
    assert listed == {"simple": (GroupState.EMPTY, ""), "full": (GroupState.STABLE, "consumer")}
    assert [each.id for each in await ann.service.list([GroupState.STABLE])] == ["full"]


async def test_a_group_is_deleted_with_its_offsets_once_it_has_no_members(world: CoordinatorWorld) -> None:
    ann = await world.coordinator("ann")
    with refused_with(GroupRefusal.NOT_FOUND):
        await ann.service.delete("g")
    member = await ann.member("g")
    await ann.commit("g", {("orders", number): 1 for number in range(200)}, member)
    with refused_with(GroupRefusal.NOT_EMPTY):
        await ann.service.delete("g")
    await ann.service.leave("g", [LeaveRequest(member.member_id)])
    await ann.service.delete("g")
    with refused_with(GroupRefusal.NOT_FOUND):
        await ann.service.describe("g")
    prefix = offsets_prefix(shard_of("g", 2))
    assert (await world.store.scan(prefix, prefix + "~~")).entries == ()
    bob = await world.coordinator("bob")
    assert await bob.service.list() == []
    assert (await bob.join("g")).generation == 1


async def test_a_sweep_does_not_bring_back_a_group_that_is_being_deleted(world: CoordinatorWorld) -> None:
    ann = await world.coordinator("ann")
    await ann.commit("g", {("orders", 0): 1})
    await ann.commit("other", {("orders", 0): 1})
    shards = ann.handler.shards()
    with held_back(ann.store) as go:
        deleting = [asyncio.ensure_future(ann.service.delete(each)) for each in ("g", "other")]
        await async_until(lambda: set().union(*(shard.writer.changing() for shard in shards)) == {"g", "other"})
        for shard in shards:
            await shard.sweep(1 << 60)
        go.set()
        await asyncio.gather(*deleting)
    assert await ann.service.list() == []


async def test_offsets_are_deleted_unless_the_group_is_subscribed(world: CoordinatorWorld) -> None:
    ann = await world.coordinator("ann")
    member = await ann.member("g", protocols=one_of("orders"))
    await ann.commit("g", {("orders", 0): 1, ("bills", 0): 2}, member)
    results = dict(
        await ann.service.delete_offsets("g", [ORDERS, TopicPartition("bills", 0), TopicPartition("bills", 1)])
    )
    refused = results.pop(ORDERS)
    assert isinstance(refused, GroupRefusedError)
    assert refused.refusal is GroupRefusal.SUBSCRIBED
    assert set(results.values()) == {None}
    bob = await world.coordinator("bob")
    assert await bob.committed("g") == {("orders", 0): 1}
    with refused_with(GroupRefusal.NOT_FOUND):
        await bob.service.delete_offsets("nobody", [ORDERS])
    await bob.member("connect", protocol_type="connect", protocols=(AssignmentProtocol("default", b""),))
    with refused_with(GroupRefusal.NOT_EMPTY):
        await bob.service.delete_offsets("connect", [ORDERS])


async def test_lag_is_the_distance_from_the_committed_offset_to_the_end(world: CoordinatorWorld) -> None:
    ann = await world.coordinator()
    await ann.commit("g", {("orders", 0): 5, ("orders", 1): 9, ("bills", 0): 3})
    ends = {ORDERS: 15, TopicPartition("orders", 1): 7}

    async def end_of(partition: TopicPartition) -> int | None:
        return ends.get(partition)

    lags = await ann.service.lag("g", end_of)
    assert [(str(each.partition), each.committed, each.end, each.lag) for each in lags] == [
        ("bills:0", 3, None, None),
        ("orders:0", 5, 15, 10),
        ("orders:1", 9, 7, 0),
    ]
