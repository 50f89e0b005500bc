"""The catalog on every engine: what is saved together, who wins a race, and what a crash leaves behind."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

import msgspec
import pytest

from holdfast.contracts.store import Committed, Conflict, Delete, Operation, Put, Requirement, Store
from holdfast.contracts.validation import prefix_end
from holdfast.kernel.keys import holder_key
from holdfast.pipeline.catalog.keys import DELETED, PIPELINES, revisions_prefix, status_prefix
from holdfast.pipeline.catalog.settings import CatalogSettings
from holdfast.pipeline.catalog.store import PipelineStore
from holdfast.pipeline.model.definition import (
    ClickHouseConfig,
    KafkaConfig,
    Pipeline,
    RangeIntent,
    live_generation,
    registry_namespace,
    slot_resource,
)
from holdfast.pipeline.model.errors import (
    EditConflictError,
    NotReadyError,
    PipelineNameTakenError,
    UnknownPipelineError,
)
from holdfast.registry import RegistrySettings, RegistryStore
from holdfast.registry.model import SourceTopic
from holdfast.registry.queries import fix_source
from holdfast.testing.faulty_store import FaultyStore
from holdfast.testing.harness import StoreHarness
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import InvalidError, UnavailableError
from holdfast.vocabulary.random import SystemRandom

SOURCE = {"topic": "orders"}
SINK = {"dsn": "http://default:secret@127.0.0.1:8123/shop", "table": "orders"}
MAPPING = {"columns": [{"fieldPath": "id", "column": "id", "type": "Int64", "nullable": False}]}
WIDER = {"columns": [*MAPPING["columns"], {"fieldPath": "n", "column": "n", "type": "Float64", "nullable": True}]}


def catalog(store: Store, **settings: int) -> PipelineStore:
    return PipelineStore(store, clock=RealClock(), random=SystemRandom(), settings=CatalogSettings(**settings))


async def complete(pipelines: PipelineStore, name: str = "orders") -> Pipeline:
    made = await pipelines.create(name)
    done, _ = await pipelines.put_parts(made.id, {"source": SOURCE, "sink": SINK, "mapping": MAPPING})
    return done


async def test_a_pipeline_is_saved_part_by_part_and_is_complete_with_the_last(store: Store) -> None:
    pipelines = catalog(store)
    made = await pipelines.create("Orders to ClickHouse", "all of them")
    assert (made.revision, made.state.desired, made.state.replicas) == (0, "stopped", 1)
    after, _ = await pipelines.put_part(made.id, "mapping", MAPPING)
    assert after.problems == ("source: not saved yet", "sink: not saved yet")
    await pipelines.put_part(made.id, "source", SOURCE)
    with pytest.raises(NotReadyError, match="starting 'Orders to ClickHouse' is refused: sink: not saved yet"):
        await pipelines.set_state(made.id, desired="started")
    after, saved = await pipelines.put_part(made.id, "sink", SINK)
    assert (after.revision, after.problems, saved.version) == (1, (), 1)
    revision = await pipelines.revision(made.id, 1)
    assert isinstance(revision.sink, ClickHouseConfig)
    assert (revision.sink.database, revision.sink.batch_size, revision.source) == (
        "shop",
        100_000,
        KafkaConfig(topic="orders"),
    )
    started = await pipelines.set_state(made.id, desired="started", replicas=3)
    assert (await pipelines.get(made.id)) == started
    assert (await pipelines.find("orders TO clickhouse")).id == made.id


async def test_every_edit_is_the_next_revision_and_the_old_ones_stay_as_they_were(store: Store) -> None:
    pipelines = catalog(store)
    made = await complete(pipelines)
    before = await pipelines.revision(made.id, 1)
    after, part = await pipelines.put_part(made.id, "mapping", WIDER)
    assert (after.revision, part.version) == (2, 2)
    assert (await pipelines.revision(made.id, 2)).mapping.version == 2
    assert await pipelines.revision(made.id, 1) == before
    again, _ = await pipelines.put_part(made.id, "mapping", WIDER)
    assert again == after, "saving what is saved changes nothing"


async def test_an_edit_that_does_not_fit_is_kept_and_the_last_good_revision_stays_in_use(store: Store) -> None:
    pipelines = catalog(store)
    made = await complete(pipelines)
    after, _ = await pipelines.put_part(made.id, "sink", {**SINK, "orderBy": ["nobody"]})
    assert after.revision == 1
    assert "invalid order_by 'nobody'" in after.problems[0]
    assert isinstance((await pipelines.parts(made.id))["sink"].value, ClickHouseConfig)
    with pytest.raises(NotReadyError, match="nobody"):
        await pipelines.set_state(made.id, desired="started")
    mended, _ = await pipelines.put_part(made.id, "sink", {**SINK, "orderBy": ["id"]})
    assert (mended.revision, mended.problems) == (2, ())


async def test_of_two_editors_with_the_same_version_one_gets_a_conflict(harness: StoreHarness, store: Store) -> None:
    async with harness.client() as other_store:
        ann, bob = catalog(store), catalog(other_store)
        made = await complete(ann)
        edits: list[dict[str, Any]] = [{**SINK, "batchSize": size} for size in (10, 20)]
        outcomes = await asyncio.gather(
            ann.put_part(made.id, "sink", edits[0], expected=1),
            bob.put_part(made.id, "sink", edits[1], expected=1),
            return_exceptions=True,
        )
        lost = [each for each in outcomes if isinstance(each, BaseException)]
        assert [type(each) for each in lost] == [EditConflictError]
        assert str(lost[0]) == "the sink is at version 2, the change was made to version 1"
        assert (await ann.get(made.id)).revision == 2


async def test_editors_of_different_parts_do_not_disturb_each_other(harness: StoreHarness, store: Store) -> None:
    async with harness.client() as other_store:
        ann, bob = catalog(store), catalog(other_store)
        made = await complete(ann)
        await asyncio.gather(
            ann.put_part(made.id, "mapping", WIDER, expected=1),
            bob.put_part(made.id, "filters", {"enabled": True, "expression": "id > 1"}, expected=0),
            ann.set_state(made.id, replicas=2),
        )
        newest = await ann.get(made.id)
        revision = await ann.revision(made.id, newest.revision)
        assert (newest.revision, newest.state.replicas) == (3, 2)
        assert (len(revision.mapping.columns), revision.filters.expression) == (2, "id > 1")


async def test_of_two_creates_with_one_name_one_wins(harness: StoreHarness, store: Store) -> None:
    async with harness.client() as other_store:
        outcomes = await asyncio.gather(
            catalog(store).create("orders"), catalog(other_store).create("Orders"), return_exceptions=True
        )
        assert sorted(type(each).__name__ for each in outcomes) == ["Pipeline", "PipelineNameTakenError"]
        assert len(await catalog(store).list()) == 1


async def test_a_rename_frees_the_old_name_and_takes_no_other_pipelines(store: Store) -> None:
    pipelines = catalog(store)
    made = await pipelines.create("orders")
    await pipelines.create("returns")
    with pytest.raises(PipelineNameTakenError, match="pipeline 'Returns' already exists"):
        await pipelines.update(made.id, name="Returns")
    renamed = await pipelines.update(made.id, name="ORDERS", description="x", expected=1)
    assert (renamed.name, renamed.version) == ("ORDERS", 2)
    with pytest.raises(EditConflictError, match="pipeline 'ORDERS' is at version 2, the change was made to version 1"):
        await pipelines.update(made.id, description="y", expected=1)
    await pipelines.update(made.id, name="shop")
    assert [each.name for each in await pipelines.list()] == ["returns", "shop"]
    await pipelines.create("orders")


async def test_a_watcher_sees_every_change_of_a_pipeline(store: Store) -> None:
    pipelines = catalog(store)
    async with aclosing(pipelines.watch()) as seen:
        assert await anext(seen) == []
        made = await complete(pipelines)
        while not (now := await anext(seen)) or now[0].revision == 0:
            pass
        await pipelines.set_state(made.id, desired="started")
        while (await anext(seen))[0].state.desired != "started":
            pass


async def test_old_revisions_are_removed_unless_an_unfinished_range_needs_them(store: Store) -> None:
    pipelines = catalog(store, recipes_kept=2)
    made = await complete(pipelines)
    registry = RegistryStore(
        store,
        clock=RealClock(),
        random=SystemRandom(),
        settings=RegistrySettings(namespace=registry_namespace(made.id, 1), partitions=1),
    )
    await registry.initialize()
    assert await registry.claim(0, "worker", 0)
    intent = msgspec.json.encode(RangeIntent(start=0, end=10, revision=2)).decode()
    for size in range(1, 8):
        if size == 3:
            assert await registry.begin_range(0, "worker", 1, intent)
        await pipelines.put_part(made.id, "sink", {**SINK, "batchSize": size})
    prefix = revisions_prefix(made.id)
    kept = [int(entry.key.rpartition("/")[2]) for entry in (await store.scan(prefix, prefix_end(prefix))).entries]
    assert kept == [2, 7, 8]
    with pytest.raises(InvalidError, match="invalid revision of pipeline 'orders' 3: must be at most 8"):
        await pipelines.revision(made.id, 3)


async def test_a_rewind_retires_the_live_generation_and_numbers_never_come_back(store: Store) -> None:
    pipelines = catalog(store, generations_max=4, backfills_max=1)
    made = await complete(pipelines)
    after, fresh = await pipelines.rewind(made.id, {0: 5, 1: 0}, delete_previous=True)
    assert (fresh.number, fresh.starts, fresh.replaces, fresh.delete_previous) == (2, {"0": 5, "1": 0}, 1, True)
    assert [each.retired for each in after.generations] == [True, False]
    for number in range(3, 8):
        after, fresh = await pipelines.rewind(made.id, {0: number})
        assert fresh.number == number
    assert [each.number for each in after.generations] == [4, 5, 6, 7]
    assert live_generation(after) == fresh


async def test_generations_that_a_rewind_is_to_delete_are_not_dropped(store: Store) -> None:
    pipelines = catalog(store, generations_max=4, backfills_max=2)
    made = await complete(pipelines)

    async def backfill() -> None:
        _, fresh = await pipelines.backfill(made.id, {0: 0}, {0: 1})
        await pipelines.retire(made.id, fresh.number)

    for _ in range(3):
        await backfill()
    _, fresh = await pipelines.rewind(made.id, {0: 0}, delete_previous=True)
    for _ in range(3):
        await backfill()
    pending = await pipelines.get(made.id)
    assert [each.number for each in pending.generations] == [1, 2, 3, 4, 5, 8], "only backfills after it are dropped"
    await pipelines.previous_deleted(made.id, fresh.number)
    await backfill()
    after = await pipelines.get(made.id)
    assert [each.number for each in after.generations] == [4, 5, 8, 9]


async def test_a_pending_deletion_remembers_that_the_table_was_another_one(store: Store) -> None:
    pipelines = catalog(store)
    made = await complete(pipelines)

    async def tables(**sink: Any) -> tuple[str, ...]:
        after, _ = await pipelines.put_part(made.id, "sink", {**SINK, **sink})
        return after.generations[-1].tables

    assert await tables(table="elsewhere") == (), "nothing is to be deleted"
    await tables()
    _, fresh = await pipelines.rewind(made.id, {0: 0}, delete_previous=True)
    assert fresh.tables == ("127.0.0.1:8123/shop.orders",)
    assert await tables(dsn="http://other:word@127.0.0.1/shop", batchSize=500) == fresh.tables, "it is the same table"
    both = (*fresh.tables, "127.0.0.1:8123/shop.elsewhere")
    assert await tables(table="elsewhere") == both
    assert await tables() == both, "also if it is the first one again"


async def test_a_backfill_runs_beside_the_live_generation_until_it_is_retired(store: Store) -> None:
    pipelines = catalog(store, backfills_max=1)
    made = await complete(pipelines)
    _, fresh = await pipelines.backfill(made.id, {0: 5}, {0: 9})
    assert (fresh.kind, fresh.starts, fresh.ends) == ("backfill", {"0": 5}, {"0": 9})
    with pytest.raises(
        InvalidError, match=r"invalid number of backfills 2: must be at most 1 at a time: \[2\] are running"
    ):
        await pipelines.backfill(made.id, {0: 5}, {0: 9})
    with pytest.raises(InvalidError, match="a start below the end"):
        await pipelines.backfill(made.id, {0: 9}, {0: 9})
    with pytest.raises(InvalidError, match="the live generation is retired by a rewind only"):
        await pipelines.retire(made.id, 1)
    done = await pipelines.retire(made.id, 2)
    assert await pipelines.retire(made.id, 2) == done, "to retire twice is to retire once"
    assert [each.retired for each in done.generations] == [False, True]
    with pytest.raises(InvalidError, match="one of 1, 2"):
        await pipelines.retire(made.id, 3)


async def test_another_topic_is_another_generation_and_only_when_stopped(store: Store) -> None:
    pipelines = catalog(store)
    made = await complete(pipelines)
    await pipelines.set_state(made.id, desired="started")
    with pytest.raises(NotReadyError, match="changing the source of 'orders' is refused: it is started: stop it first"):
        await pipelines.put_part(made.id, "source", {"topic": "returns"})
    await pipelines.set_state(made.id, desired="stopped")
    after, _ = await pipelines.put_part(made.id, "source", {"topic": "returns"})
    assert [(each.number, each.retired) for each in after.generations] == [(1, True), (2, False)]
    same, _ = await pipelines.put_part(made.id, "source", {"topic": "returns", "groupId": "g"})
    assert same.generations == after.generations, "where it reads from did not change"


async def read_to(store: Store, pipeline: Pipeline, checkpoint: int, topic_id: str) -> None:
    """Let the live generation read a topic with this id."""
    namespace = registry_namespace(pipeline.id, 1)
    clock, random = RealClock(), SystemRandom()
    registry = RegistryStore(
        store, clock=clock, random=random, settings=RegistrySettings(namespace=namespace, partitions=1)
    )
    await registry.initialize()
    await fix_source(store, namespace, SourceTopic("orders", topic_id), clock=clock, random=random)
    assert await registry.claim(0, "run", 0)
    assert await registry.update_checkpoint(0, "run", checkpoint, 1)
    assert await registry.release(0, "run", 1)


def from_brokers(*brokers: str) -> dict[str, Any]:
    return {**SOURCE, "brokers": list(brokers)}


@pytest.mark.parametrize("brokers", [("k2:9092", "k1:9092"), ("k3:9092", "k2:9092"), ("k2:9092",)])
async def test_other_brokers_of_the_same_kafka_are_the_same_generation(store: Store, brokers: tuple[str, ...]) -> None:
    pipelines = catalog(store)
    made = await complete(pipelines)
    await pipelines.put_part(made.id, "source", from_brokers("k1:9092", "k2:9092"))
    before = await pipelines.get(made.id)
    after, _ = await pipelines.put_part(made.id, "source", from_brokers(*brokers))
    assert after.generations == before.generations


async def test_brokers_that_share_none_are_told_apart_by_the_topic_id(store: Store) -> None:
    pipelines = catalog(store)
    made = await pipelines.create("orders")
    await pipelines.put_parts(made.id, {"source": from_brokers("k1:9092"), "sink": SINK, "mapping": MAPPING})
    await read_to(store, made, 1_000, topic_id="t1")
    after, _ = await pipelines.put_part(made.id, "source", from_brokers("other:9092"))
    assert after.generations == made.generations
    await pipelines.set_state(made.id, desired="started")
    with pytest.raises(NotReadyError, match="it is started: stop it first"):
        await pipelines.put_part(made.id, "source", from_brokers("k1:9092"))


async def test_without_a_topic_id_brokers_that_share_none_need_a_rewind(store: Store) -> None:
    pipelines = catalog(store)
    made = await pipelines.create("orders")
    await pipelines.put_parts(made.id, {"source": from_brokers("k1:9092"), "sink": SINK, "mapping": MAPPING})
    await read_to(store, made, 1_000, topic_id="")
    _, backfill = await pipelines.backfill(made.id, {0: 0}, {0: 9})
    after, _ = await pipelines.put_part(made.id, "source", from_brokers("other:9092"))
    assert [(each.number, each.brokers, each.retired) for each in after.generations] == [
        (1, ("k1:9092",), False),
        (backfill.number, ("k1:9092",), True),
    ]
    with pytest.raises(NotReadyError, match="it has read from k1:9092, and no topic id tells"):
        await pipelines.set_state(made.id, desired="started")
    back, _ = await pipelines.put_part(made.id, "source", from_brokers("k1:9092", "k2:9092"))
    assert live_generation(back) == live_generation(made), "they are its own again"
    await pipelines.put_part(made.id, "source", from_brokers("other:9092"))
    await pipelines.rewind(made.id, {0: 0})
    assert (await pipelines.set_state(made.id, desired="started")).state.desired == "started"


async def test_a_pipeline_that_has_read_nothing_starts_as_configured_at_other_brokers(store: Store) -> None:
    pipelines = catalog(store)
    made = await pipelines.create("orders")
    await pipelines.put_parts(made.id, {"source": from_brokers("k1:9092"), "sink": SINK, "mapping": MAPPING})
    after, _ = await pipelines.put_part(made.id, "source", from_brokers("other:9092"))
    assert [(each.number, each.retired) for each in after.generations] == [(1, True), (2, False)]


async def test_a_deleted_pipeline_leaves_nothing_and_its_name_is_free(store: Store) -> None:
    pipelines = catalog(store)
    made = await complete(pipelines)
    settings = RegistrySettings(namespace=registry_namespace(made.id, 1), partitions=200)
    registry = RegistryStore(store, clock=RealClock(), random=SystemRandom(), settings=settings)
    await registry.initialize()
    await store.commit(apply=[Put(status_prefix(made.id) + "1/0", b"{}")])
    await pipelines.set_state(made.id, desired="started")
    with pytest.raises(NotReadyError, match="deleting 'orders' is refused: it is started: stop it first"):
        await pipelines.delete(made.id)
    await pipelines.set_state(made.id, desired="stopped")
    assert await registry.claim(7, "run-1", 0)
    await store.commit(apply=[Put(holder_key(slot_resource(made.id, 0)), b'{"holder":"w","epoch":1}')])
    with pytest.raises(NotReadyError, match="slot 0 is still held by a worker; partitions are still owned by run-1"):
        await pipelines.delete(made.id)
    await registry.release(7, "run-1", 1)
    await store.commit(apply=[Delete(holder_key(slot_resource(made.id, 0)))])
    await pipelines.delete(made.id)
    assert [entry.key for entry in (await store.scan("pipeline", prefix_end("pipeline"))).entries] == []
    assert (await store.scan("registry/", prefix_end("registry/"))).entries == ()
    with pytest.raises(UnknownPipelineError, match="does not exist"):
        await pipelines.delete(made.id)
    await pipelines.create("orders")


class DiesAfter:
    """A store whose process dies right before its n-th commit."""

    def __init__(self, store: Store, commits: int) -> None:
        self._store, self._left = store, commits

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def commit(
        self, *, require: Sequence[Requirement] = (), apply: Sequence[Operation] = ()
    ) -> Committed | Conflict:
        if self._left == 0:
            raise KeyboardInterrupt
        self._left -= 1
        return await self._store.commit(require=require, apply=apply)


@pytest.mark.parametrize("commits", [0, 1, 2, 3])
async def test_a_delete_that_dies_half_way_is_all_or_is_finished_by_the_next_sweep(store: Store, commits: int) -> None:
    pipelines = catalog(store)
    made = await complete(pipelines)
    settings = RegistrySettings(namespace=registry_namespace(made.id, 1), partitions=100)
    await RegistryStore(store, clock=RealClock(), random=SystemRandom(), settings=settings).initialize()
    with pytest.raises(KeyboardInterrupt):
        await catalog(DiesAfter(store, commits)).delete(made.id)
    there = bool((await store.scan(PIPELINES, prefix_end(PIPELINES))).entries)
    assert there == (commits == 0)
    assert await pipelines.sweep() == (0 if there else 1)
    if there:
        assert (await pipelines.revision(made.id, 1)).version == 1
    else:
        assert (await store.scan("pipeline", prefix_end("pipeline"))).entries == ()
        assert (await store.scan("registry/", prefix_end("registry/"))).entries == ()
    assert (await store.scan(DELETED, prefix_end(DELETED))).entries == ()


async def test_a_save_whose_answer_is_lost_is_done_once(store: Store) -> None:
    faulty = FaultyStore(store, random=SystemRandom())
    pipelines = catalog(faulty)
    made = await complete(pipelines)
    faulty.lose_answer_to("pipeline-part/")
    after, part = await pipelines.put_part(made.id, "mapping", WIDER, expected=1)
    assert (after.revision, part.version) == (2, 2)
    faulty.lose_request("pipeline-name/")
    assert (await pipelines.create("returns")).name == "returns"


async def test_an_unavailable_store_is_reported(store: Store) -> None:
    faulty = FaultyStore(store, random=SystemRandom())
    made = await complete(catalog(faulty))
    faulty.reachable = False
    with pytest.raises(UnavailableError):
        await catalog(faulty).get(made.id)
