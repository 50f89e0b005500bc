"""Streaming pipelines in tests: events with times, queries over them, and a slot that runs them in this process."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any

from tests.support.driver_cluster import SETTINGS, DriverCluster, RealClockPause
from tests.support.failpoints import FailpointError, fail_at
from tests.support.sink_destinations import ClickHouseDatabase

from holdfast.client.loop_thread import run
from holdfast.pipeline.driver.spark_jobs import SparkJobs
from holdfast.pipeline.driver.streaming.stream_processor import StreamProcessor
from holdfast.pipeline.driver.streaming.stream_record import StreamRecord, decode_record, positions
from holdfast.pipeline.model.definition import Pipeline, registry_namespace
from holdfast.pipeline.model.driver_protocol import RunSlot
from holdfast.registry.streams import read_stream
from holdfast.vocabulary import failpoints

SCHEMA = "id BIGINT, at TIMESTAMP, kind STRING, amount DECIMAL(12, 2)"
T0 = 1_767_225_600  # 2026-01-01
WINDOWED = """
SELECT window.start AS minute, kind, count(*) AS n, sum(amount) AS total
FROM {orders} GROUP BY window(at, '1 minute'), kind
"""


def event(number: int, *, second: int | None = None) -> bytes:
    at = T0 + (number if second is None else second)
    return json.dumps({"id": number, "at": at, "kind": f"k{number % 3}", "amount": f"{number}.25"}).encode()


def events(numbers: Iterable[int]) -> list[bytes]:
    return [event(number) for number in numbers]


def source(topic: str, name: str, *, delay: str = "10 seconds", column: str = "at") -> dict[str, Any]:
    return {"topic": topic, "name": name, "schema": SCHEMA, "watermark": {"column": column, "delay": delay}}


def stream_sink(clickhouse: ClickHouseDatabase, **more: Any) -> dict[str, Any]:
    config = {"kind": "clickhouse", "dsn": clickhouse.server.url, "database": clickhouse.database, "table": "result"}
    return {**config, "batchFlushIntervalMs": 10, **more}


def stream_pipeline(world: DriverCluster, sink: dict[str, Any], query: dict[str, Any]) -> Pipeline:
    async def make() -> Pipeline:
        made = await world.catalog.create(world.broker.unique("stream"))
        saved, _ = await world.catalog.put_parts(made.id, {"sink": sink, "query": {"shufflePartitions": 2, **query}})
        assert not saved.problems, saved.problems
        return await world.catalog.set_state(made.id, desired="started")

    return run(make())


def stream_record(world: DriverCluster, pipeline: Pipeline) -> StreamRecord:
    entry = run(read_stream(world.store, registry_namespace(pipeline.id, pipeline.generations[-1].number)))
    assert entry is not None
    return decode_record(entry.key, entry.value)


def is_read(record: StreamRecord, ends: Mapping[str, int]) -> bool:
    """Whether so many records of each topic are in done batches, and none is in another."""
    if record.done is None or record.intent is not None:
        return False
    at = {
        name: sum(topic.offsets.values())
        for each in positions(record.done.offsets)
        for name, topic in each.topics.items()
    }
    return all(at.get(topic, 0) >= end for topic, end in ends.items())


class StreamSlot:
    """A slot of a streaming pipeline under a claim of its own, as a worker gives it."""

    def __init__(
        self, world: DriverCluster, jobs: SparkJobs, pipeline: Pipeline, consumer: str, **resources: Any
    ) -> None:
        self._world, self.pipeline = world, pipeline
        generation = pipeline.generations[-1].number
        self.registry = world.registry(pipeline, 1, generation)
        self.claims = world.claim(self.registry, consumer, [0])
        said = RunSlot(slot=consumer, pipeline_id=pipeline.id, generation=generation, name=pipeline.name)
        self.processor = StreamProcessor(said, world.resources(jobs, settings=SETTINGS, **resources), lambda: True)
        world.works.append(self.processor)

    @property
    def record(self) -> StreamRecord:
        return stream_record(self._world, self.pipeline)

    @property
    def is_active(self) -> bool:
        """Whether its query runs, with or without a batch."""
        running = self.processor.running
        if running is None or running.batches is None:
            return False
        return bool(running.query.isActive) or not running.batches.idle

    def run_until(self, reached: Callable[[], bool], *, within_s: float = 110) -> None:
        """Work until a condition holds. Long: the first batch of a JVM on a busy machine takes half a minute."""
        for _ in self._turns(within_s):
            self.processor.drop_unclaimed(self.claims)
            self.processor.turn(self.claims)
            if reached():
                return
            RealClockPause.wait(0.02)
        raise AssertionError(f"not reached; blocked: {self.processor.progress().blocked}; {self.record}")

    def _turns(self, within_s: float) -> Iterator[None]:
        until_ms = self._world.clock.boot_ms() + 1_000 * within_s
        while self._world.clock.boot_ms() < until_ms:
            yield

    def fail_at(self, step: str, *, within_s: float = 110) -> None:
        """Work until this step fails, once or as often as it is tried."""
        with failpoints.installed(fail_at(step)):
            for _ in self._turns(within_s):
                try:
                    self.processor.turn(self.claims)
                except FailpointError:
                    return
                if step in self.processor.progress().blocked:
                    return
                RealClockPause.wait(0.02)
        raise AssertionError(f"{step} was not reached; {self.record}")

    def has_read(self, **ends: int) -> Callable[[], bool]:
        """Whether all records of topics up to these ends, of all partitions together, are in done batches."""
        return lambda: is_read(self.record, ends)


def windows(clickhouse: ClickHouseDatabase, *, final: bool = False) -> dict[tuple[str, str], tuple[int, Decimal]]:
    """Rows of the windowed query, by window and kind; a key that is there twice is an error."""
    modifier = "FINAL" if final else ""
    rows = clickhouse.ask(
        f"SELECT toString(minute) AS minute, kind, n, toString(total) AS total FROM {clickhouse.database}.result {modifier}"
    )
    found: dict[tuple[str, str], tuple[int, Decimal]] = {}
    for row in rows:
        key = row["minute"], row["kind"]
        assert key not in found, f"{key} is there twice"
        found[key] = int(row["n"]), Decimal(row["total"])
    return found
