"""The long form of a streaming query: real workers with leases, real Spark; killed and frozen under load, exact at the end."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.workers.test_end_to_end import Works, clickhouse, driver_of  # noqa: F401 (a fixture)
from tests.support.server_process import create_topic, produce, started
from tests.support.stream_pipelines import T0, WINDOWED, event, source
from tests.support.waiting import WAIT_S, until

from holdfast.client.loop_thread import run
from holdfast.pipeline.service.service import PipelineService
from holdfast.stores.urls import open_store
from holdfast.testing.clickhouse import ClickHouseServer
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SystemRandom

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(900)]

ROUND = 120  # two windows


def expected(sent: int) -> dict[tuple[int, str], int]:
    found: dict[tuple[int, str], int] = {}
    for number in range(sent):
        key = (T0 + number) // 60, f"k{number % 3}"
        found[key] = found.get(key, 0) + 1
    return found


def test_a_query_is_exact_whichever_process_is_killed_or_frozen(
    tmp_path: Path,
    clickhouse: ClickHouseServer,  # noqa: F811
) -> None:
    works = Works(tmp_path, clickhouse)
    with started(works.broker):
        create_topic(works.broker.kafka, "events", 3)
        context = open_store(works.url, clock=RealClock(), random=SystemRandom())
        store = run(context.__aenter__())
        service = PipelineService(
            store, clock=RealClock(), random=SystemRandom(), bootstrap=works.broker.kafka, embedded=""
        )
        made = run(service.catalog.create("windows"))
        sink: dict[str, Any] = {"table": "windows", "batchFlushIntervalMs": 100}
        query = {
            "sources": [source("events", "orders")],
            "sql": WINDOWED.format(orders="orders"),
            "shufflePartitions": 2,
        }
        run(service.catalog.put_parts(made.id, {"sink": sink, "query": query}))
        run(service.start(made.id))
        sent = 0

        def send() -> None:
            nonlocal sent
            for partition in range(3):  # in the order of time: nothing is late
                values = [event(number).decode() for number in range(sent, sent + ROUND)]
                produce(works.broker.kafka, "events", *values, partition=partition)
                sent += ROUND

        def counted() -> dict[tuple[int, str], int]:
            if works.asked("SELECT count() FROM system.tables WHERE name = 'windows'") == "0":
                return {}
            lines = works.asked(
                "SELECT intDiv(toUnixTimestamp(minute), 60), kind, n FROM default.windows ORDER BY 1, 2"
            ).splitlines()
            rows = [line.split("\t") for line in lines]
            found = {(int(minute), kind): int(n) for minute, kind, n in rows}
            assert len(found) == len(rows), "no window is there twice"
            return found

        def holder() -> str:
            return next((each.worker_id for each in run(service.assignments(made.id)) if each.slot == 0), "")

        def patient(condition: Callable[[], object], what: str) -> None:
            until(condition, what=what, within_s=5 * WAIT_S)

        def more(what: str) -> None:
            before = len(counted())
            send()
            patient(lambda: len(counted()) > before, what)

        with started(works.worker("ann"), works.worker("bob")):
            more("the first windows")
            assert run(service.status(made.id)).engine == "structured-streaming"
            first = holder()
            os.kill(driver_of(works.workers[first]), signal.SIGKILL)
            more("after its driver was killed")
            frozen = holder()
            works.workers[frozen].freeze()
            patient(lambda: holder() not in ("", frozen), "a frozen worker loses its slot")
            more("while a worker is frozen")
            works.workers[frozen].thaw()
            more("after the frozen worker is back")
            killed = holder()
            works.workers[killed].process.kill()
            works.workers[killed].process.wait()
            more("after a worker was killed")
            closing = [event(0, second=10_000_000).decode(), event(0, second=10_000_001).decode()]
            produce(works.broker.kafka, "events", *closing, partition=0)
            patient(lambda: len(counted()) >= len(expected(sent)), "all windows")
            assert counted() == expected(sent)
            stream = run(service.status(made.id)).stream
            assert stream is not None
            assert stream.batch > 3
        run(context.__aexit__(None, None, None))
