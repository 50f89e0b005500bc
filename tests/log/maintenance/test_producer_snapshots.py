"""Producers in footers: a snapshot, deltas behind it, and nobody who shortens or rewrites the log takes away what they need."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from unittest.mock import patch

import msgspec
import pytest
from tests.support.maintenance import COMPACT_NOW, HOUR_MS, CrashError, MaintenanceWorld, crash_at

from holdfast.contracts.store import Put
from holdfast.contracts.validation import prefix_end
from holdfast.log.batches import Record, encode
from holdfast.log.keys import LOGS
from holdfast.log.maintenance import apply_retention, compact, delete_records, merge_segments, roll_up_segment_keys
from holdfast.log.maintenance.segment_merge import FAN_IN
from holdfast.log.model import CleanupPolicy
from holdfast.log.partition.leading_partition import LeadingPartition
from holdfast.log.producer_snapshots import newest_snapshot_at
from holdfast.log.segments import ProducerSnapshot
from holdfast.vocabulary.random import SeededRandom
from holdfast.vocabulary.settings import KIB

MANY = 300  # more than it takes for deltas to be worth it


class Producers:
    """Idempotent producers that send one record after another to one partition."""

    def __init__(self, world: MaintenanceWorld) -> None:
        self.world, self.sequences = world, dict[int, int]()

    def batch(self, producer_id: int) -> bytes:
        sequence = self.sequences.get(producer_id, 0)
        self.sequences[producer_id] = sequence + 1
        record = Record(0, self.world.clock.now_ms(), b"k%d" % (producer_id % 7), b"v%d" % sequence)
        return encode([record], producer_id=producer_id, producer_epoch=0, base_sequence=sequence)

    async def send(self, partition: LeadingPartition, *producer_ids: int) -> None:
        for producer_id in producer_ids:
            await self.world.append_batch(partition, self.batch(producer_id))
            self.world.clock.advance_ms(1)


@pytest.fixture
def producers(world: MaintenanceWorld) -> Producers:
    return Producers(world)


def known(partition: LeadingPartition) -> Sequence[ProducerSnapshot]:
    return partition.producers_at(partition.next_offset)


async def reopened(world: MaintenanceWorld, partition: LeadingPartition) -> LeadingPartition:
    """The partition after a takeover, which knows exactly what was known before."""
    before = known(partition)
    again = await world.open()
    await again.recover_producers()
    assert known(again) == before
    return again


async def with_deltas(world: MaintenanceWorld, producers: Producers, *, deltas: int = 3) -> LeadingPartition:
    """A partition whose first segment has a snapshot, and the others deltas."""
    partition = await world.open()
    await producers.send(partition, *range(MANY))
    await world.publish(partition)
    for producer_id in range(deltas):
        await producers.send(partition, producer_id)
        await world.publish(partition)
    return partition


async def test_a_publication_has_the_producers_that_changed_not_all_of_them(
    world: MaintenanceWorld, producers: Producers
) -> None:
    partition = await with_deltas(world, producers)
    first, *others = [each.size_bytes for each in partition.segments.recent]
    assert first > MANY * 33
    assert max(others) < KIB
    await reopened(world, partition)


async def test_a_takeover_reads_two_footers_however_many_deltas_there_are(
    world: MaintenanceWorld, producers: Producers
) -> None:
    world.log_settings = replace(world.log_settings, producer_deltas_max=10)
    partition = await with_deltas(world, producers, deltas=25)
    snapshots = [at for at, each in enumerate(partition.segments.recent) if each.producers_since < 0]
    assert snapshots == [0, 11, 22]
    objects = world.objects
    with patch.object(objects, "get", wraps=objects.get) as gets:
        await reopened(world, partition)
    needed = {partition.segments.recent[at].object for at in (22, 25)}
    assert {call.args[0] for call in gets.call_args_list} == needed


async def test_another_snapshot_is_taken_when_half_of_the_producers_have_changed(
    world: MaintenanceWorld, producers: Producers
) -> None:
    partition = await with_deltas(world, producers, deltas=1)
    for _ in range(2):
        await producers.send(partition, *range(MANY // 2 - 10))
        await world.publish(partition)
    assert [each.producers_since >= 0 for each in partition.segments.recent] == [False, True, True, True]
    await producers.send(partition, *range(MANY // 2, MANY // 2 + 20))
    await world.publish(partition)
    assert partition.segments.recent[-1].producers_since == -1
    await reopened(world, partition)


async def test_the_segments_of_one_publication_build_on_one_snapshot(
    world: MaintenanceWorld, producers: Producers
) -> None:
    partition = await with_deltas(world, producers)
    partition.partition_config = replace(partition.partition_config, roll_bytes=100)
    await producers.send(partition, *range(10))
    await world.publish(partition)
    assert len(partition.segments.recent) > 5
    partition = await reopened(world, partition)
    # Joined without the last of them, which is the only one of its publication that has producers.
    newest = partition.segments.recent[-1].base_offset
    await compact(partition, COMPACT_NOW, world.context(), protect=lambda: newest)
    assert len(partition.segments.recent) == 2
    await reopened(world, partition)


async def test_a_delta_whose_publication_failed_is_in_the_next_one(
    world: MaintenanceWorld, producers: Producers
) -> None:
    partition = await with_deltas(world, producers)
    for producer_id in (50, 51):
        await producers.send(partition, producer_id)
        world.store.lose_request("/seg/")
        await world.passing(world.publisher().publish([partition]))
        await world.passing(world.publisher().publish([partition]))
    await producers.send(partition, 52)
    await world.publish(partition)
    await reopened(world, partition)


async def test_a_forgotten_producer_stays_forgotten_after_a_takeover(
    world: MaintenanceWorld, producers: Producers
) -> None:
    world.log_settings = replace(world.log_settings, producer_expiry_ms=HOUR_MS, producers_max=MANY)
    partition = await with_deltas(world, producers)
    world.clock.advance_ms(HOUR_MS // 2)
    await producers.send(partition, *range(150, MANY), *range(MANY, MANY + 10))  # ten too many
    await world.publish(partition)
    partition = await reopened(world, partition)
    assert len(known(partition)) == MANY
    world.clock.advance_ms(HOUR_MS // 2)
    await producers.send(partition, 200)
    await world.publish(partition)
    assert len(known(partition)) == 160
    await reopened(world, partition)


async def test_who_is_forgotten_because_there_are_too_many_is_counted_and_logged(
    world: MaintenanceWorld, producers: Producers, caplog: pytest.LogCaptureFixture
) -> None:
    world.log_settings = replace(world.log_settings, producers_max=10)
    partition = await world.open()
    await producers.send(partition, *range(12), 5, *range(20, 24))
    assert [each.producer_id for each in known(partition)] == [5, 7, 8, 9, 10, 11, 20, 21, 22, 23]
    await world.publish(partition)
    assert partition.counters.producers_evicted == 6
    assert any("6 most silent idempotent producers" in each for each in caplog.messages)
    await reopened(world, partition)


Step = Callable[[MaintenanceWorld, LeadingPartition], Awaitable[object]]


async def _retention_of_all_but_the_newest(world: MaintenanceWorld, partition: LeadingPartition) -> None:
    await delete_records(partition, partition.segments.recent[-1].base_offset, world.context())


async def _retention_of_everything(world: MaintenanceWorld, partition: LeadingPartition) -> None:
    await delete_records(partition, -1, world.context())


async def _compaction(world: MaintenanceWorld, partition: LeadingPartition) -> None:
    await compact(partition, COMPACT_NOW, world.context())


async def _compaction_in_small_runs(world: MaintenanceWorld, partition: LeadingPartition) -> None:
    world.settings = replace(world.settings, merge_bytes_max=16 * KIB)
    await compact(partition, COMPACT_NOW, world.context())


async def _index_roll_up(world: MaintenanceWorld, partition: LeadingPartition) -> None:
    world.log_settings = replace(world.log_settings, segment_keys_max=4)
    await roll_up_segment_keys(partition, world.context())


STEPS = [
    _retention_of_all_but_the_newest,
    _retention_of_everything,
    _compaction,
    _compaction_in_small_runs,
    _index_roll_up,
]


@pytest.mark.parametrize("step", STEPS)
async def test_what_deletes_or_rewrites_segments_leaves_the_snapshot_that_deltas_need(
    world: MaintenanceWorld, producers: Producers, step: Step
) -> None:
    partition = await with_deltas(world, producers, deltas=6)
    await step(world, partition)
    await world.settle()
    partition = await reopened(world, partition)
    for producer_id in (7, 8):  # and deltas on top of what is left of it
        await producers.send(partition, producer_id)
        await world.publish(partition)
        await world.settle()
        partition = await reopened(world, partition)
    await step(world, partition)
    await world.settle()
    await reopened(world, partition)


@pytest.mark.parametrize("step", STEPS)
async def test_a_publication_under_way_fits_what_was_deleted_or_rewritten_meanwhile(
    world: MaintenanceWorld, producers: Producers, step: Step
) -> None:
    partition = await with_deltas(world, producers, deltas=6)
    await producers.send(partition, 9)
    built, go_on = asyncio.Event(), asyncio.Event()
    put = world.objects.put

    async def held(key: str, parts: object) -> object:
        built.set()
        await go_on.wait()
        return await put(key, parts)  # type: ignore[arg-type]

    world.objects.put = held  # type: ignore[method-assign, assignment]
    publication = asyncio.ensure_future(world.publisher().publish([partition]))
    await built.wait()
    world.objects.put = put  # type: ignore[method-assign]
    await step(world, partition)
    go_on.set()
    assert await publication == []
    assert partition.segments.recent[-1].producers_since >= 0
    await world.settle()
    await reopened(world, partition)


async def test_merging_carries_the_snapshot_on(world: MaintenanceWorld, producers: Producers) -> None:
    partition = await with_deltas(world, producers, deltas=2 * FAN_IN)
    while await merge_segments(partition, CleanupPolicy(retention_ms=None), world.context()):
        await world.settle()
        partition = await reopened(world, partition)
    assert len(partition.segments.recent) < FAN_IN
    await producers.send(partition, 9)
    await world.publish(partition)
    await reopened(world, partition)


async def test_the_placeholder_of_a_snapshot_goes_when_another_one_is_there(
    world: MaintenanceWorld, producers: Producers
) -> None:
    partition = await with_deltas(world, producers, deltas=2)
    newest = partition.segments.recent[-1].base_offset
    for _ in range(2):
        await delete_records(partition, newest, world.context())
        assert [each.records for each in partition.segments.recent] == [0, 1]
    await producers.send(partition, *range(MANY))
    await world.publish(partition)
    await apply_retention(partition, CleanupPolicy(retention_ms=None), world.context())
    assert [each.records for each in partition.segments.recent] == [1, MANY]
    await world.settle()
    await reopened(world, partition)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
async def test_whatever_happens_to_a_log_its_producers_are_known_again(
    world: MaintenanceWorld, producers: Producers, seed: int
) -> None:
    world.log_settings = replace(
        world.log_settings,
        producer_delta_min=4,
        producer_deltas_max=5,
        producers_max=40,
        producer_expiry_ms=HOUR_MS,
        segment_keys_max=16,
        index_entries_max=16,
    )
    world.settings = replace(world.settings, merge_bytes_max=2 * KIB)
    chance = SeededRandom(seed).random
    partition = await world.open()
    kinds, merged = set[bool](), 0
    for _ in range(150):
        await producers.send(partition, *(chance.randrange(50) for _ in range(chance.randrange(1, 4))))
        partition.partition_config = replace(partition.partition_config, roll_bytes=chance.choice([100, 10_000]))
        await world.publish(partition)
        kinds.add(partition.segments.recent[-1].producers_since < 0)
        match chance.randrange(8):
            case 0:
                offset = chance.randrange(partition.start_offset, partition.next_offset + 1)
                await delete_records(partition, offset, world.context())
            case 1:
                await compact(partition, COMPACT_NOW, world.context())
            case 2:
                await roll_up_segment_keys(partition, world.context())
            case 3:
                world.clock.advance_ms(HOUR_MS // 4)
            case 4:
                partition = await reopened(world, partition)
            case 5:
                merged += await merge_segments(partition, CleanupPolicy(retention_ms=None), world.context())
        at = newest_snapshot_at(partition.segments.recent)
        assert at is not None
        assert partition.segments.recent[at].producers_since < 0
    assert kinds == {True, False}
    assert merged
    await world.settle()
    await reopened(world, partition)


async def test_deltas_follow_the_snapshot_that_an_older_release_left(
    world: MaintenanceWorld, producers: Producers
) -> None:
    partition = await world.open()
    await producers.send(partition, *range(MANY))
    await world.publish(partition)
    entries = (await world.memory.scan(LOGS, prefix_end(LOGS))).entries
    (listed,) = [each for each in entries if "/seg/" in each.key]
    older = {name: value for name, value in msgspec.json.decode(listed.value).items() if name != "producers_since"}
    await world.memory.commit(apply=[Put(listed.key, msgspec.json.encode(older))])
    partition = await reopened(world, partition)
    await producers.send(partition, 5)
    await world.publish(partition)
    assert [each.producers_since for each in partition.segments.recent] == [-1, MANY]
    await reopened(world, partition)


@pytest.mark.parametrize("step", STEPS)
async def test_a_crash_at_any_step_of_maintenance_leaves_the_producers_known(
    world: MaintenanceWorld, producers: Producers, step: Step
) -> None:
    world.log_settings = replace(world.log_settings, producer_delta_min=4)
    for crash in range(40):
        partition = await world.open()
        await producers.send(partition, *range(20))
        await world.publish(partition)
        for producer_id in range(5):
            await producers.send(partition, producer_id)
            await world.publish(partition)
        assert partition.segments.recent[-1].producers_since >= 0
        try:
            with crash_at(crash):
                await step(world, partition)
        except CrashError:
            await reopened(world, partition)
        else:
            await reopened(world, partition)
            return
    pytest.fail("it never came to its end")
