"""Metrics of partitions: totals of all, series of a bounded number; replicas, in-sync sets and how far one is behind."""

from pathlib import Path

from tests.support.cluster import LocalCluster
from tests.support.replicas import admins_of
from tests.support.waiting import async_until

from holdfast.agent.agent import Agent
from holdfast.gateways.http.metrics.partitions import partition_metrics
from holdfast.gateways.http.metrics.settings import MetricsSettings
from holdfast.vocabulary.clock import RealClock

Figures = dict[tuple[str, ...], float]


async def figures(agent: Agent, settings: MetricsSettings) -> Figures:
    families = await partition_metrics(agent, settings, RealClock())()
    return {(each.name, *labels.values()): value for each in families for labels, value in each.samples}


async def test_what_has_no_series_of_its_own_is_in_the_totals_and_counted(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path)
    try:
        node = await cluster.node("ann")
        for topic in ("a", "b"):
            await node.service.create_topic(topic, 2)
        await async_until(lambda: len(node.agent.leading) == 4)
        for topic in ("a", "b"):
            await cluster.produce(topic, 1, "one", "two")
        shown = await figures(node.agent, MetricsSettings(partitions_max=3, topics_max=1))
        assert {key[1:] for key in shown if key[0] == "holdfast_partition_epoch"} == {
            ("a", "0"),
            ("a", "1"),
            ("b", "0"),
        }
        assert shown["holdfast_metrics_left_out", "partitions"] == 1
        assert shown["holdfast_metrics_left_out", "topics"] == 1
        assert shown["holdfast_log_unpublished_records",] == 4
        assert shown["holdfast_topic_appended_records_total", "a"] == 2
        assert ("holdfast_topic_appended_records_total", "b") not in shown
        assert shown["holdfast_log_unpublished_bytes",] > shown["holdfast_topic_unpublished_bytes", "a"] > 0
        assert shown["holdfast_partition_end_offset", "a", "1"] == 2
        totals = await figures(node.agent, MetricsSettings(partitions_max=0))
        assert not [key for key in totals if key[0].startswith("holdfast_partition_")]
        assert totals["holdfast_log_unpublished_records",] == 4
    finally:
        await cluster.end()


async def test_replicas_that_keep_up_and_those_that_do_not_are_counted(tmp_path: Path) -> None:
    async with admins_of(tmp_path, "ann", "bob", "cyd") as admins:
        cluster = admins[0].gateway.cluster
        await admins[0].gateway.node.service.create_topic(
            "orders", 1, {"durability": "quorum", "replication_factor": 3}
        )
        await async_until(lambda: cluster.leader(0) is not None)
        await cluster.produce("orders", 0, "one", "two")

        async def of_leader() -> Figures:
            leader = cluster.leader(0)
            return await figures(leader.agent, MetricsSettings()) if leader is not None else {}

        async def all_in_sync() -> bool:
            shown = await of_leader()
            return shown.get(("holdfast_partition_in_sync_replicas", "orders", "0")) == 3

        await async_until(all_in_sync)
        shown = await of_leader()
        assert shown["holdfast_partition_replicas", "orders", "0"] == 3
        assert shown["holdfast_replication_partitions",] == 1
        assert shown["holdfast_replication_under_replicated",] == shown["holdfast_replication_below_quorum",] == 0
        assert (
            shown["holdfast_replication_lag_records",]
            == shown["holdfast_partition_replication_lag_records", "orders", "0"]
        )
