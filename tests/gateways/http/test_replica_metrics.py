"""Metrics of the replicas that an agent keeps."""

from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families
from tests.support.replication.in_process import hosted
from tests.support.replication.logs import append, entry, start
from tests.support.waiting import async_until

from holdfast.gateways.http.metrics.exposition import render_exposition
from holdfast.gateways.http.metrics.replicas import replica_families
from holdfast.log.replication.messages import Answer
from holdfast.log.replication.positions import NOWHERE


async def test_replicas_their_entries_messages_and_refusals_are_counted(tmp_path: Path) -> None:
    async with hosted(tmp_path / "wal", "w1") as host:
        answers: list[Answer | None] = []
        host.handle(append(1, NOWHERE, start(1, 0), entry(1, 0, data=bytes(100))), "w2", answers.append)
        host.handle(append(0, NOWHERE), "w2", answers.append)
        await async_until(lambda: len(answers) == 2)
        page = render_exposition(replica_families(host)).decode()
    counted = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }
    assert counted["holdfast_replicas",] == 1
    assert counted["holdfast_replicas_unreadable",] == 0
    assert counted["holdfast_replica_entries_bytes",] == counted["holdfast_replica_entries_budget_bytes",] == 100
    assert counted["holdfast_replica_messages_total",] == 2
    assert counted["holdfast_replica_refused_total", "invalid"] == 1
