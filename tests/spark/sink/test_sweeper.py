"""Staged objects that no plan names go after their grace; those that one names, or may still name, stay."""

import pytest
from tests.support.fake_brokers import DeadError, DieAt, SinkWorld, encoded, numbered

from holdfast.spark.sink.pieces import HOUR_MS
from holdfast.spark.sink.query_state import query_state_key
from holdfast.spark.sink.sweeper import GRACE_MS, sweep_if_due
from holdfast.vocabulary.errors import ExpiredError


async def sweep(world: SinkWorld) -> int:
    return await sweep_if_due(store=world.store, objects=world.objects, owner=world.owner, clock=world.clock)


async def test_pieces_of_a_failed_attempt_are_swept_after_the_grace_period(world: SinkWorld) -> None:
    await world.stage(["lost", "too"])
    assert await sweep(world) == 0
    world.clock.advance_ms(GRACE_MS + 2 * HOUR_MS)
    fresh = await world.stage(["fresh"])
    assert await sweep(world) == 2
    assert await world.staged_objects() == fresh.keys


async def test_a_sweep_runs_once_an_hour(world: SinkWorld) -> None:
    await world.stage(["lost"])
    world.clock.advance_ms(GRACE_MS + HOUR_MS // 2)
    await sweep(world)
    await world.objects.put(f"{world.owner.prefix}spark/staged/000000001/old", [b"x"])
    world.clock.advance_ms(HOUR_MS // 2)
    assert await sweep(world) == 0
    world.clock.advance_ms(HOUR_MS)
    assert await sweep(world) >= 1
    assert await world.staged_objects() == []


async def test_the_pieces_of_a_plan_are_kept_however_old(world: SinkWorld) -> None:
    rows = numbered("a", 100)
    with pytest.raises(DeadError):
        await world.publish("q", 0, await world.stage(rows), at_failpoint=DieAt("planned"))
    world.clock.advance_ms(10 * GRACE_MS)
    assert await sweep(world) == 0
    await world.driver().publish("q", 0, await world.stage(rows))
    assert world.brokers.values == encoded(rows)


async def test_pieces_that_may_have_been_swept_cannot_be_planned(world: SinkWorld) -> None:
    pieces = await world.stage(["a"])
    world.clock.advance_ms(GRACE_MS + 2 * HOUR_MS)
    await sweep(world)
    with pytest.raises(ExpiredError):
        await world.driver().publish("q", 0, pieces)
    assert world.brokers.values == []


async def test_a_sweep_between_reading_the_mark_and_planning_refuses_the_plan(world: SinkWorld) -> None:
    """The planner has read how far the sweeper is; the sweeper goes on before the plan is committed."""
    pieces = await world.stage(["a"])
    world.clock.advance_ms(GRACE_MS + 2 * HOUR_MS)
    commit, swept = world.store.commit, False

    async def commit_late(**given: object) -> object:
        nonlocal swept
        if not swept:
            swept = True
            await sweep(world)
        return await commit(**given)  # type: ignore[arg-type]

    world.store.commit = commit_late  # type: ignore[method-assign, assignment]
    with pytest.raises(ExpiredError):
        await world.driver().publish("q", 0, pieces)
    assert swept
    assert world.brokers.values == []


async def test_a_sweep_that_does_not_concern_a_plan_does_not_stop_it(world: SinkWorld) -> None:
    commit, swept = world.store.commit, False
    world.clock.advance_ms(GRACE_MS + 2 * HOUR_MS)
    pieces = await world.stage(["a"])

    async def commit_late(**given: object) -> object:
        nonlocal swept
        if not swept:
            swept = True
            await sweep(world)
        return await commit(**given)  # type: ignore[arg-type]

    world.store.commit = commit_late  # type: ignore[method-assign, assignment]
    await world.driver().publish("q", 0, pieces)
    assert world.brokers.values == [b"a"]


async def test_an_unfinished_unnamed_write_is_deleted_with_its_pieces(world: SinkWorld) -> None:
    for query in ("once/abc", "write/abc"):
        with pytest.raises(DeadError):
            await world.publish(query, 0, await world.stage(["a"]), at_failpoint=DieAt("planned"))
    world.clock.advance_ms(GRACE_MS + 2 * HOUR_MS)
    assert await sweep(world) == 1
    assert await world.store.get(query_state_key("once/abc")) is None
    await world.driver().publish("write/abc", 0, await world.stage(["a"]))
    assert world.brokers.values == [b"a"]
