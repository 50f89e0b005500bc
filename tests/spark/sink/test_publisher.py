"""A batch is published exactly once: over deaths at every step, lost answers, zombies, replays and forgetful brokers."""

import pytest
from tests.support.fake_brokers import FAILPOINTS, TOPIC, DeadError, DieAt, SinkWorld, encoded, numbered

from holdfast.client.producer import SEQUENCE_MODULUS
from holdfast.contracts.store import Put
from holdfast.spark.sink.options import SinkOptions
from holdfast.spark.sink.pieces import StagedPieceList
from holdfast.spark.sink.query_state import decode_query_state, encode_query_state, query_state_key
from holdfast.vocabulary.errors import CorruptError, InvalidError, UnavailableError

STEPS = tuple(each.removeprefix("spark-sink.") for each in FAILPOINTS)
SMALL = SinkOptions(topic=TOPIC.name, batch_bytes=1024, inline_bytes=0)


async def test_a_batch_is_published_and_nothing_is_left_staged(world: SinkWorld) -> None:
    rows = numbered("a", 100)
    done = await world.driver().publish("q", 0, await world.stage(rows))
    assert (done.records, done.published) == (100, True)
    assert world.brokers.values == encoded(rows)
    assert await world.staged_objects() == []


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("inline", [0, 48 * 1024], ids=["objects", "inline"])
async def test_a_driver_that_dies_at_any_step_is_followed_by_one_that_replays(
    world: SinkWorld, step: str, inline: int
) -> None:
    rows = numbered("a", 200)
    options = SinkOptions(topic=TOPIC.name, batch_bytes=1024, inline_bytes=inline)
    with pytest.raises(DeadError):
        await world.publish("q", 0, await world.stage(rows, options=options), at_failpoint=DieAt(step))
    await world.driver().publish(
        "q", 0, await world.stage(rows, options=options, tasks=3)
    )  # staged again, in other pieces
    await world.driver().publish("q", 1, await world.stage(["next"]))
    assert world.brokers.values == encoded([*rows, "next"])
    if step not in ("staged", "done"):  # there the dead one's pieces are in no plan: they wait for the sweeper
        assert await world.staged_objects() == []


@pytest.mark.slow
async def test_every_pair_of_deaths_is_harmless(world: SinkWorld) -> None:
    """First one driver dies at a step, then its follower at another, then a third finishes; batch after batch."""
    expected: list[str] = []
    batch = 0
    for first in STEPS:
        for second in STEPS:
            rows = numbered(f"{batch}", 60)
            expected += rows
            for step in (first, second):
                try:
                    pieces = await world.stage(rows, options=SMALL)
                    await world.publish("q", batch, pieces, at_failpoint=DieAt(step))
                except DeadError:
                    pass
            await world.driver().publish("q", batch, await world.stage(rows, options=SMALL))
            batch += 1
    assert world.brokers.values == encoded(expected)


async def test_a_replay_sends_the_same_bytes(world: SinkWorld) -> None:
    rows = numbered("a", 200)
    with pytest.raises(DeadError):
        await world.publish("q", 0, await world.stage(rows, options=SMALL), at_failpoint=DieAt("sent"))
    first, world.brokers.sent = world.brokers.sent, []
    world.brokers.partitions.clear()  # as if nothing had arrived
    await world.driver().publish("q", 0, await world.stage(rows, options=SMALL, tasks=5))
    assert world.brokers.sent == first


@pytest.mark.parametrize("sent", range(1, 6))
async def test_a_lost_answer_is_harmless(world: SinkWorld, sent: int) -> None:
    rows = numbered("a", 600)
    steps = 0

    async def lose(step: str) -> None:
        nonlocal steps
        steps += step == "spark-sink.round-sent"
        if step == "spark-sink.round-sent" and steps == sent:
            world.brokers.lose = 1

    with pytest.raises(UnavailableError):
        await world.publish("q", 0, await world.stage(rows, options=SMALL), at_failpoint=lose)
    await world.driver().publish("q", 0, await world.stage(rows, options=SMALL))
    assert world.brokers.values == encoded(rows)


@pytest.mark.parametrize("step", ["planned", "round-sent", "sent"])
async def test_a_zombie_that_resumes_after_its_successor_appends_nothing(world: SinkWorld, step: str) -> None:
    """It stops in the middle of its plan; others finish that and many more; then it goes on where it was."""
    rows, later = numbered("a", 200), numbered("b", 500)
    slept = False

    async def sleep(reached: str) -> None:
        nonlocal slept
        if reached == f"spark-sink.{step}" and not slept:
            slept = True
            await world.driver().publish("q", 0, await world.stage(rows, options=SMALL))
            for batch in range(1, 11):
                await world.driver().publish("q", batch, await world.stage(later[batch - 1 :: 10], options=SMALL))

    await world.publish("q", 0, await world.stage(rows, options=SMALL), at_failpoint=sleep)
    assert slept
    await world.driver().publish("q", 11, await world.stage(["last"]))
    assert world.brokers.values == encoded([*rows, *later, "last"])


async def test_a_zombie_that_planned_too_late_publishes_nothing(world: SinkWorld) -> None:
    rows = numbered("a", 50)

    async def sleep(reached: str) -> None:
        if reached == "spark-sink.staged":
            await world.driver().publish("q", 0, await world.stage(rows))

    done = await world.publish("q", 0, await world.stage(rows), at_failpoint=sleep)
    assert not done.published
    assert world.brokers.values == encoded(rows)
    assert await world.staged_objects() == []


async def test_two_drivers_that_plan_at_once_publish_one_plan(world: SinkWorld) -> None:
    """The other one plans between our reading of the record and our commit."""
    rows = numbered("a", 50)
    ends, calls = world.brokers.end_offsets, 0

    async def slow_ends(topic: object, partitions: object) -> dict[int, int]:
        nonlocal calls
        calls += 1
        if calls == 1:
            await world.driver().publish("q", 0, await world.stage(rows))
        return await ends(topic, partitions)  # type: ignore[arg-type]

    world.brokers.end_offsets = slow_ends  # type: ignore[method-assign]
    done = await world.driver().publish("q", 0, await world.stage(rows))
    assert not done.published
    assert world.brokers.values == encoded(rows)


@pytest.mark.parametrize("step", ["planned", "round-sent", "sent"])
async def test_a_plan_found_after_days_is_finished_although_brokers_forgot_its_producer(
    world: SinkWorld, step: str
) -> None:
    rows = numbered("a", 200)
    with pytest.raises(DeadError):
        await world.publish("q", 0, await world.stage(rows, options=SMALL), at_failpoint=DieAt(step))
    world.brokers.forget_producers()
    await world.driver().publish("q", 0, await world.stage(rows, options=SMALL))
    assert world.brokers.values == encoded(rows)
    assert bool(world.brokers.looked) == (step != "planned")  # there the partitions still end where the plan begins


async def test_a_zombie_paused_for_longer_than_brokers_remember_sends_nothing(world: SinkWorld) -> None:
    rows = numbered("a", 200)
    options = SinkOptions(topic=TOPIC.name)  # its rows are in the plan: that the objects are gone does not stop it

    async def sleep(reached: str) -> None:
        if reached == "spark-sink.planned":
            await world.driver().publish("q", 0, await world.stage(rows, options=options))
            world.brokers.forget_producers()
            world.clock.advance_ms(2 * 86_400_000)

    with pytest.raises(UnavailableError, match="the time is up"):
        await world.publish("q", 0, await world.stage(rows, options=options), at_failpoint=sleep)
    assert world.brokers.values == encoded(rows)


async def test_a_slow_publisher_that_makes_progress_is_not_stopped(world: SinkWorld) -> None:
    """Each batch takes minutes; all together much longer than a driver may stand still."""
    rows = numbered("a", 400)

    async def slow(reached: str) -> None:
        if reached == "spark-sink.round-sent":
            world.clock.advance_ms(300_000)

    await world.publish("q", 0, await world.stage(rows, options=SMALL), at_failpoint=slow)
    assert world.clock.boot_ms() > 3 * 600_000
    assert world.brokers.values == encoded(rows)


async def test_publishing_stops_before_brokers_forget_the_producer(world: SinkWorld) -> None:
    """However well he gets on."""

    async def slow(reached: str) -> None:
        if reached == "spark-sink.round-sent":
            world.clock.advance_ms(590_000)

    rows = await world.stage(numbered("a", 10_000), options=SMALL)
    with pytest.raises(UnavailableError, match="the time is up"):
        await world.publish("q", 0, rows, at_failpoint=slow)
    assert 12 * 3_600_000 <= world.clock.boot_ms() < 13 * 3_600_000


async def test_an_earlier_batch_is_finished_before_the_next_begins(world: SinkWorld) -> None:
    first = numbered("a", 100)
    with pytest.raises(DeadError):
        await world.publish("q", 0, await world.stage(first), at_failpoint=DieAt("planned"))
    await world.driver().publish("q", 1, await world.stage(["next"]))
    assert world.brokers.values == encoded([*first, "next"])


async def test_sequences_go_on_from_batch_to_batch_and_wrap(world: SinkWorld) -> None:
    await world.driver().publish("q", 0, await world.stage(numbered("a", 30)))
    entry = await world.store.get(query_state_key("q"))
    assert entry is not None
    state = decode_query_state(entry)
    assert sum(state.sequences[TOPIC.id].values()) == 30
    world.brokers.forget_producers()
    last = dict.fromkeys(range(3), SEQUENCE_MODULUS - 5)
    moved = type(state)(batch=0, producer_id=1, producer_epoch=0, sequences={TOPIC.id: last}, changed_at_ms=0)
    await world.store.commit(apply=[Put(query_state_key("q"), encode_query_state(moved))])
    await world.driver().publish("q", 1, await world.stage(numbered("b", 90)))
    with pytest.raises(DeadError):
        await world.publish("q", 2, await world.stage(numbered("c", 90)), at_failpoint=DieAt("sent"))
    await world.driver().publish("q", 2, await world.stage(numbered("c", 90)))
    assert world.brokers.values == encoded([*numbered("a", 30), *numbered("b", 90), *numbered("c", 90)])


async def test_queries_are_independent(world: SinkWorld) -> None:
    await world.driver().publish("q", 0, await world.stage(["a"]))
    await world.driver().publish("r", 0, await world.stage(["a"]))
    assert world.brokers.values == [b"a", b"a"]


async def test_a_batch_without_rows_needs_no_plan(world: SinkWorld) -> None:
    await world.driver().publish("q", 0, StagedPieceList([], []))
    assert await world.store.get(query_state_key("q")) is None


async def test_a_recreated_topic_takes_nothing_of_an_old_plan(world: SinkWorld) -> None:
    with pytest.raises(DeadError):
        await world.publish("q", 0, await world.stage(["a"]), at_failpoint=DieAt("planned"))
    world.brokers.topic_ids[TOPIC.name] = "f" * 32
    with pytest.raises(InvalidError, match="orders"):
        await world.driver().publish("q", 0, await world.stage(["a"]))
    assert world.brokers.values == []


async def test_a_plan_whose_pieces_are_missing_is_not_marked_done(world: SinkWorld) -> None:
    pieces = await world.stage(["a", "b"])
    with pytest.raises(DeadError):
        await world.publish("q", 0, pieces, at_failpoint=DieAt("planned"))
    await world.objects.delete(pieces.keys)
    with pytest.raises(CorruptError, match="does not exist"):
        await world.driver().publish("q", 0, StagedPieceList([], []))


async def test_an_aborted_batch_keeps_the_pieces_that_its_plan_names(world: SinkWorld) -> None:
    """Spark aborts after a commit that failed half-way."""
    rows = numbered("a", 100)
    pieces = await world.stage(rows)
    with pytest.raises(DeadError):
        await world.publish("q", 0, pieces, at_failpoint=DieAt("round-sent"))
    await world.driver().abort("q", 0, pieces)
    await world.driver().publish("q", 0, await world.stage(rows))
    assert world.brokers.values == encoded(rows)
    await world.driver().abort("q", 0, pieces)
    assert await world.staged_objects() == []


@pytest.mark.slow
async def test_a_large_plan_is_listed_in_an_object(world: SinkWorld) -> None:
    options = SinkOptions(topic=TOPIC.name, inline_bytes=48 * 1024)
    rows = [f"{number:05d}" + "x" * 1_000 for number in range(400)]
    pieces = await world.stage(rows, options=options, tasks=20)
    assert pieces.keys == []  # all of it came with the tasks' messages
    with pytest.raises(DeadError):
        await world.publish("q", 0, pieces, at_failpoint=DieAt("planned"))
    assert len(await world.staged_objects()) == 1
    await world.driver().publish("q", 0, await world.stage(rows, options=options))
    assert world.brokers.values == encoded(rows)
    assert await world.staged_objects() == []


async def test_a_query_state_is_deleted_only_when_it_is_done(world: SinkWorld) -> None:
    with pytest.raises(DeadError):
        await world.publish("q", 0, await world.stage(["a"]), at_failpoint=DieAt("planned"))
    await world.driver().forget("q")
    assert await world.store.get(query_state_key("q")) is not None
    await world.driver().publish("q", 0, await world.stage(["a"]))
    await world.driver().forget("q")
    assert await world.store.get(query_state_key("q")) is None
