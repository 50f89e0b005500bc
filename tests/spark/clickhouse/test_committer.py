"""Commits of batches: once, whatever is lost, repeated or late."""

import pytest
from tests.support.clickhouse_sink import LosingClient, TableUnderTest, batch_of, rows_of

from holdfast.clickhouse.quoting import quote_literal
from holdfast.spark.clickhouse import statements
from holdfast.spark.clickhouse.errors import (
    BatchBlockedError,
    GenerationFencedError,
    ReplayDiffersError,
    RunFencedError,
)
from holdfast.spark.clickhouse.ownership import take_ownership
from holdfast.spark.clickhouse.scopes import WriteIdentity
from holdfast.testing.clickhouse import ClickHouseServer
from holdfast.vocabulary import failpoints
from holdfast.vocabulary.errors import UsageError


class DiedError(Exception):
    pass


class DieAt:
    def __init__(self, step: str) -> None:
        self._step = f"spark-clickhouse.{step}"

    def __call__(self, failpoint: str) -> None:
        if failpoint == self._step:
            raise DiedError(failpoint)


def key_of(table: TableUnderTest, scope: str = "query/q") -> statements.ScopeKey:
    return statements.ScopeKey(table.target.database, table.target.table, scope)


def test_batches_of_several_tasks_are_written_and_nothing_stays_staged(table: TableUnderTest) -> None:
    table.commit(batch_of(0), [1, 2], [3])
    table.commit(batch_of(1), [4], [])
    assert table.ids() == [1, 2, 3, 4]
    assert table.staged_rows() == 0


def test_small_tasks_are_inserted_together(clickhouse: ClickHouseServer, clickhouse_database: str) -> None:
    table = TableUnderTest(clickhouse, clickhouse_database)
    table.commit(batch_of(0), *([n] for n in range(20)))
    assert table.ids() == list(range(20))
    parts = table.client.value(
        f"SELECT count() FROM system.parts WHERE database = {quote_literal(clickhouse_database)} AND table = 't' AND active"
    )
    assert parts == 1
    table.client.close()


@pytest.mark.parametrize(
    ("step", "run"),
    [
        ("piece-inserted", "run-2"),
        ("done", "run-2"),
        *(pytest.param(step, "run-2", marks=pytest.mark.long) for step in ("owned", "begun", "inserted")),
        pytest.param("inserted", "run-1", marks=pytest.mark.long),
    ],
)
def test_a_commit_that_died_at_any_step_is_finished_by_the_next_one(table: TableUnderTest, step: str, run: str) -> None:
    table.commit(batch_of(0), [0])
    with failpoints.installed(DieAt(step)), pytest.raises(DiedError):
        table.commit(batch_of(1), [1, 2], [3, 4])
    table.commit(batch_of(1, run=run), [1, 2], [3, 4])
    table.commit(batch_of(2, run=run), [5])
    assert table.ids() == [0, 1, 2, 3, 4, 5]
    assert table.staged_rows() == 0 or step == "owned"


@pytest.mark.parametrize("lost", [False, True])
def test_a_batch_that_was_begun_is_finished_before_a_later_one_begins(
    clickhouse: ClickHouseServer, clickhouse_database: str, lost: bool
) -> None:
    """A series of writes that goes on after one of them has failed, or a `foreachBatch` that swallows the error."""
    table = TableUnderTest(clickhouse, clickhouse_database, {"inlineBytes": "0", "insertRowsMax": "1"})
    table.commit(batch_of(0), [0])
    with failpoints.installed(DieAt("piece-inserted")), pytest.raises(DiedError):
        table.commit(batch_of(1), [1, 2], [3, 4])
    assert table.ids() == [0, 1, 2]
    if lost:
        table.client.command(f"TRUNCATE TABLE {table.target.staged.full_name}")
        with pytest.raises(BatchBlockedError, match=r"batch 1 of query/q into .* what was staged for it is gone"):
            table.commit(batch_of(2, run="run-2"), [5])
        assert table.ids() == [0, 1, 2]
    else:
        table.commit(batch_of(2, run="run-2"), [])
        assert table.ids() == [0, 1, 2, 3, 4]
        table.commit(batch_of(2, run="run-2"), [5])
        assert table.ids() == [0, 1, 2, 3, 4, 5]
        assert table.staged_rows() == 0
    table.client.close()


def test_the_runs_of_a_scope_are_not_all_read(table: TableUnderTest) -> None:
    """Every named batch write is a run, and stays."""
    for number in range(5):
        table.commit(batch_of(number, run=f"run-{number}"), [number])
    table.commit(batch_of(0, run="other", query="other", scope="query/other"), [7])
    read = table.client.rows(key_of(table).read_runs("run-2"))
    assert sorted((int(epoch), run) for _, epoch, run, _ in read) == [(3, "run-2"), (5, "run-4")]
    with pytest.raises(RunFencedError):
        table.commit(batch_of(5, run="run-2"), [5])


def test_tables_of_overwrites_that_nobody_finished_are_dropped_when_they_are_old(
    clickhouse: ClickHouseServer, clickhouse_database: str
) -> None:
    table = TableUnderTest(clickhouse, clickhouse_database, replaces=True)
    for run in ("a", "b"):
        with failpoints.installed(DieAt("exchanging")), pytest.raises(DiedError):
            table.commit(WriteIdentity(scope=None, query="", run=run, batch=0), [1])
    key = key_of(table, "unnamed/c")
    assert len(table.client.rows(key.list_next_tables(hours=0))) == 2
    assert table.client.rows(key.list_next_tables(hours=1)) == []  # they may be in use
    table.client.close()


def test_empty_batches_of_a_new_generation_do_not_delete_again(table: TableUnderTest) -> None:
    table.commit(batch_of(0), [0])
    for number in range(3):
        table.commit(batch_of(number, run="run-2", generation=1), [])
    assert table.ids() == []
    found = table.client.value(f"SELECT count() FROM system.mutations WHERE database = {quote_literal(table.database)}")
    assert found == 1


@pytest.mark.parametrize("before", [False, pytest.param(True, marks=pytest.mark.long)], ids=["after", "before"])
@pytest.mark.parametrize(
    "statement",
    [
        "INTO `{}`.`t`",
        *(pytest.param(f"holdfast_spark_{name}", marks=pytest.mark.long) for name in ("batches", "runs", "staged")),
    ],
)
def test_an_answer_that_is_lost_costs_no_row_and_writes_none_twice(
    table: TableUnderTest, statement: str, before: bool
) -> None:
    table.client.losing, table.client.before = statement.format(table.target.database), before
    table.commit(batch_of(0), [1, 2], [3])
    assert table.client.lost == 1
    assert table.ids() == [1, 2, 3]


def test_a_token_that_was_recorded_without_its_rows_does_not_lose_them(table: TableUnderTest) -> None:
    with failpoints.installed(DieAt("inserted")), pytest.raises(DiedError):
        table.commit(batch_of(0), [1, 2])
    table.client.command(f"ALTER TABLE {table.target.full_name} DELETE WHERE 1 SETTINGS mutations_sync = 1")
    table.commit(batch_of(0, run="run-2"), [1, 2])
    assert table.ids() == [1, 2]


def test_a_run_that_was_replaced_writes_nothing_any_more(table: TableUnderTest) -> None:
    table.commit(batch_of(0, run="old"), [0])
    staged = table.stage(batch_of(1, run="old"), [rows_of([1])])
    table.commit(batch_of(1, run="new"), [1])
    with pytest.raises(RunFencedError, match="a newer run of query/q into"):
        table.commit_staged(batch_of(1, run="old"), [staged])
    with pytest.raises(RunFencedError):
        table.commit(batch_of(2, run="old"), [100])
    table.commit(batch_of(2, run="new"), [2])
    assert table.ids() == [0, 1, 2]


@pytest.mark.parametrize(
    "step", ["begun", *(pytest.param(each, marks=pytest.mark.long) for each in ("owned", "piece-inserted", "inserted"))]
)
def test_a_run_that_is_replaced_during_its_commit_is_refused_by_the_server(
    table: TableUnderTest, clickhouse: ClickHouseServer, step: str
) -> None:
    """The zombie has passed every check of its own when the other starts, finishes the batch, and goes on."""
    other = TableUnderTest(clickhouse, table.target.database, {"inlineBytes": "0"})

    def take_over(failpoint: str) -> None:
        if failpoint == f"spark-clickhouse.{step}":
            other.commit(batch_of(0, run="new"), [1, 2], [3])
            other.commit(batch_of(1, run="new"), [4])

    with failpoints.installed(take_over), pytest.raises(RunFencedError):
        table.commit(batch_of(0, run="old"), [1, 2], [3])
    other.commit(batch_of(2, run="new"), [5])
    assert table.ids() == [1, 2, 3, 4, 5]
    other.client.close()


def test_a_late_start_that_only_has_tasks_yet_is_known(table: TableUnderTest) -> None:
    """Its first task takes the scope; the commit of the older run comes after it."""
    old, new = batch_of(0, run="old"), batch_of(0, run="new")
    take_ownership(table.client, key_of(table), old)
    take_ownership(table.client, key_of(table), new)
    with pytest.raises(RunFencedError):
        table.commit(old, [1])
    table.commit(new, [1])
    assert table.ids() == [1]


@pytest.mark.parametrize("step", ["begun", "done"])
def test_a_batch_that_is_repeated_with_other_rows_is_noticed(table: TableUnderTest, step: str) -> None:
    with failpoints.installed(DieAt(step)), pytest.raises(DiedError):
        table.commit(batch_of(0), [1, 2])
    with pytest.raises(ReplayDiffersError, match=r"batch 0 of query/q.* recorded with 2 rows .* repeated with 3 rows"):
        table.commit(batch_of(0, run="run-2"), [1, 2, 3])
    table.commit(batch_of(0, run="run-3"), [2], [1])  # the same rows in another order and by other tasks
    assert table.ids() == [1, 2]


def test_what_was_recorded_first_counts_if_the_user_says_so(
    clickhouse: ClickHouseServer, clickhouse_database: str
) -> None:
    table = TableUnderTest(clickhouse, clickhouse_database, {"onDifferentReplay": "keep"})
    with failpoints.installed(DieAt("begun")), pytest.raises(DiedError):
        table.commit(batch_of(0), [1, 2])
    table.commit(batch_of(0, run="run-2"), [7, 8, 9])
    assert table.ids() == [1, 2]
    table.client.close()


def test_a_batch_of_a_restored_checkpoint_is_refused(table: TableUnderTest) -> None:
    table.commit(batch_of(0), [1])
    table.commit(batch_of(1), [2])
    with pytest.raises(BatchBlockedError, match="batches only go forward"):
        table.commit(batch_of(0, run="run-2"), [1, 2, 3])


def test_what_was_staged_and_is_gone_is_staged_again_if_none_of_it_is_visible(table: TableUnderTest) -> None:
    with failpoints.installed(DieAt("begun")), pytest.raises(DiedError):
        table.commit(batch_of(0), [1, 2])
    table.client.command(f"TRUNCATE TABLE {table.target.staged.full_name}")
    table.commit(batch_of(0, run="run-2"), [1, 2])
    assert table.ids() == [1, 2]


def test_what_was_staged_and_is_gone_blocks_if_some_of_it_is_visible(
    clickhouse: ClickHouseServer, clickhouse_database: str
) -> None:
    table = TableUnderTest(clickhouse, clickhouse_database, {"inlineBytes": "0", "insertRowsMax": "1"})
    with failpoints.installed(DieAt("piece-inserted")), pytest.raises(DiedError):
        table.commit(batch_of(0), [1], [2])
    table.client.command(f"TRUNCATE TABLE {table.target.staged.full_name}")
    with pytest.raises(BatchBlockedError, match="what was staged for it is gone"):
        table.commit(batch_of(0, run="run-2"), [1], [2])
    table.client.close()


def test_a_new_generation_deletes_the_rows_of_the_one_before_and_fences_it(table: TableUnderTest) -> None:
    table.client.command(f"INSERT INTO {table.target.full_name} (id) VALUES (1000)")  # somebody else's
    table.commit(batch_of(0, query="q0", run="a", generation=0), [1, 2])
    table.commit(batch_of(0, query="q1", run="b", generation=1), [1, 2, 3])
    with pytest.raises(GenerationFencedError):
        table.commit(batch_of(1, query="q0", run="a", generation=0), [4])
    with pytest.raises(GenerationFencedError):
        table.commit(batch_of(1, query="q0", run="late", generation=0), [4])
    assert table.ids() == [1, 2, 3, 1000]


def test_a_new_checkpoint_of_a_named_scope_is_a_new_generation(table: TableUnderTest) -> None:
    def of(query: str, run: str, batch: int) -> WriteIdentity:
        return batch_of(batch, query=query, run=run, scope="scope/orders", generation=None)

    table.commit(of("first", "a", 0), [1])
    table.commit(of("first", "b", 1), [2])
    table.commit(of("second", "c", 0), [1, 2])
    with pytest.raises(GenerationFencedError):
        table.commit(of("first", "d", 2), [3])
    assert table.ids() == [1, 2]


def test_without_provenance_a_new_generation_is_refused(clickhouse: ClickHouseServer, clickhouse_database: str) -> None:
    table = TableUnderTest(clickhouse, clickhouse_database, {"provenance": "off"})
    table.commit(batch_of(0, generation=0), [1])
    with pytest.raises(UsageError, match="no provenance columns"):
        table.commit(batch_of(0, run="run-2", query="q1", generation=1), [1])
    table.client.close()


def test_a_write_that_is_done_is_done_again_in_a_table_that_was_recreated(table: TableUnderTest) -> None:
    for _ in range(2):
        table.commit(batch_of(3, scope="write/daily", generation=None), [1, 2])
    assert table.ids() == [1, 2]
    table.client.command(f"DROP TABLE {table.target.full_name} SYNC")
    table.__post_init__()
    for _ in range(2):
        table.commit(batch_of(3, scope="write/daily", generation=None), [1, 2])
    assert table.ids() == [1, 2]
    table.commit(batch_of(4, scope="write/daily", generation=None), [3])
    assert table.ids() == [1, 2, 3]


def test_a_run_that_was_replaced_is_refused_in_a_recreated_table_too(table: TableUnderTest) -> None:
    table.commit(batch_of(0), [1])
    table.commit(batch_of(1, run="run-2"), [2])
    table.client.command(f"DROP TABLE {table.target.full_name} SYNC")
    table.__post_init__()
    with pytest.raises(RunFencedError):
        table.commit(batch_of(1), [2])
    assert table.ids() == []


def test_an_overwrite_does_not_make_another_table_of_it(
    clickhouse: ClickHouseServer, clickhouse_database: str, table: TableUnderTest
) -> None:
    table.commit(batch_of(0, scope="write/daily", generation=None), [1])
    overwriting = TableUnderTest(clickhouse, clickhouse_database, replaces=True)
    for number in range(3):
        overwriting.commit(batch_of(number, scope="write/rewritten", generation=None), [7])
    table.commit(batch_of(0, scope="write/daily", generation=None), [1])
    assert table.ids() == [7], "what was written before the overwrite is replaced by it"
    overwriting.client.close()


def test_a_batch_that_an_earlier_build_recorded_by_name_is_known(table: TableUnderTest) -> None:
    identity = batch_of(0, scope="write/daily", generation=None)
    table.commit(identity, [1])
    batches = f"{table.target.database}.{statements.BATCHES}"
    table.client.command(
        f"INSERT INTO {batches} (target, scope, generation, batch, done, epoch, run, rows, hash, plan) "
        f"SELECT 't', scope, generation, batch, done, epoch, run, rows, hash, plan FROM {batches} WHERE done"
    )
    table.client.command(f"ALTER TABLE {batches} DELETE WHERE target != 't' SETTINGS mutations_sync = 1")
    table.commit(identity, [1])
    assert table.ids() == [1]


def test_two_scopes_write_one_table_beside_each_other(table: TableUnderTest) -> None:
    table.commit(batch_of(0, run="a", query="a", scope="query/a"), [1])
    table.commit(batch_of(0, run="b", query="b", scope="query/b"), [2])
    table.commit(batch_of(1, run="a", query="a", scope="query/a"), [3])
    assert table.ids() == [1, 2, 3]


def test_complete_mode_replaces_the_table(clickhouse: ClickHouseServer, clickhouse_database: str) -> None:
    table = TableUnderTest(clickhouse, clickhouse_database, replaces=True)
    table.commit(batch_of(0), [1, 2])
    table.commit(batch_of(1), [2, 3])
    assert table.ids() == [2, 3]
    for batch, step in enumerate(("exchanging", "inserted"), start=2):
        with failpoints.installed(DieAt(step)), pytest.raises(DiedError):
            table.commit(batch_of(batch, run=f"at-{step}"), [4, batch + 3])
        table.commit(batch_of(batch, run=f"after-{step}"), [4, batch + 3])
        assert table.ids() == [4, batch + 3]
    with pytest.raises(RunFencedError):
        table.commit(batch_of(4), [6])
    table.commit(batch_of(4, run="after-inserted"), [])
    assert table.ids() == []
    table.client.close()


def test_a_run_that_was_replaced_exchanges_nothing_however_late(
    clickhouse: ClickHouseServer, clickhouse_database: str
) -> None:
    """The fence was compared; then the successor fills a table of its own, and is half done when the zombie wakes."""
    table = TableUnderTest(clickhouse, clickhouse_database, replaces=True)
    other = TableUnderTest(clickhouse, clickhouse_database, replaces=True)

    def take_over(failpoint: str) -> None:
        if failpoint == "spark-clickhouse.exchanging":
            other.commit(batch_of(1, run="new"), [1, 2])

    table.commit(batch_of(0, run="old"), [1])
    with failpoints.installed(take_over), pytest.raises(RunFencedError):
        table.commit(batch_of(1, run="old"), [7])
    assert table.ids() == [1, 2]
    for each in (table, other):
        each.client.close()


def test_a_lost_answer_of_the_exchange_is_repeated(clickhouse: ClickHouseServer, clickhouse_database: str) -> None:
    table = TableUnderTest(clickhouse, clickhouse_database, replaces=True)
    for before in (False, True):
        table.client.losing, table.client.before = "EXCHANGE", before
        table.commit(batch_of(int(before)), [1, 2 + before])
        assert table.ids() == [1, 2 + before]
    assert table.client.lost == 2
    table.client.close()


def test_an_insert_of_the_run_before_is_killed(table: TableUnderTest, clickhouse: ClickHouseServer) -> None:
    """It has passed the fence, and would store its rows after the successor has looked."""
    from tests.support.clickhouse_http import BackgroundCall, is_running, send_query
    from tests.support.waiting import until

    table.commit(batch_of(0, run="old"), [1])
    query_id = f"{key_of(table).queries}1:0:zombie"
    slow = f"INSERT INTO {table.target.full_name} (id) SELECT 99 + sleepEachRow(1) FROM numbers(90) SETTINGS max_block_size = 1"
    zombie = BackgroundCall(
        lambda: send_query(clickhouse, slow.encode(), query_id=query_id, function_sleep_max_microseconds_per_block=0)
    )
    until(lambda: is_running(clickhouse, query_id), what="the zombie's insert runs")
    table.commit(batch_of(1, run="new"), [2])
    assert zombie.result().status != 200
    assert table.ids() == [1, 2]


def test_errors_do_not_show_the_password(clickhouse: ClickHouseServer, clickhouse_database: str) -> None:
    table = TableUnderTest(clickhouse, clickhouse_database)
    client = LosingClient("http://tester:wrong-secret@127.0.0.1:1")
    table.client.close()
    with pytest.raises(Exception, match="does not answer") as failure:
        client.rows("SELECT 1")
    assert "wrong-secret" not in str(failure.value)
    assert clickhouse.password not in repr(table.parsed)
