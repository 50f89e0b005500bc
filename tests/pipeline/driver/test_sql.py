"""SQL over the mapped view: what is refused before it runs, and what comes out of what is not."""

from typing import TYPE_CHECKING

import pytest
from tests.support.driver_cluster import DriverCluster, drain, event
from tests.support.sink_destinations import ClickHouseDatabase, sink_of, totals

from holdfast.pipeline.driver import sql
from holdfast.pipeline.driver.slot_revisions import PermanentError
from holdfast.pipeline.driver.spark_jobs import SparkJobs
from holdfast.pipeline.model.column_mapping import Column
from holdfast.vocabulary.errors import InvalidError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

pytestmark = pytest.mark.spark

COLUMNS = (
    Column("id", "id", "UInt64"),
    Column("name", "name", "LowCardinality(String)", True),
    Column("at", "at", "DateTime64(3)"),
    Column("tags", "tags", "Array(String)"),
)
ROW_WISE = {
    "select id, upper(name) as shout, at from rows": [
        ("id", "UInt64"),
        ("shout", "Nullable(String)"),
        ("at", "DateTime64(3)"),
    ],
    "SELECT * FROM rows WHERE id > 5": [
        ("id", "UInt64"),
        ("name", "LowCardinality(Nullable(String))"),
        ("at", "DateTime64(3)"),
        ("tags", "Array(String)"),
    ],
    "-- a remark\nselect id % 2 = 0 as even, date(at) as day from rows;": [("even", "Nullable(Bool)"), ("day", "Date")],
    "select id, tag from rows lateral view explode(tags) as tag": [("id", "UInt64"), ("tag", "Nullable(String)")],
    "select cast(id as double) / 3 as third, 'a' as text from rows": [
        ("third", "Nullable(Float64)"),
        ("text", "String"),
    ],
}
REFUSED = {
    "select count(*) as n from rows": "GROUP BY",
    "select name, count(*) as n from rows group by name": "",
    "select max(id) as n from rows group by _partition, _offset, __hf_stats": "Aggregate",
    "select distinct name from rows": "DISTINCT",
    "select id from rows order by id": "Sort",
    "select id from rows limit 5": "Limit",
    "select a.id from rows a join rows b on a.id = b.id": "ambiguous",
    "select id from rows union all select id from rows": "columns",
    "select id, row_number() over (order by id) as n from rows": "Window",
    "select id, rand() as r from rows": "rand",
    "select id, uuid() as u from rows": "uuid",
    "select id, current_timestamp() as t from rows": "current_timestamp",
    "select id, current_date as t from rows": "current_date",
    "select id, now() as t from rows": "now",
    "select id, (select max(id) from rows) as m from rows": "",
    "select id from rows where id in (select id from rows)": "",
    "select id from (select *, _partition, _offset from rows) cross join (select 1 as one)": "",
    "select id from rows union all select 0, 0, '', id from rows": "Union",
    "with x as (select 1) select * from rows": "WITH",
    "drop table rows": "SELECT",
    "select nothing from rows": "nothing",
    "select id from elsewhere": "elsewhere",
    "select id, id from rows": "must be unique",
    "select id, named_struct('a', 1) as s from rows": "struct",
    "select id, monotonically_increasing_id() as n from rows": "monotonically_increasing_id",
    "select id, spark_partition_id() as n from rows": "SPARK_PARTITION_ID",
}


def frame_of(jobs: SparkJobs, text: str) -> "DataFrame":
    session = jobs.own_session()
    empty = session.createDataFrame([], sql.view_schema(COLUMNS, overflow=False))
    frame = sql.selected(session, empty, text)
    sql.check(frame)
    return frame


@pytest.mark.parametrize("text", ROW_WISE)
def test_row_by_row_sql_has_its_columns(text: str, jobs: SparkJobs) -> None:
    found = [(column.column, str(column.kind)) for column in sql.columns_of(frame_of(jobs, text), COLUMNS)]
    wanted = ROW_WISE[text]
    assert found == wanted


@pytest.mark.parametrize("text", REFUSED)
def test_sql_that_is_not_row_by_row_is_rejected_with_the_reason(text: str, jobs: SparkJobs) -> None:
    with pytest.raises(InvalidError) as refused:
        sql.columns_of(frame_of(jobs, text), COLUMNS)
    assert REFUSED[text] in str(refused.value)


def test_rows_go_through_sql_and_keep_their_offsets(
    world: DriverCluster, jobs: SparkJobs, clickhouse: ClickHouseDatabase
) -> None:
    topic = world.topic(2)
    for number in (0, 1):
        world.produce(topic, [*map(event, range(300)), b"bad"], partition=number)
    text = "select id * 2 as twice, id, name from rows where id % 3 = 0"
    pipeline = world.pipeline(topic, sink_of(clickhouse, batchSize=200), sql={"sql": text})
    registry = world.registry(pipeline, 2)
    claims = world.claim(registry, "ann", [0, 1])
    work = world.work(jobs, pipeline, "ann")
    drain(work, claims, {0: 301, 1: 301})
    third = 2 * sum(range(0, 300, 3))
    assert totals(clickhouse, column="twice") == (200, 200, 2 * third)
    assert totals(clickhouse, "orders_dlq", "recipe")[:2] == (2, 2)
    found = clickhouse.ask(f"SELECT count() AS n FROM {clickhouse.database}.orders WHERE _offset != id")
    assert int(found[0]["n"]) == 0
    assert work.counters.dlq_rows == 2
    kinds = {row["name"]: row["type"] for row in clickhouse.ask(f"DESCRIBE {clickhouse.database}.orders")}
    assert (kinds["id"], kinds["twice"]) == ("Int64", "Int64")


def test_a_range_without_rows_moves_the_checkpoint(
    world: DriverCluster, jobs: SparkJobs, clickhouse: ClickHouseDatabase
) -> None:
    topic = world.topic(1)
    world.produce(topic, map(event, range(50)))
    pipeline = world.pipeline(topic, sink_of(clickhouse), sql={"sql": "select id from rows where id > 1000"})
    claims = world.claim(world.registry(pipeline, 1), "ann", [0])
    drain(world.work(jobs, pipeline, "ann"), claims, {0: 50})
    assert totals(clickhouse) == (0, 0, 0)


def test_rejected_sql_stops_the_slot_with_the_reason(
    world: DriverCluster, jobs: SparkJobs, clickhouse: ClickHouseDatabase
) -> None:
    topic = world.topic(1)
    pipeline = world.pipeline(topic, sink_of(clickhouse), sql={"sql": "select count(*) as n from rows"})
    claims = world.claim(world.registry(pipeline, 1), "ann", [0])
    with pytest.raises(PermanentError, match="GROUP BY"):
        world.work(jobs, pipeline, "ann").turn(claims)
