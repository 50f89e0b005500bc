"""Level `object` on a local S3 server: how long an acknowledgement takes, and what a GiB costs in requests."""

import re
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from tests.support.object_engines.s3 import s3_url
from tests.support.object_engines.seaweedfs import SeaweedServer

from bench.cluster.servers import holdfast_agents
from bench.figures import Figure

PER_SECOND: Final = 200.0
PARTITIONS: Final = 12
RECORD_BYTES: Final = 1024
GIB: Final = 1 << 30
P99_MAX_MS: Final = 400.0
PART: Final = "object, three agents, SeaweedFS"
_SAMPLE: Final = re.compile(r"^(holdfast_objects_\w+_total)(?:\{[^}]*\})? (\S+)$", re.MULTILINE)


def measure(directory: Path, *, seconds: float, rounds: int, say: Callable[[str], None]) -> Iterator[Figure]:
    """At default settings: an object every 250 ms of each agent."""
    with SeaweedServer(directory / "seaweedfs").running() as server:
        objects = s3_url(server.port, "bench")
        with holdfast_agents(directory / "holdfast", 3, level="object", objects=objects, http=True) as (cluster, nodes):
            topic = cluster.create(1)
            say("latency")
            runs = [cluster.latency(topic, RECORD_BYTES, seconds, PER_SECOND) for _ in range(rounds)]
            middle = sorted(runs, key=lambda done: float(done["p99_us"]))[len(runs) // 2]
            p50_ms, p99_ms = float(middle["p50_us"]) / 1000, float(middle["p99_us"]) / 1000
            yield Figure(PART, f"acknowledgement p50, {PER_SECOND:g}/s", "ms", p50_ms)
            yield Figure(
                PART, f"acknowledgement p99, {PER_SECOND:g}/s", "ms", p99_ms, None, None, f"≤ {P99_MAX_MS:g}",
                p99_ms <= P99_MAX_MS, f"median of {rounds} runs of {seconds:g} s",
            )  # fmt: skip
            say("throughput")
            topic = cluster.create(PARTITIONS)
            before = _counters([node.http for node in nodes])
            done = cluster.produce(topic, PARTITIONS, RECORD_BYTES, seconds)
            spent = {
                name: value - before.get(name, 0) for name, value in _counters([node.http for node in nodes]).items()
            }
            gib = float(done["total_bytes"]) / GIB
            rate = float(done["bytes"]) / float(done["seconds"]) / 1e6
            yield Figure(PART, f"produce, {PARTITIONS} partitions, 1 KiB", "MB/s", rate)
            calls, cost = spent["holdfast_objects_requests_total"], spent["holdfast_objects_cost_usd_total"]
            yield Figure(
                PART, "requests per GiB", "calls", calls / gib, note=f"${cost / gib:.5f} per GiB at S3's prices and this rate"
            )  # fmt: skip


def _counters(urls: list[str]) -> dict[str, float]:
    """The sums of all samples of each counter of object storage, of all agents."""
    found: dict[str, float] = {}
    for url in urls:
        with urllib.request.urlopen(f"{url}/metrics", timeout=30) as page:
            for name, value in _SAMPLE.findall(page.read().decode()):
                found[name] = found.get(name, 0.0) + float(value)
    return found
