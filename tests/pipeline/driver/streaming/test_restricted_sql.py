"""The SQL of a query reads its sources and computes; it runs nothing else, wherever it is hidden."""

from pathlib import Path
from typing import Any

import pytest

from holdfast.client.cluster_address import ClusterAddress
from holdfast.pipeline.driver.slot_revisions import PermanentError
from holdfast.pipeline.driver.spark_jobs import SparkJobs
from holdfast.pipeline.driver.sql import selected, view_schema
from holdfast.pipeline.driver.streaming import stream_query
from holdfast.pipeline.model.query import QueryConfig, StreamSource

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]  # a cold JVM on a busy machine

NOT_ALLOWED = "is not allowed: a query is one SELECT"


@pytest.fixture(autouse=True)
def _rate_as_source(monkeypatch: pytest.MonkeyPatch) -> None:
    def source_view(session: Any, *_: object) -> Any:
        rows = session.readStream.format("rate").load()
        return rows.selectExpr("value AS id", "timestamp AS at", "'k' AS kind").withWatermark("at", "10 seconds")

    monkeypatch.setattr(stream_query, "source_view", source_view)


def built(jobs: SparkJobs, sql: str) -> stream_query.StreamQuery:
    config = QueryConfig(sources=(StreamSource(topic="t", name="orders"),), sql=sql, shuffle_partitions=2)
    return stream_query.build_query(
        stream_query.stream_session(jobs, config),
        config,
        order_by=(),
        address=ClusterAddress(bootstrap="127.0.0.1:1"),
        starts=({},),
        python_allowed=False,
    )


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("INSERT OVERWRITE LOCAL DIRECTORY '{folder}/out' USING csv SELECT 'x'", f"InsertIntoDir {NOT_ALLOWED}"),
        ("CREATE TABLE made USING parquet LOCATION '{folder}/out' AS SELECT 1 AS id", NOT_ALLOWED),
        ("WITH a AS (SELECT 1 AS x) INSERT INTO made SELECT * FROM a", NOT_ALLOWED),
        ("SET spark.sql.runSQLOnFiles = true", f"SetCommand {NOT_ALLOWED}"),
        ("ADD JAR '{folder}/evil.jar'", NOT_ALLOWED),
        ("EXECUTE IMMEDIATE 'SET spark.sql.runSQLOnFiles = true'", NOT_ALLOWED),
        ("BEGIN SET spark.sql.runSQLOnFiles = true; SELECT * FROM orders; END", NOT_ALLOWED),
        ("SELECT TRANSFORM(id) USING 'tee {folder}/out' AS (id STRING) FROM orders", NOT_ALLOWED),
        (
            "WITH a AS (SELECT TRANSFORM(id) USING 'tee {folder}/out' AS (id STRING) FROM orders) SELECT id FROM a",
            "ScriptTransformation is not one of its sources",
        ),
        (
            "SELECT id FROM orders WHERE kind > (SELECT reflect('java.lang.System', 'getenv', 'HOME'))",
            "CallMethodViaReflection",
        ),
        ("SELECT id FROM orders WHERE id > (SELECT max(id) FROM global_temp.neighbours)", "is not one of its sources"),
        ("SELECT id FROM orders TABLESAMPLE (10 PERCENT)", NOT_ALLOWED),
    ],
    ids=lambda given: given[:40],
)
def test_sql_that_does_anything_but_read_its_sources_is_refused_before_it_runs(
    sql: str, reason: str, jobs: SparkJobs, tmp_path: Path
) -> None:
    jobs.spark.range(3).createOrReplaceGlobalTempView("neighbours")
    with pytest.raises(PermanentError, match=reason):
        built(jobs, sql.replace("{folder}", tmp_path.as_posix()))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "sql",
    [
        "WITH big AS (SELECT * FROM orders WHERE id > 1) SELECT kind, count(*) AS n FROM big GROUP BY kind HAVING count(*) > 1",
        "SELECT o.id AS id, d.name AS name FROM orders o JOIN (VALUES (1, 'a'), (2, 'b')) AS d(k, name) ON o.id = d.k",
        "SELECT id, x FROM orders LATERAL VIEW explode(array(1, 2)) t AS x UNION ALL SELECT id, 3 AS x FROM orders",
        "SELECT id, t.x AS x FROM orders, LATERAL (SELECT id + 1 AS x) t",
        "SELECT * FROM (SELECT kind, id FROM orders) PIVOT (count(id) AS n FOR kind IN ('k' AS k, 'l' AS l))",
        "SELECT session_window.start AS at, count(DISTINCT kind) AS n FROM orders GROUP BY session_window(at, '1 minute')",
        "FROM orders |> WHERE id > 1 |> AGGREGATE count(*) AS n GROUP BY kind",
        "SELECT /*+ REPARTITION(2) */ DISTINCT id FROM orders WHERE id IN (SELECT id FROM range(5))",
    ],
    ids=lambda given: given[:40],
)
def test_what_only_computes_is_a_query(sql: str, jobs: SparkJobs) -> None:
    assert built(jobs, sql).columns


def test_neither_environment_nor_settings_are_written_into_sql(jobs: SparkJobs) -> None:
    secrets = "'${env:PATH}' AS a, '${spark.app.name}' AS b, '${system:user.home}' AS c"
    plan = built(jobs, f"SELECT id, {secrets} FROM orders").frame._jdf.queryExecution().analyzed().toString()
    assert "${env:PATH} AS a" in plan
    assert "${spark.app.name} AS b" in plan
    assert "${system:user.home} AS c" in plan


def test_nor_into_the_sql_of_a_mapping(jobs: SparkJobs) -> None:
    session = jobs.own_session()
    rows = session.createDataFrame([], view_schema((), overflow=False))
    frame = selected(session, rows, "SELECT '${env:PATH}' AS a FROM rows")
    assert "${env:PATH} AS a" in frame._jdf.queryExecution().analyzed().toString()


def test_the_address_of_the_cluster_is_in_no_error(jobs: SparkJobs) -> None:
    """Spark prints the options of sources with plans, which its errors hold and its log has."""
    session = stream_query.stream_session(jobs, QueryConfig(shuffle_partitions=2))
    rows = session.readStream.format("rate").option("store", "postgresql://u:hunter2@h/db")
    rows.option("objects", "s3://AKIA:hunter3@bucket").load().createOrReplaceTempView("orders")
    with pytest.raises(Exception, match="Streaming query is not allowed in subquery") as raised:
        session.sql("SELECT value FROM orders WHERE value IN (SELECT value FROM orders)")
    assert "StreamingRelationV2" in str(raised.value)
    assert "hunter" not in str(raised.value)
