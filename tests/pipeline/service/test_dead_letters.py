"""The DLQ: what was refused is shown with its bytes and the reason, and a replay adds each row once, whoever dies on the way."""

import asyncio
import shutil
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.support.pipeline_service import MAPPING, PipelineServiceHarness

from holdfast.clickhouse.client import ClickHouseClient
from holdfast.clickhouse.errors import ClickHouseError
from holdfast.contracts.store import Committed, Conflict, Operation, Requirement, Store
from holdfast.pipeline.model.definition import Pipeline
from holdfast.pipeline.model.errors import NotReadyError
from holdfast.pipeline.service.dead_letter_table import DeadLetterQuery
from holdfast.pipeline.service.replay import ReplayTally, ReplayTarget
from holdfast.pipeline.service.replay_steps import ReplaySteps
from holdfast.pipeline.sinks.clickhouse.statements import REPLAYED_SUFFIX, is_fence_refusal
from holdfast.vocabulary.errors import InvalidError

pytestmark = pytest.mark.xdist_group("clickhouse")

WRONG = "id (Int64): 'x' does not fit"


async def refused(world: PipelineServiceHarness, **parts: Any) -> Pipeline:
    """A pipeline with a table and a DLQ of five letters in two partitions, three of which fit by now."""
    pipeline = await world.pipeline(**parts)
    await world.service.inspection.create_table(pipeline.id)
    await world.refuse(
        pipeline,
        (0, 3, '{"id": 3, "amount": 1}', WRONG),
        (0, 5, '{"id": "x"}', WRONG),
        (1, 2, '{"id": 12, "amount": "2.50"}', "amount: too much"),
        (1, 7, "no json", "not JSON: no json"),
        (1, 9, '{"id": 19}', WRONG),
    )
    return pipeline


async def rows(world: PipelineServiceHarness) -> str:
    return await world.ask(f"SELECT _partition, _offset, id FROM default.{world.name} ORDER BY ALL FORMAT TSV")


EXACT = "0\t3\t3\n1\t2\t12\n1\t9\t19"


async def test_dead_letters_are_listed_page_by_page_with_bytes_and_reason(world: PipelineServiceHarness) -> None:
    pipeline = await refused(world)
    first = await world.service.dead_letters.page(pipeline.id, limit=2)
    assert [(each.partition, each.offset, each.payload) for each in first.letters] == [
        (0, 3, '{"id": 3, "amount": 1}'),
        (0, 5, '{"id": "x"}'),
    ]
    assert first.letters[0].reason == WRONG
    assert first.after == "1:0:5"
    second = await world.service.dead_letters.page(pipeline.id, after=first.after, limit=10)
    assert [each.offset for each in second.letters] == [2, 7, 9]
    assert second.after == ""
    by_reason = await world.service.dead_letters.page(pipeline.id, DeadLetterQuery(reason="NOT json", partition=1))
    assert [each.offset for each in by_reason.letters] == [7]
    later = DeadLetterQuery(since_ms=world.clock.now_ms() + 3_600_000)
    assert (await world.service.dead_letters.page(pipeline.id, later)).letters == ()
    count = await world.service.dead_letters.count(pipeline.id)
    assert (count.total, count.replayed, count.waiting) == (5, 0, 5)
    assert (count.reasons[0].reason, count.reasons[0].count) == (WRONG, 3)
    with pytest.raises(InvalidError, match="generation:partition:offset"):
        await world.service.dead_letters.page(pipeline.id, after="1; DROP TABLE x")


async def test_a_binary_payload_is_shown_as_base64(world: PipelineServiceHarness) -> None:
    pipeline = await refused(world)
    await world.ask(
        f"INSERT INTO default.{world.name}_dlq (_pipeline, _generation, _topic, _partition, _offset, reason, key, payload) "
        f"SELECT '{pipeline.id}', 1, '{world.name}', 0, 4, 'x', unhex('ff00'), unhex('fe')"
    )
    letter = (await world.service.dead_letters.page(pipeline.id, DeadLetterQuery(offsets=(4,)))).letters[0]
    assert (letter.key, letter.key_base64, letter.payload, letter.payload_base64) == (None, "/wA=", None, "/g==")


async def test_there_is_no_dlq_before_a_record_is_rejected(world: PipelineServiceHarness) -> None:
    pipeline = await world.pipeline()
    assert (await world.service.dead_letters.page(pipeline.id)).letters == ()
    assert (await world.service.dead_letters.count(pipeline.id)).total == 0
    assert (await world.service.dead_letters.replay(pipeline.id)).stored == 0


async def test_a_replay_uses_the_newest_revision_and_marks_the_outcomes(
    world: PipelineServiceHarness,
) -> None:
    pipeline = await refused(world)
    await world.service.catalog.put_part(pipeline.id, "filters", {"enabled": True, "expression": "id != 12"})
    done = await world.service.dead_letters.replay(pipeline.id)
    assert (done.stored, done.filtered, done.refused, done.revision, done.more) == (2, 1, 2, 2, False)
    reasons = {(each.partition, each.offset): each.reason for each in done.refusals}
    assert reasons[1, 7].startswith("not JSON: ")
    assert reasons[0, 5].startswith("filter: ")
    assert await rows(world) == "0\t3\t3\n1\t9\t19"
    letters = (await world.service.dead_letters.page(pipeline.id)).letters
    assert [each.replayed for each in letters] == ["stored", "", "filtered", "", "stored"]
    waiting = await world.service.dead_letters.page(pipeline.id, DeadLetterQuery(waiting=True))
    assert [each.offset for each in waiting.letters] == [5, 7]


async def test_a_repeated_replay_adds_nothing(world: PipelineServiceHarness) -> None:
    pipeline = await refused(world)
    assert (
        await world.service.dead_letters.replay(pipeline.id, DeadLetterQuery(partition=1, offsets=(9,)))
    ).stored == 1
    assert (await world.service.dead_letters.replay(pipeline.id, limit=1)).more
    assert (await world.service.dead_letters.replay(pipeline.id)).stored == 1
    assert (await world.service.dead_letters.replay(pipeline.id)).stored == 0
    assert await rows(world) == EXACT
    assert (await world.service.dead_letters.count(pipeline.id)).replayed == 3


async def test_concurrent_replays_store_each_row_once(world: PipelineServiceHarness) -> None:
    pipeline = await refused(world)
    other = world.another()
    await asyncio.gather(*(service.dead_letters.replay(pipeline.id) for service in (world.service, other) * 2))
    assert await rows(world) == EXACT
    assert (await world.service.dead_letters.count(pipeline.id)).replayed == 3


class Dies:
    """A store that dies with its process right before or right after a commit of the replay's step."""

    def __init__(self, store: Store, commit: int, *, after: bool) -> None:
        self._store, self._left, self._after = store, commit, after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def commit(
        self, *, require: Sequence[Requirement] = (), apply: Sequence[Operation] = ()
    ) -> Committed | Conflict:
        self._left -= 1
        if self._left == 0 and not self._after:
            raise KeyboardInterrupt
        outcome = await self._store.commit(require=require, apply=apply)
        if self._left == 0:
            raise KeyboardInterrupt
        return outcome


@pytest.mark.parametrize(
    ("commit", "after"),
    [(1, True), (2, False), *(pytest.param(*each, marks=pytest.mark.long) for each in ((1, False), (2, True)))],
)
async def test_a_replay_that_dies_at_a_commit_is_finished_by_the_next(
    world: PipelineServiceHarness, commit: int, after: bool
) -> None:
    pipeline = await refused(world)
    dying = world.another(store=Dies(world.store, commit, after=after))
    with pytest.raises(KeyboardInterrupt):
        await dying.dead_letters.replay(pipeline.id)
    await world.service.catalog.put_part(pipeline.id, "filters", {"enabled": True, "expression": "id > 0"})
    await world.service.dead_letters.replay(pipeline.id)
    assert await rows(world) == EXACT
    assert (await world.service.dead_letters.count(pipeline.id)).replayed == 3


@pytest.mark.parametrize("command", [2, *(pytest.param(each, marks=pytest.mark.long) for each in (1, 3))])
async def test_a_replay_that_dies_between_its_inserts_is_finished_by_the_next(
    world: PipelineServiceHarness, command: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the rows, after the marks, after the fence: the answer of one of them is lost."""
    pipeline = await refused(world)
    left = [command]

    def dies_after(honest: Callable[..., None]) -> Callable[..., None]:
        def dies(self: ClickHouseClient, statement: str, *data: Any, **more: Any) -> None:
            honest(self, statement, *data, **more)
            if not statement.startswith("CREATE"):
                left[0] -= 1
                if left[0] == 0:
                    raise KeyboardInterrupt

        return dies

    monkeypatch.setattr(ClickHouseClient, "command", dies_after(ClickHouseClient.command))
    monkeypatch.setattr(ClickHouseClient, "insert", dies_after(ClickHouseClient.insert))
    with pytest.raises(KeyboardInterrupt):
        await world.service.dead_letters.replay(pipeline.id)
    monkeypatch.undo()
    entry, record = await ReplaySteps(world.store, pipeline.id, clock=world.clock, random=world.random).read()
    assert entry is not None
    assert record.pending is not None
    await world.service.dead_letters.replay(pipeline.id)
    assert await rows(world) == EXACT
    assert (await world.service.dead_letters.count(pipeline.id)).replayed == 3


async def test_a_replay_that_was_paused_before_its_insert_is_refused_when_it_wakes_up(
    world: PipelineServiceHarness,
) -> None:
    pipeline = await refused(world)
    steps = ReplaySteps(world.store, pipeline.id, clock=world.clock, random=world.random)
    revision = await world.service.catalog.revision(pipeline.id, 1)
    step = await world.service.dead_letters._next(pipeline.id, revision, DeadLetterQuery(), (0, 0, -1), 10)
    assert step is not None
    entry, record = await steps.read()
    assert await steps.begin(entry, record, step)
    await world.service.dead_letters.replay(pipeline.id)
    await world.ask(f"TRUNCATE TABLE default.{world.name}")  # so that only the fence can keep the late insert out

    def late() -> None:
        connection = ClickHouseClient(world.clickhouse.url, timeout_ms=10_000)
        try:
            target = ReplayTarget(pipeline.id, revision, connection, random=world.random)
            target.execute(step, record.number, ReplayTally(1))
        finally:
            connection.close()

    with pytest.raises(ClickHouseError) as raised:
        await asyncio.to_thread(late)
    assert is_fence_refusal(raised.value)
    assert await rows(world) == ""


async def test_a_replay_that_cannot_be_exact_is_refused_with_the_reason(world: PipelineServiceHarness) -> None:
    timed = {"columns": [{"fieldPath": "$timestamp", "column": "at", "type": "DateTime64(3)", "nullable": False}]}
    pipeline = await world.pipeline(mapping=timed)
    with pytest.raises(NotReadyError, match="uses headers or the timestamp, which the DLQ does not keep"):
        await world.service.dead_letters.replay(pipeline.id)
    await world.service.catalog.put_parts(
        pipeline.id,
        {"mapping": {"columns": [{"fieldPath": "id", "column": "id", "type": "Int64"}]}, "sql": {"sql": "select 1"}},
    )
    with pytest.raises(NotReadyError, match="it has SQL, which only workers run"):
        await world.service.dead_letters.replay(pipeline.id)
    await world.service.catalog.put_parts(
        pipeline.id, {"sql": {"sql": ""}, "sink": {"kind": "parquet", "url": "/tmp/x"}}
    )
    with pytest.raises(NotReadyError, match="only ClickHouse sinks keep their DLQ"):
        await world.service.dead_letters.count(pipeline.id)


async def test_a_replay_into_an_existing_table_that_keeps_the_last_insert_is_refused(
    world: PipelineServiceHarness,
) -> None:
    pipeline = await refused(world)
    await world.ask(f"RENAME TABLE {world.name} TO {world.name}_plain")
    await world.ask(
        f"CREATE TABLE {world.name} AS {world.name}_plain ENGINE = ReplacingMergeTree ORDER BY id "
        "SETTINGS non_replicated_deduplication_window = 100"
    )
    with pytest.raises(NotReadyError, match="keeps the row that was inserted last"):
        await world.service.dead_letters.replay(pipeline.id)


async def test_a_dlq_is_trimmed_oldest_first_and_no_other_pipelines(world: PipelineServiceHarness) -> None:
    pipeline = await world.pipeline(drift={"dlqRowsKept": 1_000})
    await world.refuse(pipeline, (0, 0, "x", "bad"))
    await world.ask(
        f"INSERT INTO default.{world.name}_dlq (_pipeline, _generation, _topic, _partition, _offset, reason, time) "
        "SELECT pipeline, 1, topic, 0, number, 'bad', toDateTime64('2026-01-01 00:00:00', 3) + number "
        f"FROM (SELECT number, arrayJoin(['{pipeline.id}', 'neighbour']) AS pipeline, "
        f"arrayJoin(['{world.name}', 'other']) AS topic FROM numbers(1, 1004))"
    )
    await world.service.trim_dead_letters()
    first = (await world.service.dead_letters.page(pipeline.id, limit=2)).letters
    assert [each.offset for each in first] == [0, 6], "0 is the youngest"
    assert (await world.service.dead_letters.count(pipeline.id)).total == 1_000
    assert await world.ask(f"SELECT count() FROM default.{world.name}_dlq WHERE _topic = 'other'") == "2008"
    assert await world.ask(f"SELECT count() FROM default.{world.name}_dlq WHERE _pipeline = 'neighbour'") == "2008"
    await world.service.trim_dead_letters()
    assert (await world.service.dead_letters.count(pipeline.id)).total == 1_000


async def test_a_replay_whose_rows_the_table_cannot_store_is_refused_before_it_begins(
    world: PipelineServiceHarness,
) -> None:
    pipeline = await refused(world)
    wider = {"columns": [*MAPPING["columns"], {"fieldPath": "x", "column": "x", "type": "String", "nullable": True}]}
    await world.service.catalog.put_part(pipeline.id, "mapping", wider)
    with pytest.raises(NotReadyError, match="x is missing; to fix it: ALTER TABLE"):
        await world.service.dead_letters.replay(pipeline.id)
    diff = await world.service.inspection.diff(pipeline.id)
    await world.ask(diff.statements[0])
    assert (await world.service.dead_letters.replay(pipeline.id)).stored == 3


@pytest.mark.parametrize("landed", [False, True])
async def test_a_step_that_the_server_rejects_is_abandoned_and_blocks_no_other(
    world: PipelineServiceHarness, landed: bool
) -> None:
    """The table was changed between the step's beginning and its end; `landed`: one of its rows was there before that."""
    pipeline = await refused(world)
    await begin(world, pipeline, DeadLetterQuery(partition=1))
    if landed:
        await plant(world, pipeline, "(12, '{1}', 1, '{0}', 1, 2)")
    await world.ask(f"ALTER TABLE default.{world.name} RENAME COLUMN amount TO value")
    with pytest.raises(NotReadyError, match="amount is missing"):
        await world.service.dead_letters.replay(pipeline.id)
    renamed = {"columns": [MAPPING["columns"][0], {**MAPPING["columns"][1], "column": "value"}]}
    await world.service.catalog.put_part(pipeline.id, "mapping", renamed)
    with pytest.raises(NotReadyError, match="amount"):
        await world.service.dead_letters.replay(pipeline.id)
    done = await world.service.dead_letters.replay(pipeline.id)
    assert (done.stored, done.revision) == (2 if landed else 3, 2)
    assert await rows(world) == EXACT
    assert (await world.service.dead_letters.count(pipeline.id)).replayed == 3


async def begin(world: PipelineServiceHarness, pipeline: Pipeline, chosen: DeadLetterQuery) -> None:
    """A step that somebody has begun and left."""
    revision = await world.service.catalog.revision(pipeline.id, 1)
    steps = ReplaySteps(world.store, pipeline.id, clock=world.clock, random=world.random)
    step = await world.service.dead_letters._next(pipeline.id, revision, chosen, (0, 0, -1), 10)
    assert step is not None
    entry, record = await steps.read()
    assert await steps.begin(entry, record, step)


async def plant(world: PipelineServiceHarness, pipeline: Pipeline, row: str) -> None:
    into = f"INSERT INTO default.{world.name} (id, _pipeline, _generation, _topic, _partition, _offset)"
    await world.ask(f"{into} VALUES {row.format(world.name, pipeline.id)}")


async def test_a_step_whose_rows_are_there_is_finished_although_its_token_was_forgotten(
    world: PipelineServiceHarness,
) -> None:
    pipeline = await refused(world)
    await begin(world, pipeline, DeadLetterQuery(partition=1))
    await plant(world, pipeline, "(12, '{1}', 1, '{0}', 1, 2), (19, '{1}', 1, '{0}', 1, 9)")
    assert (await world.service.dead_letters.replay(pipeline.id)).stored == 3
    assert await rows(world) == EXACT
    assert (await world.service.dead_letters.count(pipeline.id)).replayed == 3


@pytest.mark.parametrize("command", [1, pytest.param(2, marks=pytest.mark.long)])
async def test_a_replay_under_a_token_without_its_rows_is_finished_by_the_next(
    world: PipelineServiceHarness, command: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ClickHouse was killed after it had noted the token and before it had stored what came with it: rows, or marks."""
    pipeline = await refused(world)
    honest, left = ClickHouseClient.insert, [command]

    def dies(self: ClickHouseClient, statement: str, *data: Any, **more: Any) -> None:
        honest(self, statement, *data, **more)
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt

    monkeypatch.setattr(ClickHouseClient, "insert", dies)
    with pytest.raises(KeyboardInterrupt):
        await world.service.dead_letters.replay(pipeline.id)
    monkeypatch.undo()
    table = world.name + ("" if command == 1 else REPLAYED_SUFFIX)
    parts = await world.ask(f"SELECT path FROM system.parts WHERE table = '{table}' AND active FORMAT TSV")
    await asyncio.to_thread(world.clickhouse.kill)
    shutil.rmtree(parts)
    await asyncio.to_thread(world.clickhouse.start)
    await world.service.dead_letters.replay(pipeline.id)
    await world.service.dead_letters.replay(pipeline.id)
    assert await rows(world) == EXACT
    assert (await world.service.dead_letters.count(pipeline.id)).replayed == 3
