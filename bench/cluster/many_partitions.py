"""Many partitions on two agents: what Metadata costs, how long a joining one takes to lead its half, and a dead one's to be led.

Both agents are in this process, so that processor time is theirs together. A death is one that the store knows of: the TTL, or an
early end, comes before what is measured here.
"""

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

from bench.figures import Figure
from bench.scale import TOPIC_PARTITIONS, Place, opened, until_led
from holdfast.app.process import freeze_garbage_collector, shorten_switch_interval
from holdfast.gateways.kafka.metadata_encoding import MetadataTopic, encode_metadata, encode_topics


def measure(engine: str, partitions: int, *, say: Callable[[str], None]) -> Iterator[Figure]:
    """In this process, set up as a server's."""
    freeze_garbage_collector()
    shorten_switch_interval()

    async def run() -> list[Figure]:
        with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as made:
            return [each async for each in _measure(engine, partitions, Path(made), say)]

    yield from asyncio.run(run())


async def _measure(engine: str, partitions: int, directory: Path, say: Callable[[str], None]) -> AsyncIterator[Figure]:
    part = f"{engine}, {partitions:,} partitions, two agents"
    topics = [f"events-{number}" for number in range(partitions // TOPIC_PARTITIONS)]
    async with opened(engine, directory) as store:
        place = Place(store, directory)

        def spent(moved: int) -> str:
            calls_each = (place.calls - calls) / moved
            return f"{time.process_time() - cpu_s:.1f} s of a core, {calls_each:.2f} store calls each"

        async with place.agent("ann") as ann:
            say("creating")
            for topic in topics:
                await ann.service.create_topic(topic, TOPIC_PARTITIONS, {})
            await until_led(ann, partitions)
            say("metadata")
            cpu_s, rounds = time.process_time(), 5
            for _ in range(rounds):
                listed = [MetadataTopic(topic) for topic in ann.cluster.topics]
                answer = encode_metadata(
                    12,
                    encode_topics(12, ann.cluster, listed),
                    brokers=[],
                    cluster_id="bench",
                    controller=1,
                    topics=listed,
                    cluster_operations=0,
                )
            took_ms = (time.process_time() - cpu_s) * 1_000 / rounds
            size = sum(map(len, answer)) if isinstance(answer, (list, tuple)) else len(answer)
            yield Figure(part, "Metadata of all", "ms of a core", took_ms, note=f"{size:,} bytes")
            say("a second agent joins")
            calls, cpu_s, began = place.calls, time.process_time(), time.perf_counter()
            async with place.agent("bob") as bob:
                await until_led(bob, partitions // 2)
                yield Figure(
                    part, "join until half is led", "s", time.perf_counter() - began,
                    note=spent(partitions // 2),
                )  # fmt: skip
                say("the first one dies")
                calls, cpu_s, began = place.calls, time.process_time(), time.perf_counter()
                await place.crash(ann)
                await until_led(bob, partitions)
                took_s = time.perf_counter() - began
                yield Figure(
                    part, "takeover until all is led", "s", took_s, None, None, "< 10", took_s < 10,
                    spent(partitions // 2),
                )  # fmt: skip
                await place.crash(bob)
