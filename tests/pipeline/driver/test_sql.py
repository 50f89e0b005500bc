"""SQL over the mapped view: what is refused before it runs, and what comes out of what is not."""

from typing import TYPE_CHECKING

import pytest
from tests.support.driver_cluster import DriverCluster, drain, event
from tests.support.sink_destinations import ClickHouseDatabase, sink_of, totals

from holdfast.pipeline.driver import sql
from holdfast.pipeline.driver.slot_revisions import PermanentError
from holdfast.pipeline.driver.spark_jobs import SparkJobs
from holdfast.pipeline.driver.sql_plan import check_plan
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
    "select named_struct('a', 1, 'b', name) as s, id from rows": [
        ("s", "Tuple(a Int32, b Nullable(String))"),
        ("id", "UInt64"),
    ],
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
WIDE = ", ".join(f"id + {number} as c{number}" for number in range(40))
"""More columns than the text of a plan shows."""
MANY_FUNCTIONS = """
    nvl(name, 'a') as c1, ifnull(name, 'b') as c2, nullif(name, 'b') as c3, coalesce(name, 'x') as c4, if(id >
    1, 1, 2) as c5, case when id > 1 then 2 else 3 end as c6, id between 1 and 2 as c7, id in (1, 2, 3) as c8,
    name like 'a%' as c9, name rlike 'b' as d1, substr(name, 1, 2) as d2, left(name, 2) as d3, rpad(name, 5,
    'x') as d4, trim(name) as d5, split(name, ',')[0] as d6, regexp_replace(name, 'a', 'b') as d7,
    concat_ws('-', name, 'y') as d8, upper(name) || lower(name) as d9, initcap(name) as e1, to_date(name) as e2,
    to_timestamp(name, 'yyyy') as e3, year(at) as e4, hour(at) as e5, date_trunc('day', at) as e6, date(at) as
    e7, date_add(date(at), 1) as e8, at + interval 1 day as e9, unix_millis(at) as f1, date_format(at, 'yyyy')
    as f2, datediff(at, at) as f3, timestamp '2026-01-01 00:00:00' as f4, cast('2026-01-01' as date) as f5,
    timestamp_millis(cast(id as bigint)) as f6, from_unixtime(cast(id as bigint)) as f7, transform(tags, tag ->
    upper(tag)) as g1, filter(tags, tag -> tag > 'a') as g2, aggregate(tags, 0, (sum, tag) -> sum + 1) as g3,
    array_contains(tags, 'x') as g4, size(tags) as g5, tags[0] as g6, element_at(tags, 1) as g7, map('a',
    id)['a'] as g8, get_json_object(name, '$.a') as h1, from_json(name, 'a int').a as h2, to_json(map('a', id))
    as h3, sha2(name, 256) as h4, md5(name) as h5, xxhash64(name) as h6, round(id / 3, 2) as h7, abs(-id) as h8,
    id % 7 as h9, greatest(id, 5) as i1, pmod(id, 3) as i2, try_cast(name as int) as i3, try_divide(id, 0) as
    i4, ceil(id / 2) as i5, floor(id / 2) as i6, power(id, 2) as i7, log(10, id) as i8, length(name) as j1,
    instr(name, 'a') as j2, locate('a', name) as j3, parse_url(name, 'HOST') as j4, url_decode(name) as j5, name
    is null as j6, not (id > 5 and id < 9 or id <=> 7) as j7, typeof(id) as j8, startswith(name, 'a') as j9,
    'now' as k1
"""
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
    "select id, to_binary(name, 'utf-8') as s from rows": "binary",
    "select id, monotonically_increasing_id() as n from rows": "monotonically_increasing_id",
    "select id, spark_partition_id() as n from rows": "spark_partition_id",
    f"select id, {WIDE}, current_timestamp() as t from rows": "current_timestamp",
    f"select id, {WIDE}, current_user() as t from rows": "current_user",
    "select id, unix_timestamp() as t from rows": "current_timestamp",
    "select id, aes_encrypt(name, '0000111122223333') as t from rows": "aes_encrypt",
    "select id, reflect('java.util.UUID', 'randomUUID') as t from rows": "call_method_via_reflection",
    "select id, transform(tags, tag -> concat(tag, current_date())) as t from rows": "current_date",
    "select id, case when id > 5 then name else uuid() end as t from rows": "uuid",
    "select id from rows where at > cast('today' as timestamp)": "constant time",
    "select id from rows where at > to_timestamp(concat('n', 'ow'))": "constant time",
    "select id, date 'Yesterday' as t from rows": "Yesterday",
    "select id, cast(array('today') as array<date>) as t from rows": "constant time",
    "select id, cast(named_struct('a', 'now') as struct<a: timestamp>) as t from rows": "constant time",
    "select id, timestamp /* a remark */ ' now' as t from rows": "now",
    "select id from rows tablesample (50 percent)": "Sample",
}


def frame_of(jobs: SparkJobs, text: str) -> "DataFrame":
    session = jobs.own_session()
    empty = session.createDataFrame([], sql.view_schema(COLUMNS, overflow=False))
    frame = sql.selected(session, empty, text)
    check_plan(frame)
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


def test_common_functions_are_allowed(jobs: SparkJobs) -> None:
    frame = frame_of(jobs, f"select id, {MANY_FUNCTIONS} from rows")
    assert len(sql.columns_of(frame, COLUMNS)) == 70


def test_rows_go_through_sql_and_keep_their_offsets(
    world: DriverCluster, jobs: SparkJobs, clickhouse: ClickHouseDatabase
) -> None:
    topic = world.topic(2)
    for number in (0, 1):
        world.produce(topic, [*map(event, range(300)), b"bad"], partition=number)
    struct = "if(id % 2 = 0, named_struct('a', id, 'b', name), null) as s"
    text = f"select id * 2 as twice, id, name, {struct} from rows where id % 3 = 0"
    pipeline = world.pipeline(topic, sink_of(clickhouse, batchSize=200), sql={"sql": text})
    registry = world.registry(pipeline, 2)
    claims = world.claim(registry, "ann", [0, 1])
    work = world.work(jobs, pipeline, "ann")
    drain(work, claims, {0: 301, 1: 301})
    third = 2 * sum(range(0, 300, 3))
    assert totals(clickhouse, column="twice") == (200, 200, 2 * third)
    structs = f"SELECT sum(s.a) AS a, countIf(isNull(s.b)) AS n FROM {clickhouse.database}.orders"
    assert [int(value) for value in clickhouse.ask(structs)[0].values()] == [2 * sum(range(0, 300, 6)), 100]
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
