"""Workers on the memory store under a fake clock: who takes what, scaling, moving, and what an operator sees of it."""

import logging

import pytest
from tests.support.worker_cluster import WorkerCluster

from holdfast.contracts.store import Put
from holdfast.kernel.keys import HOLDERS, epoch_key
from holdfast.kernel.lease import read_epoch
from holdfast.log.topics import Topics
from holdfast.pipeline.catalog.keys import pipeline_key
from holdfast.pipeline.model.definition import Generation, KafkaConfig, registry_namespace
from holdfast.pipeline.model.driver_protocol import HaltSlot, RunSlot, SlotClaims
from holdfast.pipeline.model.secret_references import SecretReferences
from holdfast.pipeline.workers import worker
from holdfast.pipeline.workers.partition_count import count_partitions
from holdfast.registry.queries import fixed_starts
from holdfast.vocabulary.clock import Clock, FakeClock
from holdfast.vocabulary.errors import UnavailableError

pytestmark = pytest.mark.slow


async def lease_epochs(world: WorkerCluster, pipeline_id: str, slots: int) -> list[int]:
    return [read_epoch(await world.store.get(epoch_key(f"slot/{pipeline_id}/{number}"))) for number in range(slots)]


async def test_a_started_pipeline_runs(world: WorkerCluster) -> None:
    await world.pipeline("p")
    [ann] = world.hire("ann")
    await world.run_until(lambda: len(world.acting()) == 4)
    assert await world.holders("p") == {0: "ann"}
    assert await world.owners("p") == dict.fromkeys(range(4), "0")
    assert ann.driver.claims["p.1.0"].epochs == {"0": 1, "1": 1, "2": 1, "3": 1}


async def test_without_a_started_pipeline_there_is_no_driver_and_with_the_last_one_it_ends(
    world: WorkerCluster,
) -> None:
    await world.pipeline("p", desired="stopped")
    [ann] = world.hire("ann")
    await world.run_ms(30_000)
    assert ann.stage.behaviour.lives == 0
    await world.catalog.set_state("p", desired="started")
    await world.run_until(lambda: len(world.acting()) == 4)
    await world.catalog.set_state("p", desired="stopped")
    await world.run_until(lambda: not world.acting())
    await world.run_until(lambda: ann.stage.driver is None)
    assert await world.holders("p") == {}
    assert set((await world.owners("p")).values()) == {None}
    assert await world.statuses() == {}
    await world.run_ms(30_000)
    assert (await world.workers())["ann"].driver == "none"
    assert ann.stage.behaviour.lives == 1


async def test_the_log_names_pipelines_with_their_state_changes_and_reasons(
    world: WorkerCluster, caplog: pytest.LogCaptureFixture
) -> None:
    await world.pipeline("6f1c", partitions=2, name="orders")
    with caplog.at_level(logging.INFO, "holdfast.pipeline.workers"):
        [ann] = world.hire("ann")
        await world.run_until(lambda: len(world.acting()) == 2)
        await world.run_ms(3_000)
        ann.driver.report("6f1c.1.0", batches=0, blocked="table orders does not exist")
        await world.run_ms(1_000)
        ann.driver.report("6f1c.1.0", batches=1)
        ann.driver.fail("6f1c.1.0", "no such column", lasting=True)
        await world.run_ms(1_000)
        await world.catalog.set_state("6f1c", desired="stopped")
        await world.run_until(lambda: ann.stage.driver is None)
    story = [each for each in caplog.messages if "orders" in each or "Spark" in each]
    assert story == [
        "pipeline orders: started, slots: 1",
        "acquired slot 0 of pipeline orders, epoch 1",
        "starting a Spark driver",
        "Spark driver ready: Spark 4.3.0-acted",
        "pipeline orders, slot 0: partitions 0-1",
        "pipeline orders, slot 0: starting → running",
        "pipeline orders, slot 0: running → blocked: table orders does not exist",
        "pipeline orders, slot 0: blocked → running",
        "pipeline orders, slot 0: running → failed: no such column; retrying once the pipeline is edited",
        "pipeline orders: stopped",
        "released slot 0 of pipeline orders: the pipeline was stopped",
        "stopping the Spark driver: no slots",
    ]
    assert not any("6f1c" in each for each in caplog.messages), "names, not ids"


async def test_changes_wake_a_worker_without_waiting_for_its_interval(world: WorkerCluster) -> None:
    world.hire("ann", interval_ms=60_000, lease_ttl_ms=120_000)
    await world.run_ms(1_000)
    await world.pipeline("p")
    await world.run_until(lambda: len(world.acting()) == 4, within_ms=3_000)


async def test_slots_and_partitions_are_spread_over_workers(world: WorkerCluster) -> None:
    await world.pipeline("p", partitions=8, replicas=4)
    world.hire("ann", "bob")
    await world.run_until(lambda: len(world.acting()) == 8)
    await world.run_ms(30_000)
    assert sorted((await world.holders("p")).values()) == ["ann", "ann", "bob", "bob"]
    owners = list((await world.owners("p")).values())
    assert {slot: owners.count(slot) for slot in set(owners)} == {"0": 2, "1": 2, "2": 2, "3": 2}


async def test_many_pipelines_of_one_slot_are_spread_too(world: WorkerCluster) -> None:
    for name in "pqrstu":
        await world.pipeline(name, partitions=1)
    world.hire("ann", "bob", "cat")
    await world.run_until(lambda: len(world.acting()) == 6)
    await world.run_ms(40_000)
    held = [worker for name in "pqrstu" for worker in (await world.holders(name)).values()]
    assert {worker: held.count(worker) for worker in held} == {"ann": 2, "bob": 2, "cat": 2}


async def test_scaling_up_and_down_does_not_restart_other_slots(world: WorkerCluster) -> None:
    await world.pipeline("p", partitions=6)
    [ann] = world.hire("ann")
    await world.run_until(lambda: len(world.acting()) == 6)
    heard = ann.stage.behaviour.received
    await world.catalog.set_state("p", replicas=3)
    await world.run_until(lambda: len({slot for slot, claims in ann.driver.claims.items() if claims.epochs}) == 3)
    await world.run_until(lambda: len(world.acting()) == 6)
    assert await world.owners("p") == {0: "0", 1: "0", 2: "1", 3: "1", 4: "2", 5: "2"}
    assert await world.epochs("p") == {0: 1, 1: 1, 2: 3, 3: 3, 4: 3, 5: 3}
    await world.catalog.set_state("p", replicas=1)
    await world.run_until(lambda: len(ann.driver.claims) == 1 and len(world.acting()) == 6)
    assert await world.owners("p") == dict.fromkeys(range(6), "0")
    assert await world.epochs("p") == {0: 1, 1: 1, 2: 5, 3: 5, 4: 5, 5: 5}
    of_slot_0 = [each for each in heard if isinstance(each, RunSlot | HaltSlot) and each.slot == "p.1.0"]
    assert len(of_slot_0) == 1, "slot 0 was told to run once and never to halt"
    assert await lease_epochs(world, "p", 3) == [1, 1, 1]
    assert ann.stage.behaviour.lives == 1


async def test_scaling_over_three_workers_and_back(world: WorkerCluster) -> None:
    await world.pipeline("p", partitions=6)
    world.hire("ann", "bob", "cat")
    await world.run_until(lambda: len(world.acting()) == 6)
    [first] = (await world.holders("p")).values()
    await world.catalog.set_state("p", replicas=3)
    await world.run_until(lambda: len({worker for [(worker, _)] in world.acting().values()}) == 3)
    await world.run_until(lambda: len(world.acting()) == 6)
    assert (await world.holders("p"))[0] == first
    await world.catalog.set_state("p", replicas=1)
    await world.run_until(lambda: len({worker for [(worker, _)] in world.acting().values()}) == 1)
    await world.run_until(lambda: len(world.acting()) == 6)
    assert await world.holders("p") == {0: first}
    assert (await world.epochs("p"))[0] == 1


async def test_slots_move_to_a_newcomer_one_at_a_time(world: WorkerCluster) -> None:
    await world.pipeline("p", partitions=4, replicas=4)
    [ann] = world.hire("ann")
    await world.run_until(lambda: len(world.acting()) == 4)
    [bob] = world.hire("bob")
    await world.run_ms(5_000)
    assert set((await world.holders("p")).values()) == {"ann"}, "newcomers are given time to settle"
    await world.run_until(lambda: len(world.acting()) == 4 and bob.stage.driver is not None)
    await world.run_ms(40_000)
    assert sorted((await world.holders("p")).values()) == ["ann", "ann", "bob", "bob"]
    assert len(world.acting()) == 4
    moved = {number for number, worker in (await world.holders("p")).items() if worker == "bob"}
    assert await lease_epochs(world, "p", 4) == [2 if number in moved else 1 for number in range(4)]
    halted = {each.slot for each in ann.stage.behaviour.received if isinstance(each, HaltSlot)}
    assert halted == {f"p.1.{number}" for number in moved}, "nobody else was disturbed"
    epochs = await world.epochs("p")
    assert sorted(epochs.values()) == [1, 1, 3, 3], "a slot that moves takes its partitions along"


async def test_partitions_do_not_wait_for_a_spark_that_is_starting(world: WorkerCluster) -> None:
    await world.pipeline("p", partitions=4)
    world.hire("ann")
    await world.run_until(lambda: len(world.acting()) == 4)
    [bob] = world.hire("bob")
    bob.stage.behaviour.start_ms = 60_000
    await world.run_ms(3_000)
    await world.catalog.set_state("p", replicas=2)
    await world.run_until(lambda: bob.stage.driver)
    assert await world.holders("p") == {0: "ann", 1: "bob"}
    for _ in range(50):
        await world.run_ms(1_000)
        assert len(world.acting()) == 4, "all are read while bob's Spark starts"
    await world.run_until(lambda: {actor for [(actor, _)] in world.acting().values()} == {"ann", "bob"})


async def test_a_partition_moves_only_after_its_driver_released_it(world: WorkerCluster) -> None:
    await world.pipeline("p", partitions=4)
    [ann] = world.hire("ann")
    ann.stage.behaviour.release_ms = 60_000
    await world.run_until(lambda: len(world.acting()) == 4)
    await world.catalog.set_state("p", replicas=2)
    await world.run_until(lambda: len(ann.driver.claims["p.1.0"].epochs) == 2)
    await world.run_ms(50_000)
    view = await world.view("p")
    assert [view.partitions[number].owner for number in (2, 3)] == ["p.1.0", "p.1.0"]
    assert sorted(view.heartbeats) == [0, 1, 2, 3]
    await world.run_until(lambda: len(world.acting()) == 4)
    assert await world.owners("p") == {0: "0", 1: "0", 2: "1", 3: "1"}


async def test_a_graceful_stop_hands_over_without_waiting_for_the_ttl(world: WorkerCluster) -> None:
    await world.pipeline("p", partitions=4)
    world.hire("ann", "bob")
    await world.run_until(lambda: len(world.acting()) == 4)
    [holder] = (await world.holders("p")).values()
    other = "bob" if holder == "ann" else "ann"
    world.hired[holder].leave()
    await world.run_until(lambda: {actor for [(actor, _)] in world.acting().values()} == {other}, within_ms=6_000)
    assert holder not in await world.workers()
    assert world.hired[holder].stage.driver is None


async def test_max_slots_per_pipeline_is_kept_and_slots_without_room_are_logged(
    world: WorkerCluster, caplog: pytest.LogCaptureFixture
) -> None:
    await world.pipeline("p", partitions=6, replicas=5)
    world.hire("ann", "bob", slots_per_pipeline_max=2)
    await world.run_until(lambda: len(world.acting()) == 6)
    await world.run_ms(30_000)
    assert sorted((await world.holders("p")).values()) == ["ann", "ann", "bob", "bob"]
    assert await world.all_owned("p"), "the partitions of a slot nobody has room for are shared among the rest"
    assert any("no worker has room for it" in each for each in caplog.messages)


async def test_replicas_are_capped_by_partitions_with_a_warning(
    world: WorkerCluster, caplog: pytest.LogCaptureFixture
) -> None:
    await world.pipeline("p", partitions=2, replicas=5)
    world.hire("ann")
    await world.run_until(lambda: len(world.acting()) == 2)
    assert await world.holders("p") == {0: "ann", 1: "ann"}
    warning = "replicas 5 capped at 2, the partitions of the source"
    await world.run_until(lambda: world.statuses("p"))
    assert (await world.statuses("p"))["0"].warnings == (warning,)
    assert sum(warning in each for each in caplog.messages) == 1, "once, not in every pass"


async def test_a_query_has_one_slot_with_one_claim_whatever_its_sources_have(world: WorkerCluster) -> None:
    await world.pipeline("p", partitions=6, replicas=3, engine="structured-streaming")
    world.hire("ann", "bob")
    await world.run_until(lambda: len(world.acting()) == 1)
    await world.run_ms(10_000)
    assert list(await world.holders("p")) == [0]
    assert list(world.acting()) == [("p.1", "0")]
    assert (await world.statuses("p"))["0"].warnings == ("replicas 3 is ignored: a query runs in one slot",)


async def test_a_missing_topic_blocks_its_pipeline_with_the_reason_until_it_exists(world: WorkerCluster) -> None:
    await world.pipeline("p", topic=False, replicas=3)
    await world.pipeline("q")
    world.hire("ann")
    await world.run_until(lambda: len(world.acting()) == 4)
    await world.run_ms(3_000)
    status = (await world.statuses("p"))["0"]
    assert (status.state, status.reason) == ("blocked", "topic 'topic-p' does not exist")
    assert list(await world.statuses("p")) == ["0"]
    await world.topics.create("topic-p", 3)
    await world.run_until(lambda: len(world.acting()) == 7)
    assert len(await world.holders("p")) == 3


async def test_kafkas_that_do_not_respond_stop_no_other_pipeline(
    world: WorkerCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def count(source: KafkaConfig, topics: Topics, *, clock: Clock, secrets: SecretReferences) -> int:
        if source.brokers:
            await clock.sleep_ms(5_000)
            raise UnavailableError("Kafka", "timed out")
        return await count_partitions(source, topics, clock=clock, secrets=secrets)

    monkeypatch.setattr(worker, "count_partitions", count)
    await world.pipeline("p", partitions=4)
    world.hire("ann")
    await world.run_until(lambda: len(world.acting()) == 4)
    for number in range(12):
        await world.pipeline(f"dead{number}", topic=False, brokers=("elsewhere:9092",))
    for _ in range(600):
        await world.run_ms(100)
        assert len(world.acting()) == 4
    status = (await world.statuses("dead7"))["0"]
    assert (status.state, "reachable brokers" in status.reason) == ("blocked", True)


async def test_a_source_elsewhere_is_counted_in_the_background(
    world: WorkerCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def count(source: KafkaConfig, topics: Topics, *, clock: Clock, secrets: SecretReferences) -> int:
        await clock.sleep_ms(1_000)
        return 3

    monkeypatch.setattr(worker, "count_partitions", count)
    await world.pipeline("p", topic=False, replicas=2, brokers=("elsewhere:9092",))
    world.hire("ann")
    await world.run_until(lambda: len(world.acting()) == 3)
    assert len(await world.holders("p")) == 2


async def test_a_backfill_runs_beside_the_live_generation_and_is_retired_at_its_ends(world: WorkerCluster) -> None:
    backfill = Generation(number=2, kind="backfill", starts={"0": 5, "1": 0}, ends={"0": 9, "1": 3})
    await world.pipeline("p", partitions=2, generations=(Generation(number=1), backfill))
    [ann] = world.hire("ann")
    await world.run_until(lambda: len(world.acting()) == 4)
    registry = world.registry("p", 2, partitions=2)
    epochs = ann.driver.claims["p.2.0"].epochs
    assert await registry.update_checkpoint(0, "p.2.0", 9, epochs["0"])
    assert await registry.begin_range(1, "p.2.0", epochs["1"], '{"start":0,"end":3}')
    ann.driver.finish("p.2.0")
    await world.run_ms(6_000)
    assert not (await world.catalog.get("p")).generations[1].retired, "a range that was begun is not finished"
    assert await registry.update_checkpoint(1, "p.2.0", 3, epochs["1"])
    await world.run_until(lambda: len(world.acting()) == 2)
    assert [each.retired for each in (await world.catalog.get("p")).generations] == [False, True]
    assert [each.slot for each in ann.stage.behaviour.received if isinstance(each, HaltSlot)] == ["p.2.0"]
    assert set((await world.owners("p", 2)).values()) == {None}


async def test_partitions_added_to_the_source_are_claimed_and_give_room_for_more_slots(world: WorkerCluster) -> None:
    await world.pipeline("p", partitions=2, replicas=3)
    [ann, bob] = world.hire("ann", "bob")
    await world.run_until(lambda: len(world.acting()) == 2)
    await world.topics.add_partitions("topic-p", 5)
    driver = next(each.driver for each in (ann, bob) if "p.1.0" in each.driver.claims)
    driver.report("p.1.0", batches=1, source_partitions=5)
    await world.run_until(lambda: len(world.acting()) == 5)

    async def spread() -> bool:
        return set((await world.owners("p")).values()) == {"0", "1", "2"}

    await world.run_until(spread)
    assert set((await world.holders("p")).values()) == {"ann", "bob"}
    assert await fixed_starts(world.store, registry_namespace("p", 1)) == {2: 0, 3: 0, 4: 0}


async def test_a_backfill_does_not_grow_with_its_source(world: WorkerCluster) -> None:
    backfill = Generation(number=2, kind="backfill", starts={"0": 5}, ends={"0": 9})
    await world.pipeline("p", partitions=2, generations=(Generation(number=1), backfill))
    [ann] = world.hire("ann")
    await world.run_until(lambda: len(world.acting()) == 4)
    await world.topics.add_partitions("topic-p", 3)
    for slot in ("p.1.0", "p.2.0"):
        ann.driver.report(slot, batches=1, source_partitions=3)
    await world.run_until(lambda: len(world.acting()) == 5)
    await world.run_ms(10_000)
    assert (len(await world.owners("p", 1)), len(await world.owners("p", 2))) == (3, 2)


async def test_a_worker_that_restarts_knows_of_added_partitions(world: WorkerCluster) -> None:
    await world.pipeline("p", partitions=2)
    [ann] = world.hire("ann")
    await world.run_until(lambda: len(world.acting()) == 2)
    await world.topics.add_partitions("topic-p", 3)
    ann.driver.report("p.1.0", batches=1, source_partitions=3)
    await world.run_until(lambda: len(world.acting()) == 3)
    ann.crash()
    world.hire("bob")
    await world.run_until(lambda: len(world.acting()) == 3)


async def test_a_rewind_halts_the_old_generation_and_runs_the_next(world: WorkerCluster) -> None:
    await world.pipeline("p")
    [ann] = world.hire("ann")
    await world.run_until(lambda: len(world.acting()) == 4)
    await world.catalog.rewind("p", {0: 7})
    await world.run_until(lambda: {piece[0] for piece in world.acting()} == {"p.2"} and len(world.acting()) == 4)
    assert ann.stage.behaviour.lives == 1
    assert await lease_epochs(world, "p", 1) == [1]


async def test_a_worker_adopts_what_a_dead_one_left_in_a_retired_generation(world: WorkerCluster) -> None:
    await world.pipeline("p", partitions=2)
    [ann] = world.hire("ann")
    await world.run_until(lambda: len(world.acting()) == 2)
    registry = world.registry("p")
    assert await registry.begin_range(0, "p.1.0", 1, '{"start": 0, "end": 5, "recipe": 1, "topic": "topic-p"}')
    ann.crash()
    await world.catalog.rewind("p", {0: 0, 1: 0})
    world.hire("bob")
    await world.run_until(lambda: {piece[0] for piece in world.acting()} == {"p.2"})
    await world.run_ms(60_000)
    left = await registry.partitions()
    assert [(each.owner, each.intent, each.epoch) for each in left] == [(None, None, 2), (None, None, 2)]
    assert {piece[0] for piece in world.acting()} == {"p.2"}, "and what runs goes on"


async def test_the_published_records_of_a_worker(world: WorkerCluster) -> None:
    await world.pipeline("p", partitions=2)
    [ann] = world.hire("ann")
    await world.run_until(lambda: len(world.acting()) == 2)
    ann.driver.report("p.1.0", batches=3, rows=500)
    await world.run_ms(4_000)
    status = (await world.statuses("p"))["0"]
    assert (status.state, status.rows, status.batches, status.worker_id, status.epoch) == ("running", 500, 3, "ann", 1)
    assert status.epochs == {"0": 1, "1": 1}
    assert status.partitions["1"].checkpoint == 500
    ann.driver.report("p.1.0", batches=3, rows=500, blocked="the table is missing")
    await world.run_ms(4_000)
    status = (await world.statuses("p"))["0"]
    assert (status.state, status.reason) == ("blocked", "the table is missing")
    worker = (await world.workers())["ann"]
    assert (worker.driver, worker.spark_version, worker.slots) == ("ready", "4.3.0-acted", ("slot/p/0",))
    assert worker.lease_until_ms is not None
    assert 0 < worker.lease_until_ms - world.clock.now_ms() <= 20_000
    await world.run_ms(20_000)
    later = (await world.workers())["ann"].lease_until_ms
    assert later is not None
    assert later > worker.lease_until_ms, "told again at every interval"


async def test_a_status_is_written_at_most_every_two_seconds(world: WorkerCluster) -> None:
    await world.pipeline("p", partitions=1)
    [ann] = world.hire("ann")
    await world.run_until(lambda: len(world.acting()) == 1)
    await world.run_ms(5_000)
    seen = set()
    for batch in range(100):
        ann.driver.report("p.1.0", batches=batch, rows=batch)
        await world.run_ms(100)
        seen.add((await world.statuses("p"))["0"].rows)
    assert 4 <= len(seen) <= 6


async def test_without_leases_every_worker_runs_one_instance_and_partitions_are_still_claimed(
    world: WorkerCluster, caplog: pytest.LogCaptureFixture
) -> None:
    await world.pipeline("p", partitions=6, replicas=2)
    world.hire("ann.1", "bob", no_leases=True)
    await world.run_until(lambda: len({actor for [(actor, _)] in world.acting().values()}) == 2)
    await world.run_until(lambda: len(world.acting()) == 6)
    assert await world.holders("p") == {}
    owners = list((await world.view("p")).partitions.values())
    assert sorted(str(each.owner) for each in owners) == ["p.1.~ann.1"] * 3 + ["p.1.~bob"] * 3
    assert {worker.mode for worker in (await world.workers()).values()} == {"no-leases"}
    statuses = await world.statuses("p")
    assert sorted(statuses) == ["~ann.1", "~bob"]
    warning = "replicas 2 ignored: workers without leases run one instance each"
    assert statuses["~bob"].warnings == (warning,)
    world.hired["bob"].crash()
    await world.run_until(lambda: {actor for [(actor, _)] in world.acting().values()} == {"ann.1"})
    await world.run_until(lambda: len(world.acting()) == 6, within_ms=40_000)


async def test_workers_with_and_without_leases_share_one_pipeline(world: WorkerCluster) -> None:
    await world.pipeline("p", partitions=4)
    world.hire("ann")
    world.hire("bob", no_leases=True)
    await world.run_until(lambda: len({actor for [(actor, _)] in world.acting().values()}) == 2)
    await world.run_until(lambda: len(world.acting()) == 4)
    assert sorted(set((await world.owners("p")).values()) - {None}) == ["0", "~bob"]  # type: ignore[type-var]


async def test_a_corrupt_registry_blocks_its_own_pipeline_only(world: WorkerCluster) -> None:
    await world.store.commit(apply=[Put("registry/pipeline-broken-1/meta", b'"what?"')])
    await world.pipeline("broken")
    await world.pipeline("p")
    world.hire("ann")
    await world.run_until(lambda: len(world.acting()) == 4)
    await world.run_ms(3_000)
    status = (await world.statuses("broken"))["0"]
    assert status.state == "blocked"
    assert "is corrupt" in status.reason


@pytest.mark.long  # what is encoded is in test_status_publisher.py
@pytest.mark.slow
async def test_the_status_of_a_slot_with_very_many_partitions_does_not_list_them(world: WorkerCluster) -> None:
    await world.pipeline("p", partitions=6_000)
    [ann] = world.hire("ann")
    await world.run_until(lambda: len(world.acting()) == 6_000)
    ann.driver.report("p.1.0", batches=1, rows=7)
    await world.run_ms(3_000)
    status = (await world.statuses("p"))["0"]
    assert (status.rows, status.epochs) == (7, {})
    assert status.warnings == ("6000 partitions are too many to list",)


async def test_a_malformed_record_is_ignored(world: WorkerCluster, caplog: pytest.LogCaptureFixture) -> None:
    await world.store.commit(apply=[Put(pipeline_key("broken"), b'{"id": 7}'), Put(HOLDERS + "slot/odd", b'{"a": 1}')])
    await world.pipeline("p")
    world.hire("ann")
    with caplog.at_level(logging.ERROR):
        await world.run_until(lambda: len(world.acting()) == 4)
    assert any("malformed record pipeline/broken ignored" in each for each in caplog.messages)


async def test_a_worker_whose_wall_clock_is_wrong_works_like_any_other(world: WorkerCluster) -> None:
    """click-sink compares the worker's clock with the database's."""
    await world.pipeline("p", partitions=4, replicas=2)
    world.hire("ann", "bob")
    await world.run_until(lambda: len(world.acting()) == 4)
    await world.run_ms(30_000)
    epochs = await world.epochs("p")
    assert isinstance(world.clock, FakeClock)
    for step_ms in (86_400_000, -200_000_000):
        world.clock.step_wall_ms(step_ms)
        await world.run_ms(30_000)
        assert await world.epochs("p") == epochs
        assert len(world.acting()) == 4


async def test_claims_are_sent_at_every_renewal_with_a_later_deadline(world: WorkerCluster) -> None:
    await world.pipeline("p")
    [ann] = world.hire("ann")
    await world.run_until(lambda: len(world.acting()) == 4)
    before = len(ann.stage.behaviour.received)
    await world.run_ms(20_000)
    said = [each.until_ms for each in ann.stage.behaviour.received[before:] if isinstance(each, SlotClaims)]
    assert said == sorted(said)
    assert 3 <= len(set(said)) <= 6
    assert all(each.until_ms <= world.clock.boot_ms() + 18_000 for each in ann.driver.claims.values())
