"""Metrics of the text gateway and of shared cursors."""

from collections.abc import Iterable
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families
from tests.support.text import LENGTH, text_cluster
from tests.support.waiting import async_until

from holdfast.gateways.http.metrics.exposition import MetricFamily, render_exposition
from holdfast.gateways.http.metrics.text import cursor_metrics, text_metrics
from holdfast.gateways.text.frames import encode_frames


def counted(families: Iterable[MetricFamily]) -> dict[str, float]:
    page = render_exposition(families).decode()
    return {sample.name: sample.value for family in text_string_to_metric_families(page) for sample in family.samples}


async def test_requests_bytes_connections_forwards_and_redeliveries_are_counted(tmp_path: Path) -> None:
    async with text_cluster(tmp_path, "ann", "bob") as cluster:
        ann, bob = cluster.text["ann"], cluster.text["bob"]
        async with ann.client() as client:
            assert await client.ask("PUT logs one", "NONSENSE", "GET logs") == [
                b"OK",
                b"ERR unknown command",
                b"OK one",
            ]
        servers, cursors = (ann.server, bob.server), [each.node.agent.cursors for each in (ann, bob)]
        async with bob.client() as client:
            assert await client.ask("PUT logs two", "GET logs") == [b"OK", b"OK two"]
            client.writer.write(LENGTH.pack(100) + b"x")
            await async_until(lambda: bob.server.unfinished_bytes == 5)
            pages = [counted(await text_metrics(server)()) for server in servers]
        summed = {name: sum(page[name] for page in pages) for name in pages[0]}
        assert pages[1]["holdfast_text_received_bytes_total"] >= len(encode_frames([b"PUT logs two", b"GET logs"])) + 5
        assert pages[1]["holdfast_text_sent_bytes_total"] >= len(encode_frames([b"OK", b"OK two"]))
        assert summed["holdfast_text_requests_total"] >= 4
        assert summed["holdfast_text_errors_total"] >= 1
        assert summed["holdfast_text_forwarded_total"] >= 2  # of each pair of requests one was not for this node
        assert pages[1]["holdfast_text_unfinished_bytes"] == 5
        assert pages[1]["holdfast_text_connections"] >= 1
        assert pages[0]["holdfast_text_connections_accepted_total"] >= 1
        owned = [counted(await cursor_metrics(each)()) for each in cursors]
        assert sum(page["holdfast_cursors_shards_owned"] for page in owned) == 3
        await async_until(lambda: sum(each.counters.delivered for each in cursors) == 2)
        assert sum(page["holdfast_cursors_redelivered_total"] for page in owned) == 0
