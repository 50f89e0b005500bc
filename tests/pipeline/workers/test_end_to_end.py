"""The long form: real servers as workers, real Spark, a real ClickHouse; killed, frozen and scaled under load, and counted."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.server_process import BROKER_ONLY, ServeProcess, create_topic, produce, started
from tests.support.waiting import WAIT_S, until

from holdfast.client.loop_thread import run
from holdfast.pipeline.catalog.worker_status import WorkerRecord, list_workers
from holdfast.pipeline.service.service import PipelineService
from holdfast.pipeline.workers.process_session import members
from holdfast.stores.urls import open_store
from holdfast.testing.clickhouse import ClickHouseServer, clickhouse_server
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SystemRandom

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(900)]

PARTITIONS = 4
ROUND = 50
MAPPING = {"columns": [{"fieldPath": "n", "column": "n", "type": "Int64", "nullable": False}]}


class Load:
    """Records sent without a pause until told to stop."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._ending = threading.Event()
        self.sent = 0
        self._thread = threading.Thread(target=self._send, daemon=True)
        self._thread.start()

    def _send(self) -> None:
        while not self._ending.wait(0.2):
            for partition in range(PARTITIONS):
                values = [f'{{"n": {self.sent + number}}}' for number in range(ROUND)]
                produce(self._bootstrap, "orders", *values, partition=partition)
                self.sent += ROUND

    def end(self) -> int:
        self._ending.set()
        self._thread.join()
        return self.sent


class Works:
    """One broker, worker nodes beside it, and the service that asks about them."""

    def __init__(self, folder: Path, clickhouse: ClickHouseServer) -> None:
        self.folder, self.clickhouse = folder, clickhouse
        self.broker = ServeProcess(folder / "broker", *BROKER_ONLY)
        self.url = f"sqlite:///{self.broker.data / 'store.db'}"
        self.workers: dict[str, ServeProcess] = {}

    def worker(self, name: str) -> ServeProcess:
        options = {
            "--roles": "worker",
            "--store": self.url,
            "--objects": f"file://{self.broker.data / 'objects'}",
            "--worker-id": name,
            "--clickhouse": self.clickhouse.url,
            "--worker-interval": "2000",
            "--worker-lease-ttl": "10000",
            "--spark-master": "local[2]",
        }
        tuned = ("--set", "spark.quick_start=true", "--set", "worker.settle_ms=3000")
        flags = [word for pair in options.items() for word in pair]
        self.workers[name] = ServeProcess(self.folder / name, *flags, *tuned)
        return self.workers[name]

    def asked(self, query: str) -> str:
        return self.clickhouse.query(f"{query} FORMAT TSV").decode().strip()

    def rows(self) -> int:
        known = self.asked("SELECT count() FROM system.tables WHERE name = 'orders'") != "0"
        return int(self.asked("SELECT count() FROM default.orders")) if known else 0


@pytest.fixture(scope="module")
def clickhouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClickHouseServer]:
    with clickhouse_server(tmp_path_factory.mktemp("clickhouse")) as server:
        yield server


def driver_of(node: ServeProcess) -> int:
    """The driver's pid, once Spark's own processes are there: it is a session of its own."""
    pid = node.process.pid
    found: list[int] = []

    def grown() -> bool:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        found[:] = [int(child) for child in children if len(members(int(child))) > 1]
        return bool(found)

    until(grown, what="a driver with its JVM")
    return found[0]


def test_every_row_is_stored_once_whichever_process_is_killed_or_frozen(
    tmp_path: Path, clickhouse: ClickHouseServer
) -> None:
    works = Works(tmp_path, clickhouse)
    with started(works.broker):
        create_topic(works.broker.kafka, "orders", PARTITIONS)
        context = open_store(works.url, clock=RealClock(), random=SystemRandom())
        store = run(context.__aenter__())
        service = PipelineService(
            store, clock=RealClock(), random=SystemRandom(), bootstrap=works.broker.kafka, embedded=""
        )
        made = run(service.catalog.create("orders"))
        sink: dict[str, Any] = {"table": "orders", "batchFlushIntervalMs": 200}
        run(service.catalog.put_parts(made.id, {"source": {"topic": "orders"}, "sink": sink, "mapping": MAPPING}))
        run(service.start(made.id))
        load = Load(works.broker.kafka)
        faults = 0
        with started(works.worker("ann"), works.worker("bob")):

            def holders() -> dict[int, str]:
                return {each.slot: each.worker_id for each in run(service.assignments(made.id))}

            def worker(name: str) -> WorkerRecord | None:
                return next((each for each in run(list_workers(store)) if each.id == name), None)

            def ready(*names: str) -> Callable[[], bool]:
                return lambda: all((found := worker(name)) is not None and found.driver == "ready" for name in names)

            def more_rows(what: str) -> None:
                before = works.rows()
                until(lambda: works.rows() > before + PARTITIONS * ROUND, what=what)

            def patient(condition: Callable[[], object], what: str) -> None:
                until(condition, what=what, within_s=5 * WAIT_S)

            patient(lambda: works.rows() > 0, "the first rows")
            run(service.catalog.set_state(made.id, replicas=3))
            patient(lambda: set(holders().values()) == {"ann", "bob"} and len(holders()) == 3, "three slots on both")
            patient(ready("ann", "bob"), "both have a Spark")
            more_rows("under three slots")

            os.kill(driver_of(works.workers["ann"]), signal.SIGKILL)
            faults += 1
            more_rows("after a driver was killed")
            patient(ready("ann", "bob"), "another driver")

            os.kill(driver_of(works.workers["bob"]), signal.SIGSTOP)
            faults += 1
            patient(
                lambda: (found := worker("bob")) is not None and found.driver != "ready", "a frozen driver is noticed"
            )
            more_rows("after a driver was frozen")
            patient(ready("ann", "bob"), "another driver")

            works.workers["ann"].freeze()
            faults += 1
            patient(lambda: "ann" not in holders().values(), "a frozen worker loses its slots")
            more_rows("while a worker is frozen")
            works.workers["ann"].thaw()
            patient(ready("ann", "bob"), "the frozen worker is back")

            works.workers["bob"].process.kill()
            works.workers["bob"].process.wait()
            faults += 1
            patient(lambda: "bob" not in holders().values(), "a killed worker loses its slots")
            more_rows("after a worker was killed")

            run(service.catalog.set_state(made.id, replicas=1))
            patient(lambda: holders() == {0: "ann"}, "one slot")
            sent = load.end()
            patient(lambda: works.rows() >= sent, "all rows")
            assert works.asked("SELECT count(), uniqExact(_partition, _offset), sum(n) FROM default.orders") == (
                f"{sent}\t{sent}\t{sum(range(sent))}"
            )
            print(f"{faults} faults, {sent} rows in, {works.rows()} rows out")
        run(context.__aexit__(None, None, None))
