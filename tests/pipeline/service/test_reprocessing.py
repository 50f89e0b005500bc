"""Rewinds and backfills: where they begin, what is refused, and when the rows they replace go."""

import asyncio
import re
from typing import Any

import msgspec
import pytest
from tests.support.pipeline_service import PipelineServiceHarness

from holdfast.client.kafka_topic_ids import KafkaTopicIds
from holdfast.contracts.store import Delete, Put
from holdfast.kernel.keys import holder_key
from holdfast.pipeline.model.definition import Pipeline, RangeIntent, live_generation, registry_namespace, slot_resource
from holdfast.pipeline.model.errors import EditConflictError, NotReadyError
from holdfast.pipeline.service.dead_letter_table import DeadLetterTable
from holdfast.pipeline.service.rewind_rules import read_position
from holdfast.pipeline.service.row_deletion import FOR_EVER
from holdfast.pipeline.service.settings import ServiceSettings
from holdfast.registry.model import SourceTopic
from holdfast.registry.queries import fix_source
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.types import OffsetRange

pytestmark = pytest.mark.xdist_group("clickhouse")


async def filled(world: PipelineServiceHarness) -> Pipeline:
    """Ten records in partition 0, four in partition 1."""
    await world.topic(*(f'{{"id": {number}}}' for number in range(10)))
    await world.send(*(f'{{"id": {number}}}' for number in range(4)), partition=1)
    return await world.pipeline()


def test_positions_are_parsed() -> None:
    assert read_position("earliest") == "earliest"
    assert read_position("2026-11-15T08:30:00Z") == "2026-11-15T08:30:00Z"
    assert read_position({"0": 5, 1: 7}) == {0: 5, 1: 7}
    wrongs: tuple[object, ...] = ("yesterday", {}, None, 5)
    for wrong in wrongs:
        with pytest.raises(InvalidError, match="an ISO 8601 time, or an object of offsets by partition"):
            read_position(wrong)
    for offsets in ({"x": 5}, {"0": -1}, {"0": True}, {"0": "5"}):
        with pytest.raises(InvalidError, match="a whole number of at least 0"):
            read_position(offsets)
    assert OffsetRange(1, 2).end == 2


async def test_a_rewind_starts_at_the_given_position(world: PipelineServiceHarness) -> None:
    pipeline = await filled(world)
    for to, starts in (
        ("earliest", {"0": 0, "1": 0}),
        ("latest", {"0": 10, "1": 4}),
        ("2020-01-01", {"0": 0, "1": 0}),
        ("2100-01-01", {"0": 10, "1": 4}),
        ({0: 7, 1: 2}, {"0": 7, "1": 2}),
    ):
        after, fresh = await world.service.reprocessing.rewind(pipeline.id, to)
        assert fresh.starts == starts
        assert live_generation(after) == fresh
    with pytest.raises(InvalidError, match="invalid offset of partition 0 11: must be between 0 and 10"):
        await world.service.reprocessing.rewind(pipeline.id, {0: 11, 1: 0})
    with pytest.raises(InvalidError, match="invalid partition 2: must be between 0 and 1"):
        await world.service.reprocessing.rewind(pipeline.id, {2: 0})
    incomplete = await world.service.catalog.create("incomplete")
    with pytest.raises(NotReadyError, match="rewinding 'incomplete' is refused: source: not saved yet"):
        await world.service.reprocessing.rewind(incomplete.id, "earliest")


async def test_partitions_without_an_offset_continue_at_their_checkpoint(world: PipelineServiceHarness) -> None:
    pipeline = await filled(world)
    registry = await world.registry(pipeline, 1)
    await world.progress(registry, [8, 3])
    await world.service.start(pipeline.id)
    with pytest.raises(NotReadyError, match="the others advance while it is started: stop it first"):
        await world.service.reprocessing.rewind(pipeline.id, {0: 2})
    await world.service.stop(pipeline.id)
    slot = holder_key(slot_resource(pipeline.id, 0))
    await world.store.commit(apply=[Put(slot, b'{"holder":"w","epoch":1}')])
    with pytest.raises(NotReadyError, match="slot 0 is still held by a worker"):
        await world.service.reprocessing.rewind(pipeline.id, {0: 2})
    await world.store.commit(apply=[Delete(slot)])
    state = await registry.partition(1)
    assert state is not None
    assert await registry.claim(1, "run", state.epoch)
    intent = msgspec.json.encode(RangeIntent(start=3, end=4, revision=1)).decode()
    assert await registry.begin_range(1, "run", state.epoch + 1, intent)
    assert await registry.release(1, "run", state.epoch + 1)
    with pytest.raises(NotReadyError, match="partition 1 has an unfinished range"):
        await world.service.reprocessing.rewind(pipeline.id, {0: 2})
    _, fresh = await world.service.reprocessing.rewind(pipeline.id, {0: 2, 1: 3})
    assert fresh.starts == {"0": 2, "1": 3}
    left = await registry.partition(1)
    assert left is not None
    assert left.intent is not None
    await world.service.maintain()  # it will never be finished, and holds nothing back any more
    after = await registry.partition(1)
    assert after is not None
    assert (after.intent, after.checkpoint, after.epoch) == (None, left.checkpoint, left.epoch)


async def test_a_partition_that_was_never_read_begins_where_it_was_to_begin(world: PipelineServiceHarness) -> None:
    pipeline = await filled(world)
    _, untouched = await world.service.reprocessing.rewind(pipeline.id, {0: 2})
    assert untouched.starts == {"0": 2}, "partition 1 begins where the source says"
    await world.registry(pipeline, untouched.number)
    pinned = f"registry/{registry_namespace(pipeline.id, untouched.number)}/starts/00001"  # `latest`, as its first owner found it
    await world.store.commit(apply=[Put(pinned, b'{"offset":3}')])
    _, again = await world.service.reprocessing.rewind(pipeline.id, {0: 1})
    assert again.starts == {"0": 1, "1": 3}
    _, stated = await world.service.reprocessing.rewind(pipeline.id, {1: 0})
    assert stated.starts == {"0": 1, "1": 0}, "as the generation before was told"


async def test_checkpoints_of_a_recreated_topic_are_not_taken_for_offsets_of_the_new_one(
    world: PipelineServiceHarness,
) -> None:
    pipeline = await filled(world)
    await world.progress(await world.registry(pipeline, 1), [8, 3])
    namespace = registry_namespace(pipeline.id, 1)
    await fix_source(world.store, namespace, SourceTopic(world.name, "before"), clock=world.clock, random=world.random)
    with pytest.raises(NotReadyError, match="was deleted and recreated: give an offset for every partition"):
        await world.service.reprocessing.rewind(pipeline.id, {0: 2})
    with pytest.raises(NotReadyError, match="deletePrevious would delete rows that nothing replaces"):
        await world.service.reprocessing.rewind(pipeline.id, "earliest", delete_previous=True)
    _, fresh = await world.service.reprocessing.rewind(pipeline.id, "earliest")
    ids = KafkaTopicIds({"bootstrap.servers": world.node.kafka, "log_level": 2}, timeout_s=10)
    assert (fresh.starts, fresh.topic_id) == ({"0": 0, "1": 0}, await asyncio.to_thread(ids.of, world.name))
    _, backfill = await world.service.reprocessing.backfill(pipeline.id, "earliest")
    assert backfill.topic_id == fresh.topic_id


async def test_checkpoints_of_brokers_that_share_none_are_not_taken_for_offsets_of_the_new_ones(
    world: PipelineServiceHarness,
) -> None:
    await world.topic(*(f'{{"id": {number}}}' for number in range(10)))
    pipeline = await world.pipeline(source={"topic": world.name, "brokers": ["gone:9092"]})
    await world.progress(await world.registry(pipeline, 1), [8, 3])
    source = {"topic": world.name, "brokers": [world.node.kafka]}
    await world.service.catalog.put_parts(pipeline.id, {"source": source})
    with pytest.raises(NotReadyError, match="it has read from gone:9092, which may be another Kafka: give an offset"):
        await world.service.reprocessing.rewind(pipeline.id, {0: 2})
    with pytest.raises(NotReadyError, match="deletePrevious would delete rows that nothing replaces"):
        await world.service.reprocessing.rewind(pipeline.id, "earliest", delete_previous=True)
    _, fresh = await world.service.reprocessing.rewind(pipeline.id, "earliest")
    assert (fresh.starts, fresh.brokers) == ({"0": 0, "1": 0}, ())
    await world.service.start(pipeline.id)


async def test_a_rewind_of_an_outdated_version_is_refused(world: PipelineServiceHarness) -> None:
    pipeline = await filled(world)
    with pytest.raises(EditConflictError):
        await world.service.reprocessing.rewind(pipeline.id, "earliest", expected=pipeline.version - 1)


async def test_a_backfill_is_a_bounded_range(world: PipelineServiceHarness) -> None:
    pipeline = await filled(world)
    _, fresh = await world.service.reprocessing.backfill(pipeline.id, {0: 2, 1: 4}, {0: 5, 1: 4})
    assert (fresh.kind, fresh.starts, fresh.ends) == ("backfill", {"0": 2}, {"0": 5})
    status = await world.service.status(pipeline.id)
    assert [(each.number, each.kind, each.lag_rows, each.done) for each in status.generations] == [
        (1, "live", None, False),
        (2, "backfill", 3, False),
    ]
    with pytest.raises(InvalidError, match="one that contains offsets"):
        await world.service.reprocessing.backfill(pipeline.id, "latest", "latest")
    done = await world.service.reprocessing.cancel_backfill(pipeline.id, fresh.number)
    assert [each.retired for each in done.generations] == [False, True]


COLUMNS = "id, _pipeline, _generation, _topic, _partition, _offset"
ROW = f"INSERT INTO default.{{0}} ({COLUMNS}) SELECT number, '{{4}}', {{1}}, '{{0}}', {{2}}, number FROM numbers({{3}})"


async def counted(world: PipelineServiceHarness) -> str:
    return await world.ask(
        f"SELECT _generation, _partition, count(), min(_offset) FROM default.{world.name} GROUP BY ALL ORDER BY ALL FORMAT TSV"
    )


async def until_deleted(world: PipelineServiceHarness, pipeline: Pipeline) -> None:
    """Let maintenance run until the rows that a rewind replaces are gone."""
    while await world.service.reprocessing.delete_replaced(pipeline):
        await world.clock.sleep_ms(50)


async def test_what_a_rewind_replaces_goes_once_the_new_generation_has_passed_it(world: PipelineServiceHarness) -> None:
    pipeline = await filled(world)
    await world.service.inspection.create_table(pipeline.id)
    await world.progress(await world.registry(pipeline, 1), [10, 4])
    for partition, count in ((0, 10), (1, 4)):
        await world.ask(ROW.format(world.name, 1, partition, count, pipeline.id))
    await world.refuse(pipeline, (0, 3, "x", "bad"), (0, 7, "y", "bad"))
    after, fresh = await world.service.reprocessing.rewind(pipeline.id, {0: 6, 1: 0}, delete_previous=True)
    registry = await world.registry(pipeline, fresh.number)
    await world.progress(registry, [9, 4])
    assert await world.service.reprocessing.delete_replaced(after) == "partition 0 is at 9, generation 1 was at 10"
    assert (await counted(world)) == "1\t0\t10\t0\n1\t1\t4\t0"
    for partition, count in ((0, 10), (1, 4)):
        await world.ask(ROW.format(world.name, 2, partition, count, pipeline.id))
    state = await registry.partition(0)
    assert state is not None
    assert await registry.claim(0, "run", state.epoch)
    assert await registry.update_checkpoint(0, "run", 10, state.epoch + 1)
    while (await world.service.catalog.get(pipeline.id)).generations[-1].delete_previous:
        await world.service.maintain()
    assert (await counted(world)) == "1\t0\t6\t0\n2\t0\t10\t0\n2\t1\t4\t0"
    assert [each.offset for each in (await world.service.dead_letters.page(pipeline.id)).letters] == [3]
    assert await world.service.reprocessing.delete_replaced(await world.service.catalog.get(pipeline.id)) == ""
    fence = await world.ask(
        f"SELECT min(epoch), count() FROM default.holdfast_fence WHERE startsWith(k, '{pipeline.id}:1:') FORMAT TSV"
    )
    assert fence == f"{FOR_EVER}\t2", "nothing of the old generation can land behind the deletion"


async def test_rows_stay_while_a_worker_owns_a_partition_of_the_old_generation(
    world: PipelineServiceHarness,
) -> None:
    pipeline = await filled(world)
    old = await world.registry(pipeline, 1)
    assert await old.claim(1, "zombie", 0)
    after, fresh = await world.service.reprocessing.rewind(pipeline.id, "earliest", delete_previous=True)
    await world.progress(await world.registry(pipeline, fresh.number), [10, 4])
    why = await world.service.reprocessing.delete_replaced(after)
    assert why == "partition 1 of generation 1 is still owned by zombie"


async def test_rows_stay_while_a_backfill_that_began_before_the_rewind_is_not_done(
    world: PipelineServiceHarness,
) -> None:
    pipeline = await filled(world)
    await world.service.inspection.create_table(pipeline.id)
    await world.progress(await world.registry(pipeline, 1), [10, 4])
    _, backfill = await world.service.reprocessing.backfill(pipeline.id, {0: 0}, {0: 10})
    await world.progress(await world.registry(pipeline, backfill.number), [2])  # then its worker left
    await world.ask(ROW.format(world.name, backfill.number, 0, 2, pipeline.id))
    after, fresh = await world.service.reprocessing.rewind(pipeline.id, "earliest", delete_previous=True)
    await world.progress(await world.registry(pipeline, fresh.number), [10, 4])
    why = await world.service.reprocessing.delete_replaced(after)
    assert why == "backfill 2 is not done: its rows are deleted when it has ended or is cancelled"
    assert await counted(world) == "2\t0\t2\t0", "it is not fenced either"
    await until_deleted(world, await world.service.reprocessing.cancel_backfill(pipeline.id, backfill.number))
    assert await counted(world) == ""


async def test_rows_stay_until_the_new_generation_has_passed_every_older_one(world: PipelineServiceHarness) -> None:
    pipeline = await filled(world)
    await world.service.inspection.create_table(pipeline.id)
    await world.progress(await world.registry(pipeline, 1), [10, 4])
    await world.ask(ROW.format(world.name, 1, 0, 10, pipeline.id))
    _, second = await world.service.reprocessing.rewind(pipeline.id, "earliest")
    await world.progress(await world.registry(pipeline, second.number), [2, 4])
    after, third = await world.service.reprocessing.rewind(pipeline.id, "earliest", delete_previous=True)
    await world.progress(await world.registry(pipeline, third.number), [5, 4])
    why = await world.service.reprocessing.delete_replaced(after)
    assert why == "partition 0 is at 5, generation 1 was at 10", "not only the one that the rewind replaced"
    assert await counted(world) == "1\t0\t10\t0"


async def test_generations_of_another_topic_are_neither_waited_for_nor_deleted(world: PipelineServiceHarness) -> None:
    pipeline = await filled(world)
    await world.service.inspection.create_table(pipeline.id)
    await world.progress(await world.registry(pipeline, 1), [900, 4])
    namespace = registry_namespace(pipeline.id, 1)
    before = SourceTopic(world.name, "before")
    await fix_source(world.store, namespace, before, clock=world.clock, random=world.random)
    await world.service.reprocessing.rewind(pipeline.id, "earliest")
    for generation in (1, 2):
        await world.ask(ROW.format(world.name, generation, 0, 10, pipeline.id))
    await world.progress(await world.registry(pipeline, 2), [10, 4])
    after, fresh = await world.service.reprocessing.rewind(pipeline.id, "earliest", delete_previous=True)
    await world.progress(await world.registry(pipeline, fresh.number), [10, 4])
    await until_deleted(world, after)
    assert await counted(world) == "1\t0\t10\t0", "they are of the topic before"


async def test_rows_stay_if_the_sink_was_another_table_since_the_rewind(world: PipelineServiceHarness) -> None:
    pipeline = await filled(world)
    await world.service.inspection.create_table(pipeline.id)
    await world.progress(await world.registry(pipeline, 1), [10, 4])
    await world.ask(ROW.format(world.name, 1, 0, 10, pipeline.id))
    _, fresh = await world.service.reprocessing.rewind(pipeline.id, "earliest", delete_previous=True)
    for table in (f"{world.name}_b", world.name):
        await world.service.catalog.put_parts(pipeline.id, {"sink": {"table": table}})
    await world.progress(await world.registry(pipeline, fresh.number), [10, 4])
    after = await world.service.catalog.get(pipeline.id)
    why = await world.service.reprocessing.delete_replaced(after)
    assert f"the sink was default.{world.name} and default.{world.name}_b since the rewind" in why
    assert why in (await world.service.status(pipeline.id)).warnings
    assert await counted(world) == "1\t0\t10\t0"


async def test_a_deletion_is_begun_once_and_followed_until_it_is_done(world: PipelineServiceHarness) -> None:
    pipeline = await filled(world)
    await world.service.inspection.create_table(pipeline.id)
    await world.progress(await world.registry(pipeline, 1), [10, 4])
    await world.ask(ROW.format(world.name, 1, 0, 10, pipeline.id))
    after, fresh = await world.service.reprocessing.rewind(pipeline.id, "earliest", delete_previous=True)
    await world.progress(await world.registry(pipeline, fresh.number), [10, 4])
    await world.ask(f"SYSTEM STOP MERGES default.{world.name}")
    for service in (world.service, world.another(), world.service):
        why = await service.reprocessing.delete_replaced(after)
        assert re.fullmatch(rf"{world.name}: mutation mutation_\d+\.txt deletes the rows, parts to do: 1", why), why
    mutations = f"SELECT count() FROM system.mutations WHERE table = '{world.name}'"
    assert await world.ask(mutations) == "1"
    assert (await world.service.catalog.get(pipeline.id)).generations[-1].delete_previous
    await world.ask(f"SYSTEM START MERGES default.{world.name}")
    await until_deleted(world, after)
    assert (await world.ask(mutations), await counted(world)) == ("1", "")
    assert not (await world.service.catalog.get(pipeline.id)).generations[-1].delete_previous


async def test_a_replay_under_way_does_not_land_behind_the_deletion(
    world: PipelineServiceHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = await filled(world)
    await world.service.inspection.create_table(pipeline.id)
    await world.progress(await world.registry(pipeline, 1), [10, 4])
    await world.refuse(pipeline, (0, 3, '{"id": 3}', "it was too early"))
    after, fresh = await world.service.reprocessing.rewind(pipeline.id, "earliest", delete_previous=True)
    await world.progress(await world.registry(pipeline, fresh.number), [10, 4])
    loop, read = asyncio.get_running_loop(), DeadLetterTable.payloads

    def paused(self: DeadLetterTable, *step: Any) -> Any:
        """Between what a replay reads and what it writes, another process deletes to the end."""
        found = read(self, *step)
        asyncio.run_coroutine_threadsafe(until_deleted(world, after), loop).result(60)
        return found

    monkeypatch.setattr(DeadLetterTable, "payloads", paused)
    replayed = await world.service.dead_letters.replay(pipeline.id)
    assert (replayed.stored, replayed.more) == (0, False)
    assert not (await world.service.catalog.get(pipeline.id)).generations[-1].delete_previous
    assert await counted(world) == ""


async def test_rows_of_a_neighbour_in_the_same_table_are_not_deleted(world: PipelineServiceHarness) -> None:
    pipeline = await filled(world)
    await world.service.inspection.create_table(pipeline.id)
    await world.progress(await world.registry(pipeline, 1), [10, 4])
    for owner in (pipeline.id, "neighbour"):
        await world.ask(ROW.format(world.name, 1, 0, 10, owner))
    after, fresh = await world.service.reprocessing.rewind(pipeline.id, "earliest", delete_previous=True)
    await world.progress(await world.registry(pipeline, fresh.number), [10, 4])
    await until_deleted(world, after)
    assert await counted(world) == "1\t0\t10\t0"
    assert await world.ask(f"SELECT DISTINCT _pipeline FROM default.{world.name}") == "neighbour"


async def test_maintenance_runs_in_the_background_and_survives_an_unavailable_server(
    world: PipelineServiceHarness, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = await filled(world)
    await world.service.inspection.create_table(pipeline.id)
    await world.progress(await world.registry(pipeline, 1), [10, 4])
    await world.ask(ROW.format(world.name, 1, 0, 10, pipeline.id))
    _, fresh = await world.service.reprocessing.rewind(pipeline.id, "earliest", delete_previous=True)
    await asyncio.to_thread(world.clickhouse.freeze)
    try:
        service = world.another(ServiceSettings(upkeep_interval_ms=100, delete_timeout_ms=1_000))
        await world.progress(await world.registry(pipeline, fresh.number), [10, 4])
        async with service.running():
            while not any("deletion of replaced rows postponed" in each for each in caplog.messages):
                await world.clock.sleep_ms(50)
            await asyncio.to_thread(world.clickhouse.thaw)
            while (await service.catalog.get(pipeline.id)).generations[-1].delete_previous:
                await world.clock.sleep_ms(50)
    finally:
        await asyncio.to_thread(world.clickhouse.thaw)
    assert await counted(world) == ""


async def test_a_table_that_keeps_the_last_insert_is_neither_backfilled_nor_replayed(
    world: PipelineServiceHarness,
) -> None:
    """Old records inserted again would replace newer ones of the same key."""
    pipeline = await filled(world)
    sink = {"kind": "clickhouse", "table": world.name, "engine": "ReplacingMergeTree", "orderBy": ["id"]}
    await world.service.catalog.put_parts(pipeline.id, {"sink": sink})
    reason = "keeps the row that was inserted last: set versionColumn"
    with pytest.raises(NotReadyError, match=reason):
        await world.service.reprocessing.backfill(pipeline.id, "earliest", "latest")
    with pytest.raises(NotReadyError, match=reason):
        await world.service.dead_letters.replay(pipeline.id)
    await world.service.catalog.put_parts(pipeline.id, {"sink": {**sink, "versionColumn": "_offset"}})
    _, generation = await world.service.reprocessing.backfill(pipeline.id, "earliest", "latest")
    assert generation.starts == {"0": 0, "1": 0}
    await world.service.dead_letters.replay(pipeline.id)
