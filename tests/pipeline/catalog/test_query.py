"""The part `query`: what is allowed, which engine runs it and why, and what makes a new generation."""

from typing import Any

import msgspec
import pytest
from tests.pipeline.catalog.test_store import MAPPING, SINK, SOURCE, catalog

from holdfast.contracts.store import Store
from holdfast.pipeline.catalog.parts import read_part
from holdfast.pipeline.catalog.revisions import compose
from holdfast.pipeline.catalog.secrets import redacted, restored
from holdfast.pipeline.model.definition import Revision, live_generation, registry_namespace
from holdfast.pipeline.model.errors import NotReadyError
from holdfast.pipeline.model.query import QueryConfig, chosen_engine
from holdfast.registry import RegistrySettings, RegistryStore
from holdfast.registry.queries import TopicIntent, topic_intents
from holdfast.registry.streams import read_stream, replace_stream
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.random import SystemRandom

ORDERS = {"topic": "shop.orders", "schema": "id BIGINT, at TIMESTAMP"}
COUNTS: dict[str, Any] = {"sources": [ORDERS], "sql": "SELECT count(*) AS n FROM shop_orders GROUP BY id"}
PYTHON = "def pipeline(spark, sources):\n    return sources['a']\n"


def query(**given: Any) -> QueryConfig:
    part = read_part("query", given)
    assert isinstance(part, QueryConfig)
    return part


def revision_of(**parts: Any) -> Revision:
    made = compose({name: read_part(name, given) for name, given in parts.items()}, 1)
    assert isinstance(made, Revision), made
    return made


def test_a_view_is_named_by_its_topic_in_letters_that_sql_takes() -> None:
    read = query(**COUNTS)
    assert read.sources[0].name == "shop_orders"
    assert (read.engine, read.output_mode, read.sources[0].start) == ("auto", "append", "earliest")


def test_how_many_dead_letters_are_kept_counts_for_queries_too() -> None:
    assert revision_of(sink=SINK, query=COUNTS, drift={"dlqRowsKept": 5_000}).drift.dlq_rows_kept == 5_000
    assert revision_of(sink=SINK, query=COUNTS).drift.dlq_rows_kept == 1_000_000


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"engine": "flink"}, "one of auto, fast, structured-streaming"),
        ({"engine": "structured-streaming"}, "query.sql"),
        ({"sources": [ORDERS]}, "query.sql"),
        ({"sql": "SELECT 1"}, "number of query.sources"),
        ({**COUNTS, "engine": "fast"}, "the fast path maps records one by one"),
        ({**COUNTS, "python": PYTHON}, "a query is one of the two"),
        ({**COUNTS, "outputMode": "upsert"}, "one of append, update, complete"),
        ({**COUNTS, "sources": [ORDERS, ORDERS]}, "query.sources[1].name"),
        ({**COUNTS, "sources": [{**ORDERS, "topic": "a/b"}]}, "query.sources[0].topic"),
        ({**COUNTS, "sources": [{**ORDERS, "name": "1st"}]}, "query.sources[0].name"),
        ({**COUNTS, "sources": [{**ORDERS, "start": "noon"}]}, "query.sources[0].start"),
        ({**COUNTS, "sources": [{**ORDERS, "watermark": {"column": "at", "delay": "soon"}}]}, "watermark.delay"),
        ({**COUNTS, "sources": [{**ORDERS, "format": "avro"}]}, "query.sources[0].schemaRegistry.url"),
        ({**COUNTS, "sources": [{**ORDERS, "format": "avro", "valueSchema": "{"}]}, "query.sources[0].valueSchema"),
        ({**COUNTS, "sources": [{**ORDERS, "valueSchema": "{}"}]}, "query.sources[0].valueSchema"),
        ({**COUNTS, "sources": [{**ORDERS, "message": "Order"}]}, "query.sources[0].message"),
        ({**COUNTS, "sources": [{**ORDERS, "format": "csv"}]}, "query.sources[0].csv.columns"),
        ({**COUNTS, "sources": [{"topic": "t", "format": "raw"}]}, "query.sources[0].schema"),
        ({**COUNTS, "sources": [{**ORDERS, "badRecords": "drop"}]}, "one of dlq, null"),
        ({**COUNTS, "sources": [ORDERS, {**ORDERS, "name": "b"}]}, "a record is a dead letter once"),
        ({**COUNTS, "rowsPerBatchMax": 0}, "query.rowsPerBatchMax"),
        ({"sources": [ORDERS], "python": "def pipeline(spark:\n"}, "valid Python"),
        ({"sources": [ORDERS], "python": "def pipelines(spark, sources): ..."}, "def pipeline(spark, sources)"),
    ],
)
def test_an_error_names_the_mistake_and_what_is_allowed(given: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidError) as found:
        read_part("query", given)
    assert words in str(found.value)


def test_the_password_of_a_schema_registry_is_never_shown_and_kept_for_the_same_registry_and_view() -> None:
    registry = {"url": "http://registry:8081", "user": "reader", "password": "s3cret"}
    saved = query(**{**COUNTS, "sources": [{**ORDERS, "format": "avro", "schemaRegistry": registry}]})
    shown = redacted(saved)
    assert shown.sources[0].schema_registry.password == "***"
    assert "s3cret" not in repr(saved)
    assert restored(shown, saved) == saved
    elsewhere = msgspec.structs.replace(shown.sources[0].schema_registry, url="http://other:8081")
    moved = msgspec.structs.replace(shown.sources[0], schema_registry=elsewhere)
    with pytest.raises(InvalidError, match=r"query\.sources\[0\]\.schemaRegistry\.password"):
        restored(msgspec.structs.replace(shown, sources=(moved,)), saved)


def test_the_engine_is_chosen_and_the_reason_said() -> None:
    plain = revision_of(source=SOURCE, sink=SINK, mapping=MAPPING)
    assert chosen_engine(plain) == ("fast", "auto: records are mapped one by one")
    of_sql = revision_of(sink=SINK, query=COUNTS)
    assert chosen_engine(of_sql) == ("structured-streaming", "auto: the query may aggregate, join or keep state")
    two = {"sources": [ORDERS, {"topic": "b"}], "sql": "SELECT 1"}
    assert chosen_engine(revision_of(sink=SINK, query=two)).reason == "auto: the query reads 2 sources"
    file = {"sources": [{"topic": "a"}], "python": PYTHON}
    assert chosen_engine(revision_of(sink=SINK, query=file)).reason == "auto: the query is a Python file"
    asked = revision_of(sink=SINK, query={**COUNTS, "engine": "structured-streaming"})
    assert chosen_engine(asked).reason == "engine is structured-streaming"


def test_a_revision_of_an_earlier_release_runs_on_the_fast_path() -> None:
    stored = msgspec.json.decode(msgspec.json.encode(revision_of(source=SOURCE, sink=SINK, mapping=MAPPING)))
    del stored["query"]
    assert chosen_engine(msgspec.convert(stored, Revision)).engine == "fast"


@pytest.mark.parametrize(
    ("parts", "problem"),
    [
        ({"sink": {"kind": "parquet", "url": "/tmp/x"}}, "sink.kind"),
        ({"sink": {**SINK, "table": ""}}, "sink.table: missing"),
        ({"filters": {"enabled": True, "expression": "a > 1"}}, "filters: cannot be combined"),
        ({"sql": {"sql": "SELECT id FROM rows"}}, "sql: cannot be combined"),
        ({"drift": {"unknownFields": "dlq"}}, "drift: cannot be combined"),
        ({"query": {**COUNTS, "outputMode": "update"}}, "sink.orderBy: missing"),
        (
            {"sink": {**SINK, "engine": "ReplacingMergeTree"}},
            "sink.engine: ReplacingMergeTree is for output mode update",
        ),
        (
            {"sink": {**SINK, "engine": "ReplacingMergeTree", "versionColumn": "n", "orderBy": ["id"]}},
            "sink.versionColumn",
        ),
    ],
)
def test_what_cannot_be_exact_is_no_revision(parts: dict[str, Any], problem: str) -> None:
    given = {"sink": SINK, "query": COUNTS, **parts}
    found = compose({name: read_part(name, value) for name, value in given.items()}, 1)
    assert isinstance(found, tuple)
    assert any(problem in each for each in found), found


async def test_another_query_begins_a_new_generation_and_only_while_stopped(store: Store) -> None:
    pipelines = catalog(store)
    made = await pipelines.create("counts")
    saved, _ = await pipelines.put_parts(made.id, {"sink": SINK, "query": COUNTS})
    assert (saved.problems, saved.revision) == ((), 1)
    same, _ = await pipelines.put_part(made.id, "sink", {**SINK, "table": "other"})
    assert (same.revision, len(same.generations)) == (2, 1), "state does not depend on the table"
    await pipelines.set_state(made.id, desired="started")
    changed = {**COUNTS, "sql": COUNTS["sql"] + ", at"}
    with pytest.raises(NotReadyError, match="changing the query of"):
        await pipelines.put_part(made.id, "query", changed)
    await pipelines.set_state(made.id, desired="stopped")
    after, _ = await pipelines.put_part(made.id, "query", changed)
    live = live_generation(after)
    assert live is not None
    assert live.number == 2


async def test_a_retired_query_retains_nothing_and_the_revision_of_a_begun_batch_is_kept(store: Store) -> None:
    pipelines, clock, random = catalog(store, recipes_kept=1), RealClock(), SystemRandom()
    made = await pipelines.create("counts")
    await pipelines.put_parts(made.id, {"sink": SINK, "query": COUNTS})
    namespace = registry_namespace(made.id, 1)
    settings = RegistrySettings(namespace=namespace, partitions=1)
    await RegistryStore(store, clock=clock, random=random, settings=settings).initialize()
    record = b'{"epoch":1,"topics":{"orders":"T1"},"intent":{"recipe":1},"retain":[{"topic":"orders","partition":3,"start":7}]}'
    assert await replace_stream(store, namespace, None, record, clock=clock, random=random) is not None
    for number in range(3):
        await pipelines.put_part(made.id, "sink", {**SINK, "table": f"t{number}"})
    assert (await pipelines.revision(made.id, 1)).sink == read_part("sink", SINK)
    with pytest.raises(InvalidError):
        await pipelines.revision(made.id, 2)
    entry = await read_stream(store, namespace)
    assert entry is not None
    assert topic_intents(entry) == (TopicIntent("orders", 3, 7, "T1"),)
    after, _ = await pipelines.put_part(made.id, "query", {**COUNTS, "outputMode": "complete"})
    assert len(after.generations) == 2
    await pipelines.sweep()
    cleared = await read_stream(store, namespace)
    assert cleared is not None
    assert topic_intents(cleared) == ()
