"""What a scrape costs an agent that leads many partitions: in process, so that stalls of the event loop can be seen."""

import asyncio
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from bench.figures import Figure
from bench.scale import TOPIC_PARTITIONS, Place, opened, stalls, until_led
from holdfast.gateways.http.metrics.agent import agent_metrics, cluster_metrics
from holdfast.gateways.http.metrics.exposition import MetricFamily, render_exposition
from holdfast.gateways.http.metrics.partitions import partition_metrics
from holdfast.gateways.http.metrics.settings import MetricsSettings
from holdfast.vocabulary.clock import RealClock

SCRAPES = 9
STALL_MAX_MS = 20


def scrape_figures(partitions: int) -> list[Figure]:
    """Processor time, size and stalls of a scrape by an agent that leads so many."""
    with tempfile.TemporaryDirectory() as directory:
        return asyncio.run(_measure(Path(directory), partitions))


async def _measure(directory: Path, partitions: int) -> list[Figure]:
    each = min(partitions, TOPIC_PARTITIONS)
    topics = [f"events-{number}" for number in range(partitions // each)]
    async with opened("sqlite", directory) as store, Place(store, directory).agent("ann") as ann:
        for topic in topics:
            await ann.service.create_topic(topic, each, {})
        await until_led(ann, len(topics) * each)
        await asyncio.sleep(partitions / 5_000)  # what opening them leaves to do is done
        sources = (
            agent_metrics(ann),
            cluster_metrics(ann.cluster),
            partition_metrics(ann, MetricsSettings(), RealClock()),
        )
        took_ms, page = [], b""
        async with stalls() as seen:
            for _ in range(SCRAPES):
                cpu_s = time.thread_time()
                families: list[MetricFamily] = []
                for source in sources:
                    families += await source()
                page = render_exposition(families)
                took_ms.append((time.thread_time() - cpu_s) * 1_000)
                await asyncio.sleep(0.05)
        return list(_figures(f"scrape, {len(ann.leading):,} partitions", took_ms, page, max(seen.turns_ms)))


def _figures(part: str, took_ms: list[float], page: bytes, stall_ms: float) -> Iterator[Figure]:
    yield Figure(part, "processor", "ms", median(took_ms))
    yield Figure(part, "longest stall", "ms", stall_ms, aim=f"< {STALL_MAX_MS}", met=stall_ms < STALL_MAX_MS)
    yield Figure(part, "page", "KiB", len(page) / 1024)
    yield Figure(part, "series", "", float(sum(not line.startswith(b"#") for line in page.splitlines())))
