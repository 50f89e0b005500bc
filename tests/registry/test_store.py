"""The registry's records, on every engine: claims, releases, checkpoints, expiry, registrations."""

import asyncio

import pytest
from tests.support.registry import LONG_TTL_MS, RegistryWorld, in_time
from tests.support.store_engines import STORE_ENGINES

from holdfast.contracts.store import Put, Scan
from holdfast.registry import PartitionState, RegistrySettings, RegistryStore, keys
from holdfast.testing.faulty_store import FaultyStore
from holdfast.vocabulary.errors import CorruptError, ExpiredError, InvalidError


@pytest.fixture(params=STORE_ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def state(registry: RegistryStore, number: int) -> PartitionState:
    found = await registry.partition(number)
    assert found is not None
    return found


# --- PXRS's sixteen


async def test_initialize_makes_unowned_partitions_at_epoch_0(registry: RegistryStore) -> None:
    assert await registry.partitions() == tuple(
        PartitionState(id=number, owner=None, epoch=0, checkpoint=0) for number in range(8)
    )


async def test_a_consumer_registers_and_deregisters(registry: RegistryStore) -> None:
    info = await registry.register("A")
    assert await registry.active() == (info,)
    await registry.deregister("A")
    assert await registry.active() == ()
    await registry.deregister("A")


async def test_a_claim_makes_an_owner_and_epoch_1(registry: RegistryStore) -> None:
    assert await registry.claim(3, "A", 0)
    assert await state(registry, 3) == PartitionState(id=3, owner="A", epoch=1)


async def test_a_claim_with_the_wrong_epoch_is_refused(registry: RegistryStore) -> None:
    assert not await registry.claim(3, "A", 7)
    assert await state(registry, 3) == PartitionState(id=3)


async def test_an_owned_partition_is_not_claimed_even_with_the_right_epoch(registry: RegistryStore) -> None:
    await registry.claim(3, "A", 0)
    assert not await registry.claim(3, "B", 1)
    assert not await registry.claim(3, "A", 1)
    assert await state(registry, 3) == PartitionState(id=3, owner="A", epoch=1)


async def test_of_two_racing_claims_one_wins(world: RegistryWorld, registry: RegistryStore) -> None:
    async with world.harness.client() as other:
        rival = world.registry(other)
        for number in range(8):
            won = await asyncio.gather(registry.claim(number, "A", 0), rival.claim(number, "B", 0))
            assert sorted(won) == [False, True]
            assert await state(registry, number) == PartitionState(id=number, owner="A" if won[0] else "B", epoch=1)
            assert await registry.heartbeat(number, 1)  # the loser's session took nothing of the winner's with it


async def test_a_release_makes_nobody_the_owner_and_epoch_2(registry: RegistryStore) -> None:
    await registry.claim(3, "A", 0)
    assert await registry.release(3, "A")
    assert await state(registry, 3) == PartitionState(id=3, owner=None, epoch=2)


async def test_release_all_releases_what_one_consumer_owns(registry: RegistryStore) -> None:
    for number, owner in ((0, "A"), (1, "B"), (5, "A")):
        await registry.claim(number, owner, 0)
    assert await registry.release_all("A") == (0, 5)
    assert await registry.owned_by("A") == ()
    assert [each.id for each in await registry.owned_by("B")] == [1]
    assert (await state(registry, 5)).epoch == 2


async def test_the_owner_moves_the_checkpoint(registry: RegistryStore) -> None:
    await registry.claim(3, "A", 0)
    assert await registry.update_checkpoint(3, "A", 10, 1)
    assert await registry.checkpoint(3) == 10
    assert (await state(registry, 3)).epoch == 1


async def test_a_checkpoint_with_a_wrong_epoch_is_refused(registry: RegistryStore) -> None:
    await registry.claim(3, "A", 0)
    for epoch in (0, 2):
        assert not await registry.update_checkpoint(3, "A", 10, epoch)
    assert await registry.checkpoint(3) == 0


async def test_a_checkpoint_by_another_consumer_is_refused(registry: RegistryStore) -> None:
    await registry.claim(3, "A", 0)
    assert not await registry.update_checkpoint(3, "B", 10, 1)
    assert await registry.checkpoint(3) == 0


async def test_a_deregistered_owner_makes_its_partitions_expired(registry: RegistryStore) -> None:
    await registry.register("A")
    await registry.claim(3, "A", 0)
    assert await registry.expired() == ()
    await registry.deregister("A")
    assert [each.id for each in await registry.expired()] == [3]
    assert (await state(registry, 3)).owner == "A"  # to deregister is not to release


async def test_a_stale_heartbeat_makes_a_partition_expired(world: RegistryWorld) -> None:
    await (await world.initialized()).register("A")
    registry = world.registry(ttl_ms=world.short_ttl_ms)
    await in_time(lambda: registry.claim(3, "A", 0))
    await world.registry().claim(4, "A", 0)  # which is alive for long
    await world.until_view(registry, lambda view: [each.id for each in view.expired()] == [3])
    assert [each.id for each in await registry.expired()] == [3]


async def test_unowned_partitions_are_counted(registry: RegistryStore) -> None:
    assert len(await registry.unowned()) == 8
    await registry.claim(0, "A", 0)
    await registry.claim(7, "B", 0)
    assert [each.id for each in await registry.unowned()] == [1, 2, 3, 4, 5, 6]


async def test_owned_by_lists_one_consumers_partitions(registry: RegistryStore) -> None:
    for number, owner in ((6, "A"), (1, "B"), (2, "A")):
        await registry.claim(number, owner, 0)
    assert [each.id for each in await registry.owned_by("A")] == [2, 6]
    assert await registry.owned_by("C") == ()


async def test_a_checkpoint_survives_release_and_a_new_claim(registry: RegistryStore) -> None:
    await registry.claim(3, "A", 0)
    await registry.update_checkpoint(3, "A", 42, 1)
    await registry.release(3, "A")
    assert await registry.checkpoint(3) == 42
    await registry.claim(3, "B", 2)
    assert await state(registry, 3) == PartitionState(id=3, owner="B", epoch=3, checkpoint=42)


# --- what PXRS left open


async def test_an_unknown_partition_has_checkpoint_0_and_cannot_be_changed(registry: RegistryStore) -> None:
    assert await registry.checkpoint(8) == 0
    assert await registry.partition(8) is None
    for number in (8, -1):
        with pytest.raises(InvalidError, match="0 to 7"):
            await registry.claim(number, "A", 0)
        with pytest.raises(InvalidError, match="0 to 7"):
            await registry.release(number, "A")
        with pytest.raises(InvalidError, match="0 to 7"):
            await registry.update_checkpoint(number, "A", 1, 1)


async def test_initialize_never_wipes(world: RegistryWorld, registry: RegistryStore) -> None:
    await registry.claim(3, "A", 0)
    await registry.update_checkpoint(3, "A", 42, 1)
    await registry.initialize()
    await world.registry().initialize()
    assert await state(registry, 3) == PartitionState(id=3, owner="A", epoch=1, checkpoint=42)


async def test_racing_initialize_calls_end_in_one_state(world: RegistryWorld) -> None:
    async with world.harness.client() as other:
        racers = [world.registry(store, partitions=120) for store in (world.store, other, world.store)]
        await asyncio.gather(*(each.initialize() for each in racers))
    assert await racers[0].partitions() == tuple(PartitionState(id=number) for number in range(120))


async def test_an_initialize_that_was_overtaken_wipes_nothing(world: RegistryWorld) -> None:
    """It saw no partitions; when it comes to make them, they are there, claimed, with a checkpoint."""
    overtaker = world.registry()

    class Overtaken(FaultyStore):
        async def scan(self, start: str, end: str, *, limit: int | None = None, reverse: bool = False) -> Scan:
            seen = await super().scan(start, end, limit=limit, reverse=reverse)
            if not seen.entries:
                await overtaker.initialize()
                await overtaker.claim(3, "A", 0)
                await overtaker.update_checkpoint(3, "A", 42, 1)
            return seen

    await world.registry(Overtaken(world.store, random=world.random)).initialize()
    assert await state(overtaker, 3) == PartitionState(id=3, owner="A", epoch=1, checkpoint=42)
    assert len(await overtaker.partitions()) == 8


async def test_another_partition_count_is_refused(world: RegistryWorld, registry: RegistryStore) -> None:
    with pytest.raises(InvalidError, match="8, as it was created"):
        await world.registry(partitions=16).initialize()
    assert len(await registry.partitions()) == 8


async def test_racing_initialize_calls_with_two_counts_make_one_registry(world: RegistryWorld) -> None:
    few, many = world.registry(partitions=4), world.registry(partitions=60)
    outcomes = await asyncio.gather(few.initialize(), many.initialize(), return_exceptions=True)
    assert sorted(type(each).__name__ for each in outcomes) == ["InvalidError", "NoneType"]
    assert len(await few.partitions()) == (4 if outcomes[0] is None else 60)


async def test_namespaces_do_not_touch_each_other(world: RegistryWorld, registry: RegistryStore) -> None:
    other = await world.initialized(namespace="pxrs2", partitions=3)
    await registry.register("A")
    await registry.claim(1, "A", 0)
    assert await other.active() == ()
    assert await other.partitions() == tuple(PartitionState(id=number) for number in range(3))
    await other.claim(1, "Z", 0)
    await other.release_all("Z")
    await other.remove()
    assert await other.partitions() == ()
    assert await state(registry, 1) == PartitionState(id=1, owner="A", epoch=1)


async def test_a_registry_with_consumers_is_not_removed(registry: RegistryStore) -> None:
    await registry.register("A")
    with pytest.raises(InvalidError, match="without registered consumers"):
        await registry.remove()
    assert len(await registry.partitions()) == 8


async def test_only_the_owner_releases(registry: RegistryStore) -> None:
    await registry.claim(3, "A", 0)
    assert not await registry.release(3, "B")
    assert not await registry.release(4, "A")
    assert await state(registry, 3) == PartitionState(id=3, owner="A", epoch=1)


async def test_a_release_with_a_stale_epoch_is_refused(registry: RegistryStore) -> None:
    await registry.claim(3, "A", 0)
    await registry.release(3, "A", 1)
    await registry.claim(3, "A", 2)
    assert not await registry.release(3, "A", 1)
    assert await state(registry, 3) == PartitionState(id=3, owner="A", epoch=3)
    assert await registry.heartbeat(3, 3)


async def test_the_same_owner_again_is_another_claim(registry: RegistryStore) -> None:
    """ABA: A had it, B had it, A has it; what A began under its first claim is refused."""
    await registry.claim(3, "A", 0)
    await registry.release(3, "A")
    await registry.claim(3, "B", 2)
    await registry.release(3, "B")
    await registry.claim(3, "A", 4)
    assert not await registry.update_checkpoint(3, "A", 99, 1)
    assert not await registry.heartbeat(3, 1)
    assert not await registry.release(3, "A", 1)
    assert await registry.update_checkpoint(3, "A", 7, 5)
    assert await state(registry, 3) == PartitionState(id=3, owner="A", epoch=5, checkpoint=7)


async def test_a_checkpoint_never_moves_backwards(registry: RegistryStore) -> None:
    await registry.claim(3, "A", 0)
    await registry.update_checkpoint(3, "A", 10, 1)
    for offset in (9, 10, 0):
        assert await registry.update_checkpoint(3, "A", offset, 1)
        assert await registry.checkpoint(3) == 10
    assert not await registry.update_checkpoint(3, "A", 9, 2)


async def test_racing_checkpoints_of_one_owner_end_at_the_highest(
    world: RegistryWorld, registry: RegistryStore
) -> None:
    await registry.claim(3, "A", 0)
    async with world.harness.client() as other:
        second = world.registry(other)
        offsets = [5, 40, 20, 60, 10, 30]
        answers = await asyncio.gather(
            *((registry if at % 2 else second).update_checkpoint(3, "A", each, 1) for at, each in enumerate(offsets))
        )
    assert all(answers)
    assert await registry.checkpoint(3) == 60


async def test_a_remembered_record_can_confirm_but_not_refuse(world: RegistryWorld, registry: RegistryStore) -> None:
    """The registry skips a read when its last checkpoint's record is still there; others' changes must not confuse it."""
    await registry.claim(3, "A", 0)
    assert await registry.update_checkpoint(3, "A", 1, 1)
    elsewhere = world.registry()
    assert await elsewhere.update_checkpoint(3, "A", 5, 1)
    assert await registry.update_checkpoint(3, "A", 3, 1)
    assert await registry.checkpoint(3) == 5
    await elsewhere.release(3, "A")
    assert not await registry.update_checkpoint(3, "A", 6, 1)
    await elsewhere.claim(3, "B", 2)
    assert not await registry.update_checkpoint(3, "A", 7, 1)
    assert await registry.update_checkpoint(3, "B", 7, 3)
    assert await registry.checkpoint(3) == 7


async def test_a_release_and_a_checkpoint_that_race_lose_nothing(world: RegistryWorld, registry: RegistryStore) -> None:
    for number in range(8):
        await registry.claim(number, "A", 0)
        moved, released = await asyncio.gather(
            registry.update_checkpoint(number, "A", 10, 1), world.registry().release(number, "A", 1)
        )
        assert released
        assert await state(registry, number) == PartitionState(id=number, epoch=2, checkpoint=10 if moved else 0)


async def test_a_renewed_heartbeat_keeps_the_claim_beyond_its_ttl(fake_world: RegistryWorld) -> None:
    await fake_world.initialized()
    registry = fake_world.registry(ttl_ms=fake_world.short_ttl_ms)
    await registry.register("A")
    await registry.claim(3, "A", 0)
    await registry.claim(4, "A", 0)
    async with asyncio.timeout(20):
        while 4 in (await registry.snapshot()).heartbeats:  # which nobody renews
            assert await registry.heartbeat(3, 1)
            await fake_world.clock.sleep_ms(fake_world.short_ttl_ms / 8)
    assert 3 in (await registry.snapshot()).heartbeats


async def test_renewal_after_expiry_fails_for_ever(world: RegistryWorld) -> None:
    registry = await world.initialized(ttl_ms=world.short_ttl_ms)
    await in_time(lambda: registry.claim(3, "A", 0))
    await world.until_view(registry, lambda view: 3 not in view.heartbeats)
    for _ in range(3):
        assert not await registry.heartbeat(3, 1)
    await registry.release(3, "A", 1)
    lasting = world.registry()
    await lasting.claim(3, "A", 2)
    assert not await registry.heartbeat(3, 1)
    assert not await lasting.heartbeat(3, 1)
    assert await lasting.heartbeat(3, 3)


async def test_a_lapsed_claim_is_expired_at_once(registry: RegistryStore) -> None:
    await registry.register("A")
    await registry.claim(3, "A", 0)
    await registry.expire_claim(3, 0)
    assert await registry.expired() == ()
    await registry.expire_claim(3, 1)
    assert [each.id for each in await registry.expired()] == [3]
    await registry.expire_claim(3, 1)


async def test_a_registration_that_is_not_renewed_ends(world: RegistryWorld) -> None:
    registry, lasting = await world.initialized(ttl_ms=world.short_ttl_ms), world.registry()
    info, other = await in_time(lambda: registry.register("A")), await lasting.register("B")
    await world.until_view(registry, lambda view: list(view.consumers) == ["B"])
    assert not await registry.keep_registered(info)
    assert await lasting.keep_registered(other)


async def test_registering_again_takes_the_place_of_the_first_registration(registry: RegistryStore) -> None:
    first = await registry.register("A")
    second = await registry.register("A")
    assert not await registry.keep_registered(first)
    assert await registry.keep_registered(second)
    await registry.leave(first)  # whoever was replaced cannot end its successor
    assert await registry.active() == (second,)
    assert second.version > first.version


async def test_a_claim_for_a_former_registration_is_not_assigned_to_the_next(registry: RegistryStore) -> None:
    await registry.register("A")
    await registry.claim(3, "A", 0)
    assert list((await registry.snapshot()).assignments_of("A")) == [3]
    await registry.register("A")
    assert (await registry.snapshot()).assignments_of("A") == {}


async def test_a_watch_tells_of_owners_but_not_of_checkpoints_unless_asked(registry: RegistryStore) -> None:
    views = registry.watch()
    assert (await anext(views)).partitions[3].owner is None
    await registry.claim(3, "A", 0)
    assert (await anext(views)).partitions[3].owner == "A"
    await registry.update_checkpoint(3, "A", 9, 1)
    await registry.release(3, "A")
    seen = await anext(views)
    assert (seen.partitions[3].owner, seen.partitions[3].checkpoint, seen.heartbeats) == (None, 9, {})
    await views.aclose()


async def test_a_record_nobody_could_have_written_is_corrupt(world: RegistryWorld, registry: RegistryStore) -> None:
    await world.store.commit(apply=[Put(keys.partition_key("pxrs", 3), b'{"owner":null,"checkpoint":-1,"epoch":0}')])
    with pytest.raises(CorruptError, match="partitions/00003"):
        await registry.claim(3, "A", 0)
    await world.store.commit(apply=[Put(keys.partition_key("pxrs", 3), b'{"own":null}')])
    with pytest.raises(CorruptError, match="partitions/00003"):
        await registry.partitions()


async def test_the_records_are_readable_by_people(world: RegistryWorld, registry: RegistryStore) -> None:
    await registry.claim(3, "A", 0)
    entry = await world.store.get("registry/pxrs/partitions/00003")
    assert entry is not None
    assert entry.value == b'{"owner":"A","checkpoint":0,"epoch":1}'
    meta = await world.store.get("registry/pxrs/meta")
    assert meta is not None
    assert meta.value == b'{"partitions":8}'


def test_settings_have_the_defaults_of_pxrs_and_refuse_nonsense() -> None:
    settings = RegistrySettings()
    assert (settings.partitions, settings.ttl_ms, settings.rebalance_interval_ms) == (16, 10_000, 10_000)
    assert (settings.namespace, settings.plan) == ("pxrs", "sticky")
    wrong: list[dict[str, object]] = [
        {"partitions": 0},
        {"partitions": 100_001},
        {"ttl_ms": 5},
        {"namespace": "a/b"},
        {"namespace": ""},
        {"plan": "random"},
    ]
    for each in wrong:
        with pytest.raises(InvalidError):
            RegistrySettings(**each)  # type: ignore[arg-type]


async def test_a_consumer_id_with_a_slash_is_refused(registry: RegistryStore) -> None:
    for name in ("", "a/b", "a\nb", "x" * 201):
        with pytest.raises(InvalidError, match="consumer id"):
            await registry.register(name)
        with pytest.raises(InvalidError, match="consumer id"):
            await registry.claim(0, name, 0)


# --- claims under a session of the claimer's own


async def test_claims_under_one_session_live_and_die_with_it(world: RegistryWorld, registry: RegistryStore) -> None:
    session = await world.store.open_session(LONG_TTL_MS)
    calls = FaultyStore(world.store, random=world.random)
    frugal = world.registry(calls)
    for number in range(4):
        assert await frugal.claim(number, "A", 0, session=session)
    assert "open_session" not in calls.calls
    view = await registry.snapshot()
    assert {
        number: (heartbeat.session, heartbeat.shared) for number, heartbeat in view.heartbeats.items()
    } == dict.fromkeys(range(4), (session.id, True))
    await world.store.close_session(session.id)
    assert (await registry.snapshot()).heartbeats == {}
    assert [each.id for each in await registry.expired()] == [0, 1, 2, 3]


async def test_to_release_one_claim_of_a_session_leaves_its_neighbours(
    world: RegistryWorld, registry: RegistryStore
) -> None:
    session = await world.store.open_session(LONG_TTL_MS)
    for number in range(4):
        await registry.claim(number, "A", 0, session=session)
    assert await registry.release(1, "A", 1)
    await registry.expire_claim(2, 1)
    assert sorted((await registry.snapshot()).heartbeats) == [0, 3]
    assert await world.store.keep_alive(session.id)
    assert (await state(registry, 2)).owner == "A"


async def test_a_claim_under_a_dead_session_is_refused_and_says_so(
    world: RegistryWorld, registry: RegistryStore
) -> None:
    session = await world.store.open_session(LONG_TTL_MS)
    await world.store.close_session(session.id)
    with pytest.raises(ExpiredError, match="session"):
        await registry.claim(3, "A", 0, session=session)
    assert await state(registry, 3) == PartitionState(id=3)


async def test_checkpoints_belong_to_the_topic_they_were_first_bound_to(registry: RegistryStore) -> None:
    await registry.bind_topic("orders", "id-1")
    await registry.bind_topic("orders", "id-1")
    with pytest.raises(InvalidError, match=r"must be 'orders', as it was bound$"):
        await registry.bind_topic("clicks", "id-2")
    with pytest.raises(InvalidError, match="deleted and recreated since"):
        await registry.bind_topic("orders", "id-3")
