"""Metrics of heaps: they count what was done here, and keep it when a partition leaves."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio
from prometheus_client.parser import text_string_to_metric_families
from tests.support.cluster import Node
from tests.support.heaps import HeapWorld, enqueue, pop
from tests.support.waiting import async_until

from holdfast.gateways.http.metrics.exposition import render_exposition
from holdfast.gateways.http.metrics.heaps import heap_metrics
from holdfast.gateways.http.metrics.settings import MetricsSettings
from holdfast.log.errors import NotLeaderError


@pytest_asyncio.fixture
async def world(tmp_path: Path) -> AsyncIterator[HeapWorld]:
    made = HeapWorld(tmp_path)
    yield made
    await made.end()


async def shown(node: Node) -> dict[str, float]:
    page = render_exposition(await heap_metrics(node.agent, MetricsSettings())()).decode()
    samples = [sample for family in text_string_to_metric_families(page) for sample in family.samples]
    return {sample.name + "".join(f" {value}" for value in sample.labels.values()): sample.value for sample in samples}


async def test_metrics_count_what_was_done_and_never_go_back(world: HeapWorld) -> None:
    node = await world.node()
    heaps = await world.heap(node, max_retries=1)
    await enqueue(heaps, 1, 2, 3, 4)
    popped = await pop(heaps, 3)
    tokens = [each.lease_token for each in popped]
    await heaps.ack("jobs", tokens[:1])
    await heaps.nack("jobs", tokens[1:2], backoff_ms=0)
    [again] = await pop(heaps)
    assert again.message_id == popped[1].message_id
    await heaps.nack("jobs", [again.lease_token])
    await async_until(lambda: world.view(node, "jobs.dlq").stats().ready == 1)
    page = await shown(node)
    assert page["enqueue_latency_ms_count"] == 4
    assert page["pop_latency_ms_count"] == 2
    assert page["raft_apply_latency_ms_count"] >= 3
    assert (page["inflight jobs 0"], page["backlog jobs 0"], page["backlog jobs.dlq 0"]) == (1, 1, 1)
    assert (page["retries_total"], page["dlq_total"], page["lease_timeouts_total"]) == (1, 1, 0)
    assert page["wal_bytes_written_total"] > 0
    assert page["holdfast_heap_operations_total jobs acked"] == 1
    view = world.view(node)
    view.end(NotLeaderError("jobs", 0, reason="a test"))  # it is read from its log again
    await async_until(lambda: _reopened(node, view))
    later = await shown(node)
    assert later["holdfast_heap_operations_total jobs enqueued"] == 4
    assert later["dlq_total"] == 1
    assert later["raft_apply_latency_ms_count"] >= page["raft_apply_latency_ms_count"]
    await enqueue(heaps, 5)
    assert (await shown(node))["holdfast_heap_operations_total jobs enqueued"] == 5


def _reopened(node: Node, before: object) -> bool:
    here = [view for which, view in node.agent.local_heaps.open.items() if which.topic == "jobs"]
    return bool(here) and here[0] is not before


async def test_the_size_of_snapshots_is_shown(world: HeapWorld) -> None:
    node = await world.node()
    heaps = await world.heap(node)
    await enqueue(heaps, 1, 2, 3)
    assert (await shown(node))["snapshot_bytes"] == 0
    (taken,) = await heaps.snapshot("jobs")
    assert (await shown(node))["snapshot_bytes"] == taken.size_bytes > 0
