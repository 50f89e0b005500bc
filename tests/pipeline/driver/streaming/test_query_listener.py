"""Figures of queries, as Spark's listener reports them: totals over batches and queries, and why one ended."""

from typing import Any

import pytest
from tests.support.driver_cluster import DriverCluster
from tests.support.sink_destinations import ClickHouseDatabase
from tests.support.stream_pipelines import StreamSlot, events, source, stream_pipeline, stream_sink

from holdfast.pipeline.driver.spark_jobs import SparkJobs
from holdfast.pipeline.driver.streaming.query_listener import QueryFigures


def report(rows: int, *late: int) -> dict[str, Any]:
    return {"numInputRows": rows, "stateOperators": [{"numRowsDroppedByWatermark": each} for each in late]}


def test_totals_are_over_all_batches_and_queries_and_reports_of_the_last_query_alone() -> None:
    figures = QueryFigures()
    figures.started()
    figures.add(report(10, 1, 2))
    figures.add(report(5))
    assert (figures.input_rows, figures.late_rows) == (15, 3)
    figures.terminated("FencedError: newer\n\tat org.apache…")
    figures.started()
    assert figures.report == {}
    figures.add(report(1))
    assert (figures.input_rows, figures.failures, figures.failure) == (16, 1, "FencedError: newer")


def test_a_query_that_is_stopped_has_not_failed() -> None:
    figures = QueryFigures()
    figures.terminated(None)
    assert (figures.failures, figures.failure) == (0, "")


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_batches_and_failures_of_a_query_reach_its_progress_and_no_listener_is_left(
    world: DriverCluster, jobs: SparkJobs, clickhouse: ClickHouseDatabase
) -> None:
    topic = world.topic(1)
    query = {"sources": [{**source(topic, "orders"), "watermark": {}}], "sql": "SELECT id FROM orders"}
    pipeline = stream_pipeline(world, stream_sink(clickhouse, orderBy=["id"]), query)
    slot = StreamSlot(world, jobs, pipeline, "ann")
    world.produce(topic, events(range(30)))
    slot.run_until(slot.has_read(**{topic: 30}))
    running = slot.processor.running
    assert running is not None
    streams = running.query._jsq.sparkSession().streams()

    def progress() -> Any:
        return slot.processor.progress().stream

    slot.run_until(lambda: progress() is not None and progress().input_rows_total == 30)
    assert len(streams.listListeners()) == 1
    world.produce(topic, events(range(30, 40)))
    slot.fail_at("stream.planned")
    slot.run_until(slot.has_read(**{topic: 40}))
    slot.run_until(lambda: progress().failures >= 1 and progress().input_rows_total >= 40)
    assert "stream.planned" in progress().failure
    assert len(streams.listListeners()) == 0, "of the session that is gone"
    slot.processor.stop()
