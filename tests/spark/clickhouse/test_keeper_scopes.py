"""Scopes of replicated tables: runs and batches in a KeeperMap, which two ClickHouse servers (chDB) have from one ZooKeeper.

A replicated table cannot be inserted into here: chDB has no port for other replicas, and leaves it read-only. So the rows go to a
plain table of each server, which stand for two replicas; fence, runs and batches are those of a replicated one.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any, TypeVar

import pytest
from tests.support.clickhouse_sink import SCHEMA, TableUnderTest, batch_of
from tests.support.recording_clickhouse import RecordingClickHouse
from tests.support.waiting import until
from tests.support.zookeeper import KeeperClickHouse

from holdfast.clickhouse.client import ClickHouseClient
from holdfast.clickhouse.error_codes import ClickHouseErrorCode
from holdfast.clickhouse.errors import ClickHouseError
from holdfast.spark.clickhouse import target as target_module
from holdfast.spark.clickhouse import writers
from holdfast.spark.clickhouse.errors import BatchBlockedError, GenerationFencedError, RunFencedError
from holdfast.spark.clickhouse.keeper_statements import create_in_keeper
from holdfast.spark.clickhouse.options import parse_options
from holdfast.spark.clickhouse.ownership import take_ownership
from holdfast.spark.clickhouse.statements import PROVENANCE
from holdfast.spark.clickhouse.target import Target, prepare_target
from holdfast.vocabulary import failpoints
from holdfast.vocabulary.errors import UnavailableError, UsageError

pytestmark = pytest.mark.xdist_group("keeper")

T = TypeVar("T")
Pair = tuple[KeeperClickHouse, KeeperClickHouse]
Replicas = tuple[TableUnderTest, TableUnderTest]
NUMBERS = count()


class DiedError(Exception):
    pass


def die(failpoint: str) -> None:
    if failpoint == "spark-clickhouse.piece-inserted":
        raise DiedError


@pytest.fixture
def replicas(clickhouse_replicas: Pair, monkeypatch: pytest.MonkeyPatch) -> Iterator[Replicas]:
    monkeypatch.setattr(target_module, "table_identity", lambda *_: "one for both")
    database = f"scopes_{next(NUMBERS)}"
    made = []
    for server in clickhouse_replicas:
        server.query(f"CREATE DATABASE {database} ENGINE = Atomic")
        table = TableUnderTest(server, database, {"inlineBytes": "0", "insertRowsMax": "1"})
        for statement in create_in_keeper(database, "").values():
            repeated(partial(table.client.command, statement))
        table.target = replace(table.target, in_keeper=True)
        made.append(table)
    yield made[0], made[1]
    for table in made:
        table.client.close()


def repeated(call: Callable[[], T]) -> T:
    """As Spark does: a server that has lost its session with Keeper is asked again. Every call here may be."""
    done: list[T] = []

    def attempt() -> bool:
        try:
            done.append(call())
        except (ClickHouseError, UnavailableError) as error:
            if "KEEPER_EXCEPTION" not in str(error) or "Session expired" not in str(error):
                raise
        return bool(done)

    until(attempt, what="Keeper answers")
    return done[0]


def test_a_zombie_at_one_server_is_refused_by_the_run_that_succeeds_it_at_another(replicas: Replicas) -> None:
    first, second = replicas
    repeated(lambda: first.commit(batch_of(0), [1]))
    repeated(lambda: second.commit(batch_of(1, run="run-2"), [2]))
    with pytest.raises(RunFencedError):
        repeated(lambda: first.commit(batch_of(1), [2]))
    with pytest.raises(RunFencedError):  # nor does it come back as a newer one
        repeated(lambda: take_ownership(first.client, first.target.scope_key("query/q"), batch_of(2)))
    repeated(lambda: second.commit(batch_of(2, run="run-2"), [3]))
    assert (first.ids(), second.ids()) == ([1], [2, 3])


def test_a_batch_that_one_server_has_recorded_is_known_to_the_other(replicas: Replicas) -> None:
    first, second = replicas
    repeated(lambda: first.commit(batch_of(0), [1], [2]))
    repeated(lambda: second.commit(batch_of(0, run="run-2"), [1], [2]))
    assert (first.ids(), second.ids()) == ([1, 2], [])
    repeated(lambda: second.commit(batch_of(2, run="run-2"), [3]))
    with pytest.raises(BatchBlockedError, match="batches only go forward"):
        repeated(lambda: first.commit(batch_of(1, run="run-3"), [4]))


def test_an_insert_between_the_look_at_the_fence_and_its_end_is_refused_by_its_own_statement(
    replicas: Replicas,
) -> None:
    first, second = replicas
    repeated(lambda: first.commit(batch_of(0), [1]))

    def overtaken(failpoint: str) -> None:
        if failpoint == "spark-clickhouse.begun":
            repeated(
                lambda: take_ownership(second.client, second.target.scope_key("query/q"), batch_of(1, run="run-2"))
            )

    with failpoints.installed(overtaken), pytest.raises(RunFencedError):
        first.commit(batch_of(1), [2])
    assert first.ids() == [1]


def test_rows_that_a_zombie_stored_in_the_moment_it_was_replaced_are_not_taken_for_those_of_the_batch(
    replicas: Replicas,
) -> None:
    """It had read a fence that was a moment old, and had divided the batch otherwise."""
    first, _ = replicas

    def zombie(failpoint: str) -> None:
        if failpoint == "spark-clickhouse.begun":
            columns = "id, name, _scope, _generation, _batch, _piece"
            first.client.command(
                f"INSERT INTO {first.target.full_name} ({columns}) VALUES (2, NULL, 'query/q', 0, 0, 0)"
            )

    with (
        failpoints.installed(zombie),
        pytest.raises(BatchBlockedError, match=r"the table has 2 rows .*, and 2 rows .* were"),
    ):
        first.commit(batch_of(0), [1], [2])


def test_a_batch_that_was_half_inserted_is_finished_where_its_rows_are_staged(replicas: Replicas) -> None:
    first, _ = replicas
    with failpoints.installed(die), pytest.raises(DiedError):
        first.commit(batch_of(0), [1], [2])
    assert first.ids() == [1]
    repeated(lambda: first.commit(batch_of(0, run="run-2"), [1], [2]))
    assert first.ids() == [1, 2]


def test_of_runs_that_start_at_once_at_two_servers_each_has_a_number_of_its_own_and_the_newest_may_write(
    replicas: Replicas,
) -> None:
    def start(number: int) -> int | None:
        table = replicas[number % 2]
        key, identity = table.target.scope_key("query/q"), batch_of(0, run=f"run-{number}")
        with closing(ClickHouseClient(table.parsed.dsn, timeout_ms=60_000)) as client:
            try:
                own, _ = repeated(lambda: take_ownership(client, key, identity))
            except RunFencedError:  # a newer one started meanwhile
                return None
            return own.epoch

    with ThreadPoolExecutor(4) as pool:
        found = [epoch for epoch in pool.map(start, range(8)) if epoch is not None]
    assert found
    assert len(set(found)) == len(found)
    key = replicas[0].target.scope_key("query/q")
    runs = repeated(
        lambda: replicas[0].client.rows(f"SELECT epoch, run FROM {key.database}.{key.runs_table} ORDER BY epoch")
    )
    assert [int(epoch) for epoch, _ in runs] == list(range(1, 9))
    repeated(lambda: replicas[1].commit(batch_of(0, run=runs[-1][1]), [1]))
    with pytest.raises(RunFencedError):
        repeated(lambda: replicas[0].commit(batch_of(0, run=runs[-2][1]), [1]))


def test_an_earlier_generation_is_refused_and_a_later_one_begins(replicas: Replicas) -> None:
    first, second = replicas
    repeated(lambda: first.commit(batch_of(5, generation=0), [1]))
    repeated(lambda: second.commit(batch_of(0, run="run-2", query="other", generation=1), [1]))
    with pytest.raises(GenerationFencedError):
        repeated(lambda: first.commit(batch_of(6, run="run-3", generation=0), [2]))
    assert (first.ids(), second.ids()) == ([1], [1])


def replicated(refuses: dict[str, int] | None = None) -> RecordingClickHouse:
    """A table of three replicas on a cluster."""
    answers: dict[str, Any] = {
        "SELECT engine, engine_full": [["ReplicatedMergeTree", "ReplicatedMergeTree ORDER BY id"]],
        "FROM system.columns": [
            [name, kind, ""] for name, kind in {"id": "Int64", "name": "String", **PROVENANCE}.items()
        ],
        "SELECT engine FROM system.databases": [["Atomic"]],
        "SELECT zookeeper_path": [["/tables/orders"]],
        "FROM system.zookeeper": [[77]],
        "total_replicas": [[3]],
    }
    return RecordingClickHouse(answers, refuses or {})


def target_on(server: RecordingClickHouse, **more: str) -> Target:
    given = {"url": "http://h", "table": "shop.orders", "cluster": "main", **more}
    return prepare_target(server.client, parse_options(given), SCHEMA)


def test_a_replicated_table_has_its_runs_and_batches_in_keeper_on_every_server_and_its_own_identity() -> None:
    server = replicated()
    target = target_on(server)
    assert (target.in_keeper, target.replicated, target.countable, target.mutations_sync) == (True, True, True, 2)
    made = [statement for statement in server.sent if "KeeperMap(" in statement]
    assert len(made) == 3
    assert all(" ON CLUSTER `main` " in statement for statement in made)
    assert target.identity(server.client) == "/tables/orders@77"
    key = target.scope_key("query/q")
    assert key.kill_inserts().startswith("KILL QUERY ON CLUSTER `main` WHERE startsWith(query_id, 'holdfast-spark:")
    assert "clusterAllReplicas('main', system.processes)" in key.count_inserts()


@pytest.mark.parametrize(
    ("refuses", "options", "reason"),
    [
        (
            {"KeeperMap": ClickHouseErrorCode.BAD_ARGUMENTS},
            {},
            "refused: KeeperMap; guarantee=at-least-once accepts that",
        ),
        ({}, {"cluster": ""}, "it has 3 replicas and the sink names no cluster"),
        ({"system.zookeeper": ClickHouseErrorCode.UNKNOWN_TABLE}, {}, "GRANT SELECT ON system.zookeeper"),
    ],
)
def test_a_replicated_table_without_a_fence_for_all_of_it_is_refused_with_the_reason(
    refuses: dict[str, int], options: dict[str, str], reason: str
) -> None:
    with pytest.raises(UsageError, match=reason):
        target_on(replicated(refuses), **options)
    target = target_on(replicated(refuses), guarantee="at-least-once", **options)
    assert (target.in_keeper, target.replicated) == (False, True)


def test_the_content_of_a_replicated_table_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    server = replicated()
    monkeypatch.setattr(writers, "connect", lambda _: server.client)
    with pytest.raises(UsageError, match="an overwrite, or output mode complete, exchanges two tables"):
        writers.batch_writer({"url": "http://h", "table": "shop.orders", "cluster": "main"}, SCHEMA, overwrite=True)
