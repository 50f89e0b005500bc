"""Workers on the memory store under a fake clock: crashes, hung and dead drivers, lost sessions, failed slots.

`World.run_ms` checks at every step that no two drivers may act on one partition: below their deadlines, under whatever epochs.
"""

import pytest
from tests.support.worker_cluster import WorkerCluster

from holdfast.contracts.store import Delete, Put
from holdfast.kernel.keys import holder_key
from holdfast.kernel.lease import acquire
from holdfast.pipeline.catalog.worker_status import status_key
from holdfast.pipeline.model.driver_protocol import HaltSlot, RunSlot, SlotClaims
from holdfast.pipeline.model.errors import NotReadyError
from holdfast.vocabulary.clock import FakeClock

pytestmark = pytest.mark.slow

INTENT = '{"end":20,"recipe":1,"start":10}'


async def working(
    world: WorkerCluster, *names: str, partitions: int = 4, replicas: int = 1, **settings: object
) -> None:
    await world.pipeline("p", partitions=partitions, replicas=replicas)
    world.hire(*names, **settings)
    await world.run_until(lambda: len(world.acting()) == partitions)
    await world.run_ms(2_000)


def actors(world: WorkerCluster) -> set[str]:
    return {actor for [(actor, _)] in world.acting().values()}


async def holder(world: WorkerCluster) -> str:
    [name] = (await world.holders("p")).values()
    return name


async def other_than(world: WorkerCluster, name: str) -> str:
    return next(each for each in ("ann", "bob") if each != name)


async def test_an_expired_slot_is_taken_over_after_the_ttl_with_its_partitions_and_the_open_range(
    world: WorkerCluster,
) -> None:
    """click-sink's expired slots can never be taken over, and nothing tells an old holder from a new one."""
    await working(world, "ann", "bob")
    first = await holder(world)
    registry = world.registry("p")
    await registry.update_checkpoint(2, "p.1.0", 10, 1)
    await registry.begin_range(2, "p.1.0", 1, INTENT)
    world.hired[first].crash()
    await world.run_ms(15_000)
    assert world.acting() == {}, "before its TTL a dead worker's slot is nobody else's"
    second = await other_than(world, first)
    await world.run_until(lambda: actors(world) == {second} and len(world.acting()) == 4, within_ms=15_000)
    assert await world.holders("p") == {0: second}
    [assigned] = (await world.statuses("p")).values()
    assert (assigned.epoch, assigned.worker_id) == (2, second)
    state = (await world.view("p")).partitions[2]
    assert (state.checkpoint, state.intent, state.epoch) == (10, INTENT, 3)
    assert not await registry.update_checkpoint(2, "p.1.0", 20, 1), "what the dead one began it cannot finish"


async def test_a_worker_cut_off_from_the_store_stops_before_another_begins_and_resumes(world: WorkerCluster) -> None:
    await working(world, "ann", "bob")
    first = await holder(world)
    second = await other_than(world, first)
    until_ms = max(claims.until_ms for claims in world.hired[first].driver.claims.values())
    world.hired[first].store.reachable = False
    await world.run_until(lambda: first not in actors(world))
    assert world.clock.boot_ms() <= until_ms, "the deadline counts from the last renewal that was answered"
    assert second not in actors(world)
    await world.run_until(lambda: actors(world) == {second})
    world.hired[first].store.reachable = True
    await world.run_until(lambda: first in world.hired[first].world.hired and world.hired[first].worker is not None)
    await world.run_ms(40_000)
    assert first in await world.workers()
    assert world.hired[first].stage.behaviour.lives == 1, "Spark itself was never restarted"
    assert len(world.acting()) == 4


async def test_a_long_outage_of_the_store_is_told_in_two_lines(
    world: WorkerCluster, caplog: pytest.LogCaptureFixture
) -> None:
    await working(world, "ann")
    for _ in range(2):
        caplog.clear()
        world.hired["ann"].store.reachable = False
        await world.run_ms(120_000)
        told = [each for each in caplog.messages if each.startswith("worker ann ")]
        assert len(told) == 2, told
        assert told[0].startswith("worker ann lost its session, rejoining: ")
        assert told[1].startswith("worker ann cannot join, retrying: ")
        world.hired["ann"].store.reachable = True
        await world.run_until(lambda: len(world.acting()) == 4)


async def test_a_store_that_is_down_past_the_ttl_stops_all_workers_which_resume_afterwards(
    world: WorkerCluster,
) -> None:
    await working(world, "ann", "bob", replicas=2)
    for hired in world.hired.values():
        hired.store.reachable = False
    await world.run_ms(19_000)
    assert world.acting() == {}
    await world.run_ms(60_000)
    for hired in world.hired.values():
        hired.store.reachable = True
    await world.run_until(lambda: len(world.acting()) == 4, within_ms=40_000)
    assert [hired.stage.behaviour.lives for hired in world.hired.values()] == [1, 1]
    assert all(epoch > 1 for epoch in (await world.epochs("p")).values())


async def test_a_short_outage_stops_no_worker(world: WorkerCluster) -> None:
    await working(world, "ann")
    before = await world.epochs("p")
    for _ in range(3):
        world.hired["ann"].store.reachable = False
        await world.run_ms(8_000)
        world.hired["ann"].store.reachable = True
        await world.run_ms(10_000)
    assert await world.epochs("p") == before
    assert not any(isinstance(each, HaltSlot) for each in world.hired["ann"].stage.behaviour.received)


async def test_a_worker_whose_session_expired_stops_every_run_and_rejoins(world: WorkerCluster) -> None:
    """click-sink's renew ignores that nothing was renewed."""
    await working(world, "ann")
    ann = world.hired["ann"]
    ann.stage.behaviour.halt_ms = 3_000
    session = (await world.workers())["ann"].session
    await world.store.close_session(session)
    await world.run_until(lambda: any(isinstance(each, HaltSlot) for each in ann.stage.behaviour.received))
    await world.run_ms(2_000)
    assert "ann" not in await world.workers(), "nothing new before the old has halted"
    await world.run_until(world.workers)
    await world.run_until(lambda: len(world.acting()) == 4)
    assert (await world.workers())["ann"].session != session
    assert set((await world.epochs("p")).values()) == {3}
    assert ann.stage.behaviour.lives == 1


async def test_a_hung_driver_loses_its_work_to_another_worker_and_is_killed(world: WorkerCluster) -> None:
    """PXRS's coordinator heartbeats on consumers' behalf, so that a hung one stays alive."""
    await working(world, "ann", "bob")
    first = await holder(world)
    second = await other_than(world, first)
    world.hired[first].stage.behaviour.silent = True
    await world.run_until(lambda: actors(world) == {second}, within_ms=20_000)
    world.hired[first].stage.behaviour.silent = False
    await world.run_until(lambda: world.hired[first].stage.behaviour.lives == 2)
    await world.run_ms(60_000)
    worker = (await world.workers())[first]
    assert (worker.able, worker.trouble) == (True, "")
    assert await world.holders("p") == {0: second}, "what stands well stays where it is"


async def test_a_hung_driver_of_the_only_worker_is_restarted_and_its_slot_shows_the_reason(
    world: WorkerCluster,
) -> None:
    await working(world, "ann")
    ann = world.hired["ann"]
    ann.stage.behaviour.silent = True
    await world.run_until(lambda: ann.stage.driver is None)
    await world.run_until(lambda: world.statuses("p"))
    status = (await world.statuses("p"))["0"]
    assert status.state == "failed"
    assert "the Spark driver died: no heartbeat for" in status.reason
    worker = (await world.workers())["ann"]
    assert (worker.able, worker.driver) == (False, "restarting")
    assert set((await world.owners("p")).values()) == {None}
    ann.stage.behaviour.silent = False
    await world.run_until(lambda: len(world.acting()) == 4)
    assert (await world.workers())["ann"].able
    assert await world.holders("p") == {0: "ann"}


async def test_a_worker_that_was_frozen_does_not_kill_its_driver_for_missing_heartbeats(world: WorkerCluster) -> None:
    await working(world, "ann", "bob")
    first = await holder(world)
    assert isinstance(world.clock, FakeClock)
    world.clock.advance_ms(60_000)  # everybody is: nothing runs in between
    await world.run_ms(30_000)
    assert [hired.stage.behaviour.lives for hired in world.hired.values() if hired.name == first] == [1]
    await world.run_until(lambda: len(world.acting()) == 4)


async def test_leases_are_not_renewed_while_a_hung_driver_cannot_be_killed(world: WorkerCluster) -> None:
    await working(world, "ann", "bob")
    first = await holder(world)
    second = await other_than(world, first)
    behaviour = world.hired[first].stage.behaviour
    behaviour.silent = behaviour.unkillable = behaviour.deaf_to_halt = True
    await world.run_until(lambda: first not in actors(world), within_ms=60_000)
    await world.run_until(lambda: actors(world) == {second}, within_ms=60_000)
    assert first not in await world.workers()
    behaviour.unkillable = False
    world.hired[first].driver.die()


async def test_a_driver_that_keeps_dying_is_restarted_after_growing_pauses_and_the_worker_lives(
    world: WorkerCluster, caplog: pytest.LogCaptureFixture
) -> None:
    await world.pipeline("p")
    [ann] = world.hire("ann")
    ann.stage.behaviour.dies_at_start = True
    await world.run_ms(300_000)
    assert 6 <= ann.stage.behaviour.lives <= 12
    assert (await world.workers())["ann"].trouble == "no Spark for you"
    ann.stage.behaviour.dies_at_start = False
    await world.run_until(lambda: len(world.acting()) == 4)


async def test_a_worker_whose_spark_fails_leaves_its_slots_to_others(world: WorkerCluster) -> None:
    await world.pipeline("p", replicas=2)
    [ann, _] = world.hire("ann", "bob")
    ann.stage.behaviour.dies_at_start = True
    await world.run_until(lambda: len(world.acting()) == 4)
    await world.run_ms(120_000)
    assert await world.holders("p") == {0: "bob", 1: "bob"}
    ann.stage.behaviour.dies_at_start = False
    await world.run_until(lambda: actors(world) == {"ann", "bob"})
    await world.run_ms(30_000)
    assert sorted((await world.holders("p")).values()) == ["ann", "bob"]


async def test_a_driver_that_never_becomes_ready_is_killed(world: WorkerCluster) -> None:
    await world.pipeline("p")
    [ann] = world.hire("ann", start_ms=30_000)
    ann.stage.behaviour.start_ms = 1_000_000
    await world.run_ms(29_000)
    assert (await world.workers())["ann"].driver == "starting"
    await world.run_until(lambda: ann.stage.behaviour.lives == 2)
    assert "not up after 30000 ms" in (await world.workers())["ann"].trouble


async def test_a_driver_that_does_not_halt_in_time_is_killed(world: WorkerCluster) -> None:
    await working(world, "ann")
    ann = world.hired["ann"]
    ann.stage.behaviour.deaf_to_halt = True
    await world.catalog.set_state("p", desired="stopped")
    await world.run_ms(10_000)
    assert await world.holders("p") == {0: "ann"}, "while it may be at it, the slot is not given away"
    await world.run_until(lambda: not world.acting(), within_ms=10_000)
    await world.run_until(lambda: ann.stage.driver is None)
    await world.run_ms(2_000)
    assert await world.holders("p") == {}
    assert set((await world.owners("p")).values()) == {None}


async def test_a_failed_slot_is_retried_under_its_epochs_and_other_slots_continue(
    world: WorkerCluster,
) -> None:
    await working(world, "ann", replicas=2)
    ann = world.hired["ann"]
    epochs = await world.epochs("p")
    for attempt in range(1, 4):
        await world.run_until(lambda: "p.1.0" in ann.driver.runs)
        ann.driver.fail("p.1.0", "the sink said no")
        await world.run_ms(500)
        status = (await world.statuses("p"))["0"]
        assert (status.state, status.reason, status.attempts) == ("failed", "the sink said no", attempt)
        assert "p.1.1" in ann.driver.runs
    await world.run_until(lambda: "p.1.0" in ann.driver.runs)
    assert ann.driver.claims["p.1.0"].epochs == {"0": epochs[0], "1": epochs[1]}
    assert await world.epochs("p") == epochs
    ann.driver.report("p.1.0", batches=1)
    await world.run_ms(4_000)
    assert (await world.statuses("p"))["0"].attempts == 0
    assert (
        len([each for each in ann.stage.behaviour.received if isinstance(each, RunSlot) and each.slot == "p.1.1"]) == 1
    )


async def test_a_permanent_failure_is_not_retried_before_the_pipeline_is_edited(world: WorkerCluster) -> None:
    await working(world, "ann")
    ann = world.hired["ann"]
    ann.driver.fail("p.1.0", "the mapping names no such column", lasting=True)
    await world.run_ms(300_000)
    status = (await world.statuses("p"))["0"]
    assert (status.state, status.lasting) == ("failed", True)
    assert "p.1.0" not in ann.driver.runs
    await world.edit("p", revision=2)
    await world.run_until(lambda: "p.1.0" in ann.driver.runs)
    await world.run_until(lambda: len(world.acting()) == 4)


async def test_a_permanent_failure_is_retried_after_stop_and_start(world: WorkerCluster) -> None:
    await working(world, "ann")
    ann = world.hired["ann"]
    ann.driver.fail("p.1.0", "no", lasting=True)
    await world.run_ms(5_000)
    await world.catalog.set_state("p", desired="stopped")
    await world.run_ms(5_000)
    await world.catalog.set_state("p", desired="started")
    await world.run_until(lambda: "p.1.0" in ann.driver.runs)


async def test_a_worker_of_the_same_name_waits_for_the_first_to_end(
    world: WorkerCluster, caplog: pytest.LogCaptureFixture
) -> None:
    await working(world, "ann")
    first = world.hired.pop("ann")
    try:
        [second] = world.hire("ann")
        await world.run_ms(30_000)
        assert second.stage.behaviour.lives == 0
        assert any("has this name" in each for each in caplog.messages)
    finally:
        world.hired["first"] = first
    first.leave()
    await world.run_until(lambda: second.stage.driver is not None and len(world.acting()) == 4)


async def test_a_pipeline_whose_worker_died_can_be_deleted_once_its_session_expired(world: WorkerCluster) -> None:
    await working(world, "ann")
    await world.catalog.set_state("p", desired="stopped")
    world.hired["ann"].crash()
    with pytest.raises(NotReadyError, match="still"):
        await world.catalog.delete("p")
    await world.run_ms(25_000)
    assert (await world.view("p")).partitions[0].owner == "p.1.0", "nobody was there to release it"
    await world.catalog.delete("p")
    assert await world.catalog.list() == []


async def test_a_worker_that_waits_for_its_name_can_be_stopped(world: WorkerCluster) -> None:
    await working(world, "ann")
    first = world.hired.pop("ann")
    [second] = world.hire("ann")
    world.hired["first"] = first
    await world.run_ms(2_000)
    second.leave()
    await world.run_until(lambda: second.task.done(), within_ms=10_000)
    assert len(world.acting()) == 4


async def test_a_restarted_worker_waits_for_its_former_session_and_takes_its_slots(world: WorkerCluster) -> None:
    await working(world, "ann")
    world.hired["ann"].crash()
    world.hire("ann")
    await world.run_until(lambda: len(world.acting()) == 4, within_ms=40_000)
    assert set((await world.epochs("p")).values()) == {3}


@pytest.mark.parametrize("marker", ["lease/holder/slot/p/0", "partitions/00002", "workers/ann", "pipeline-status/p"])
@pytest.mark.parametrize("fault", ["lose_answer_to", "lose_request"])
async def test_lost_requests_and_responses_change_nothing_in_the_end(
    world: WorkerCluster, marker: str, fault: str
) -> None:
    await world.pipeline("p")
    [ann] = world.hire("ann")
    getattr(ann.store, fault)(marker)
    await world.run_until(lambda: len(world.acting()) == 4)
    await world.run_ms(5_000)
    assert await world.holders("p") == {0: "ann"}
    assert set((await world.epochs("p")).values()) == {1}
    assert list(await world.statuses("p")) == ["0"]


async def test_a_slot_with_another_holder_is_released_and_its_status_is_not_overwritten(world: WorkerCluster) -> None:
    """An operator, or a bug, deletes the lease; another takes it. The former holder's writes are refused and it lets go."""
    await working(world, "ann")
    session = await world.store.open_session(600_000)
    await world.store.commit(apply=[Delete(holder_key("slot/p/0"))])
    stolen = await acquire(
        world.store, "slot/p/0", holder="eve", session=session.id, clock=world.clock, random=world.random
    )
    assert getattr(stolen, "epoch", 0) == 2
    key = status_key("p", 1, "0")
    await world.store.commit(apply=[Put(key, b'{"pipelineId":"p","generation":1,"slot":"0","workerId":"eve"}')])
    world.hired["ann"].driver.report("p.1.0", batches=9, rows=9)
    await world.run_until(lambda: not world.acting())
    await world.run_ms(10_000)
    assert await world.holders("p") == {0: "eve"}
    assert (await world.statuses("p"))["0"].worker_id == "eve"
    assert set((await world.owners("p")).values()) == {None}


async def test_claims_are_not_extended_once_the_session_is_in_doubt(world: WorkerCluster) -> None:
    await working(world, "ann")
    ann = world.hired["ann"]
    ann.store.reachable = False
    await world.run_ms(1_000)
    ends = {each.until_ms for each in ann.stage.behaviour.received if isinstance(each, SlotClaims)}
    await world.run_ms(14_000)
    assert {each.until_ms for each in ann.stage.behaviour.received if isinstance(each, SlotClaims)} == ends
