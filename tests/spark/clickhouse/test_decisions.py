"""Scopes, runs and batches: decisions without a server."""

import pytest

from holdfast.spark.clickhouse.batches import (
    BatchRecord,
    CommitStep,
    Content,
    Insert,
    Plan,
    RowPiece,
    decode_plan,
    encode_plan,
    next_step,
    plan_inserts,
)
from holdfast.spark.clickhouse.errors import (
    BatchBlockedError,
    GenerationFencedError,
    ReplayDiffersError,
    RunFencedError,
)
from holdfast.spark.clickhouse.options import ClickHouseOptions
from holdfast.spark.clickhouse.runs import Run, admit
from holdfast.spark.clickhouse.scopes import WriteIdentity, WriterScope, stream_scope

PLAIN = ClickHouseOptions(url="http://ch", table="t")
FLOW = "file:///p/_checkpoints/sink/flow"


@pytest.mark.parametrize(
    ("options", "of_spark", "scope"),
    [
        (PLAIN, {}, WriterScope("query/id", 0)),
        (PLAIN, {"checkpointlocation": "/c/1", "queryname": "c"}, WriterScope("query/id", 0)),
        (PLAIN, {"checkpointlocation": f"{FLOW}/0", "queryname": "flow"}, WriterScope(f"flow/{FLOW}", 0)),
        (PLAIN, {"checkpointLocation": f"{FLOW}/12/", "queryName": "c.d.flow"}, WriterScope(f"flow/{FLOW}", 12)),
        (PLAIN, {"checkpointlocation": f"{FLOW}/1", "queryname": "other"}, WriterScope("query/id", 0)),
        (
            PLAIN,
            {"checkpointlocation": "file:/p/_checkpoints/sink/flow/0", "queryname": "flow"},
            WriterScope(f"flow/{FLOW}", 0),
        ),
        (
            PLAIN,
            {"checkpointlocation": "/p//_checkpoints/sink/flow/2", "queryname": "flow"},
            WriterScope(f"flow/{FLOW}", 2),
        ),
        (
            PLAIN,
            {"checkpointlocation": "s3a://b/_checkpoints/sink/flow/2", "queryname": "flow"},
            WriterScope("flow/s3a://b/_checkpoints/sink/flow", 2),
        ),
        (ClickHouseOptions(url="http://ch", table="t", scope="mine"), {}, WriterScope("scope/mine")),
    ],
)
def test_the_scope_of_a_stream(options: ClickHouseOptions, of_spark: dict[str, str], scope: WriterScope) -> None:
    assert stream_scope(options, of_spark, "id") == scope


def of(run: str, query: str = "q", generation: int | None = 0) -> WriteIdentity:
    return WriteIdentity(scope=WriterScope("s", generation), query=query, run=run, batch=0)


def test_the_newer_start_wins_and_a_run_is_admitted_once() -> None:
    first = admit([], of("a"), resource="s")
    assert first == Run(0, 1, "a", "q")
    second = admit([first], of("b"), resource="s")
    assert second == Run(0, 2, "b", "q")
    assert admit([second, first], of("b"), resource="s") == second
    with pytest.raises(RunFencedError, match="epoch 2; this run has 1"):
        admit([second, first], of("a"), resource="s")


def test_of_two_runs_that_started_at_once_one_may_write() -> None:
    known = [Run(0, 1, "a", "q"), Run(0, 1, "b", "q")]
    assert admit(known, of("b"), resource="s") == known[1]
    with pytest.raises(RunFencedError):
        admit(known, of("a"), resource="s")


def test_a_lower_generation_never_owns_the_scope() -> None:
    known = [Run(1, 1, "b", "q1"), Run(0, 9, "a", "q0")]
    assert admit(known, of("b", generation=1), resource="s") == known[0]
    for run in ("a", "late"):
        with pytest.raises(GenerationFencedError, match="is at generation 1, this query is generation 0"):
            admit(known, of(run, generation=0), resource="s")
    assert admit(known, of("c", generation=3), resource="s") == Run(3, 10, "c", "q")


def test_each_query_of_a_named_scope_is_a_generation() -> None:
    first = admit([], of("a", "q0", None), resource="s")
    second = admit([first], of("b", "q1", None), resource="s")
    assert (first.generation, second.generation) == (0, 1)
    assert admit([first, second], of("c", "q1", None), resource="s").generation == 1
    with pytest.raises(GenerationFencedError):
        admit([first, second], of("d", "q0", None), resource="s")


PLAN = Plan("staged", "run:1", [Insert(["a", "b"], 3)])
ROWS, OTHERS = Content(3, 17), Content(3, 18)


def recorded(*, batch: int = 1, done: bool = False) -> BatchRecord:
    return BatchRecord(batch=batch, done=done, epoch=1, run="a", content=ROWS, plan=PLAN)


@pytest.mark.parametrize(
    ("last", "content", "keep", "replaces", "step"),
    [
        (None, ROWS, False, False, CommitStep.BEGIN),
        (recorded(batch=0, done=True), ROWS, False, False, CommitStep.BEGIN),
        (recorded(), ROWS, False, False, CommitStep.RESUME),
        (recorded(done=True), ROWS, False, False, CommitStep.SKIP),
        (recorded(), OTHERS, True, False, CommitStep.RESUME),
        (recorded(done=True), OTHERS, True, False, CommitStep.SKIP),
        (recorded(), OTHERS, False, True, CommitStep.BEGIN),
        (recorded(done=True), ROWS, False, True, CommitStep.SKIP),
        (recorded(done=True), OTHERS, False, True, CommitStep.BEGIN),
    ],
)
def test_what_a_commit_does_about_its_batch(
    last: BatchRecord | None, content: Content, keep: bool, replaces: bool, step: CommitStep
) -> None:
    assert next_step(last, 1, content, what="batch 1", keep=keep, replaces=replaces) is step


def test_other_rows_and_older_batches_are_refused() -> None:
    for done in (False, True):
        with pytest.raises(ReplayDiffersError, match="onDifferentReplay=keep"):
            next_step(recorded(done=done), 1, OTHERS, what="batch 1", keep=False, replaces=False)
    with pytest.raises(BatchBlockedError, match="cannot write batch 0: 1 is recorded already"):
        next_step(recorded(), 0, ROWS, what="batch 0", keep=True, replaces=True)


def test_pieces_become_few_inserts() -> None:
    pieces = [RowPiece(token, rows) for token, rows in (("a", 4), ("b", 4), ("c", 9), ("d", 30), ("e", 1))]
    assert list(plan_inserts(pieces, 10)) == [
        Insert(["a", "b"], 8),
        Insert(["c"], 9),
        Insert(["d"], 30),
        Insert(["e"], 1),
    ]
    assert list(plan_inserts([], 10)) == []
    assert decode_plan(encode_plan(PLAN)) == PLAN
