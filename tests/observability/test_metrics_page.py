"""docs/reference/metrics.md and the scrape of a busy server are the same, both ways."""

import asyncio
import re
from pathlib import Path

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families
from tests.observability.conftest import READ, RECORDS, BusyServer
from tests.support.waiting import until

from holdfast.gateways.http.metrics.etcd_member import EtcdMemberFigures, etcd_member_metrics
from holdfast.gateways.http.metrics.exposition import render_exposition

pytestmark = pytest.mark.xdist_group("observability")

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"
ROW = re.compile(r"^\| `(\w+)` \| (counter|gauge|histogram) \| (.*?) \| (.+) \|$", re.MULTILINE)


def families(page: str) -> dict[str, Metric]:
    """By the names that queries use."""
    found = text_string_to_metric_families(page)
    return {each.name + ("_total" if each.type == "counter" else ""): each for each in found}


def value(page: str, name: str, **labels: str) -> float:
    (found,) = [
        sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    ]
    return found


def documented() -> dict[str, tuple[str, set[str]]]:
    rows = ROW.findall(PAGE.read_text())
    assert len({name for name, *_ in rows}) == len(rows), "a metric is described once"
    return {name: (kind, set(re.findall(r"`(\w+)`", labels))) for name, kind, labels, _ in rows}


async def etcd_page() -> str:
    """What a server with an etcd member of its own shows besides."""
    return render_exposition(await etcd_member_metrics(EtcdMemberFigures(quota_bytes=1))()).decode()


def test_every_metric_of_a_busy_server_is_documented_and_every_documented_one_is_there(busy: BusyServer) -> None:
    etcd = asyncio.run(etcd_page())
    shown, told = {**families(busy.page), **families(etcd)}, documented()
    assert shown.keys() - told.keys() == set(), "shown and not documented"
    assert told.keys() - shown.keys() == set(), "documented and not shown"
    for name, family in shown.items():
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        kind, allowed = told[name]
        assert (family.type, labels - allowed) == (kind, set()), name


def test_latencies_lag_backlog_epochs_and_calls_are_those_of_what_was_done(busy: BusyServer) -> None:
    def published() -> str:
        page = busy.page
        return page if value(page, "holdfast_topic_unpublished_bytes", topic="orders") == 0 else ""

    page = until(published)
    for api in ("Produce", "Fetch", "OffsetCommit", "Metadata"):
        assert value(page, "holdfast_kafka_request_seconds_count", api=api) > 0
    assert value(page, "holdfast_kafka_request_seconds_count", api="Produce") >= 3
    # A Fetch that waits for records is no slow Fetch: librdkafka waits half a second each time.
    fetches = value(page, "holdfast_kafka_request_seconds_bucket", api="Fetch", le="0.25")
    assert fetches == value(page, "holdfast_kafka_request_seconds_count", api="Fetch")
    for verb in ("REGISTER", "PUT", "GET"):
        assert value(page, "holdfast_text_request_seconds_count", verb=verb) >= 1
    produced = value(page, "holdfast_http_request_seconds_count", method="POST", route="/api/v1/produce")
    assert produced == 1
    assert value(page, "holdfast_grpc_call_seconds_count", rpc="ProduceService/Produce") == 1
    assert value(page, "holdfast_topic_appended_records_total", topic="orders") == RECORDS + 2
    assert value(page, "holdfast_partition_end_offset", topic="orders", partition="0") == RECORDS + 2
    assert value(page, "holdfast_partition_epoch", topic="orders", partition="0") == 1
    assert value(page, "holdfast_group_lag_records", group="billing", topic="orders") == RECORDS + 2 - READ
    assert value(page, "holdfast_group_lag_sum_records", group="billing") == RECORDS + 2 - READ
    assert value(page, "holdfast_cluster_partitions_leaderless") == 0
    assert value(page, "holdfast_store_request_seconds_count", operation="commit") > 0
    assert value(page, "holdfast_objects_request_seconds_count", operation="put") > 0
    assert value(page, "holdfast_wal_write_seconds_count") > 0
    assert value(page, "holdfast_metrics_missing") == 0
