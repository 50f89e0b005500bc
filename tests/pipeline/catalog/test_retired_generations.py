"""What is retired is owned by somebody until its owners and intents are cleared: a dead owner pins nothing for ever."""

import msgspec
from tests.pipeline.catalog.test_store import catalog, complete

from holdfast.contracts.store import Session, Store
from holdfast.contracts.validation import prefix_end
from holdfast.pipeline.model.definition import RangeIntent, registry_namespace
from holdfast.registry import PartitionState, RegistrySettings, RegistryStore
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SystemRandom

INTENT = msgspec.json.encode(RangeIntent(start=2, end=4, revision=1, topic="orders")).decode()


async def begun(store: Store, pipeline_id: str, generation: int, session: Session) -> RegistryStore:
    """A generation whose first partition somebody owns, with a range under way; the second is nobody's."""
    settings = RegistrySettings(namespace=registry_namespace(pipeline_id, generation), partitions=2)
    registry = RegistryStore(store, clock=RealClock(), random=SystemRandom(), settings=settings)
    await registry.initialize()
    assert await registry.claim(0, "ann", 0, session=session)
    assert await registry.begin_range(0, "ann", 1, INTENT)
    return registry


async def first(registry: RegistryStore) -> PartitionState:
    state = await registry.partition(0)
    assert state is not None
    return state


async def test_the_partition_of_a_dead_owner_is_adopted_and_cleared(store: Store) -> None:
    pipelines = catalog(store)
    pipeline = await complete(pipelines)
    session = await store.open_session(60_000)
    registry = await begun(store, pipeline.id, 1, session)
    await pipelines.rewind(pipeline.id, {0: 0, 1: 0})
    await pipelines.sweep()
    alive = await first(registry)
    assert (alive.owner, alive.epoch, alive.intent is None) == ("ann", 1, False), "its owner lives and may finish it"
    await store.close_session(session.id)
    await pipelines.sweep()
    assert await first(registry) == PartitionState(id=0, owner=None, epoch=2, checkpoint=0, intent=None)
    assert not await registry.update_checkpoint(0, "ann", 4, 1), "a zombie of it is refused"


async def test_a_live_generation_is_left_alone_also_one_that_the_sweeper_does_not_know_yet(store: Store) -> None:
    pipelines = catalog(store)
    before = await complete(pipelines)
    session = await store.open_session(60_000)
    await pipelines.rewind(before.id, {0: 0})
    registry = await begun(store, before.id, 2, session)
    await store.close_session(session.id)
    found = await first(registry)
    await pipelines.clear_retired(before)  # as it was read before the rewind
    await pipelines.sweep()
    assert await first(registry) == found


async def test_generations_that_were_dropped_are_cleared_and_their_keys_removed(store: Store) -> None:
    pipelines = catalog(store, generations_max=4, backfills_max=1)
    pipeline = await complete(pipelines)
    session = await store.open_session(60_000)
    await begun(store, pipeline.id, 1, session)
    for _ in range(5):
        after, _ = await pipelines.rewind(pipeline.id, {0: 0})
    assert 1 not in [each.number for each in after.generations]
    prefix = f"registry/{registry_namespace(pipeline.id, 1)}/"
    await pipelines.sweep()
    assert (await store.scan(prefix, prefix_end(prefix))).entries, "its owner lives"
    await store.close_session(session.id)
    for _ in range(2):  # cleared, then removed
        await pipelines.sweep()
    assert not (await store.scan(prefix, prefix_end(prefix))).entries
