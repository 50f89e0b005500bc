"""Everything a pipeline needs, as real processes that can be killed and frozen one by one.

A PostgreSQL with the state, a broker with HTTP, an embedded ClickHouse, and workers, each with its own Spark driver. The one
rule: a killed process is restarted as a supervisor would, on the same data and with the same address.
"""

import itertools
import json
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.pipeline.kills.plan import FAST, Plan
from tests.pipeline.kills.planted import VARIABLE, Planted
from tests.pipeline.kills.process_tree import ProcessTree, end_all, ours, process_tree_of, send
from tests.support.broker import Broker, HoldfastServer
from tests.support.failpoints import FailpointFolder
from tests.support.store_engines.postgres import PostgresServer
from tests.support.waiting import until

from holdfast.clickhouse.error_codes import ClickHouseErrorCode
from holdfast.client.http_client import HttpClient
from holdfast.testing.clickhouse import ClickHouseServer, clickhouse_server
from holdfast.vocabulary.errors import HoldfastError, UnavailableError

READY_TIMEOUT_S = 180
TOPIC = {"retention.ms": "-1", "segment.ms": "1000"}  # so that tasks read from objects and from agents
MAPPING = {
    "columns": [
        {"fieldPath": "seq", "column": "seq", "type": "Int64", "nullable": False},
        {"fieldPath": "amount", "column": "amount", "type": "Int64", "nullable": False},
    ]
}
QUERY = """
SELECT seq, amount, _partition AS record_partition, _offset AS record_offset
FROM orders WHERE seq IS NOT NULL AND amount IS NOT NULL
"""

_names = itertools.count(1)


class Api(HoldfastServer):
    """The broker: agent and HTTP."""

    http = ""

    def ready(self) -> bool:
        if not super().ready():
            return False
        self.http = f"http://{json.loads(self.addresses.read_text())['http']}"
        return True


class WorkerServer(HoldfastServer):
    """`holdfast serve --roles worker` with these variables in its environment."""

    def __init__(self, directory: Path, environment: dict[str, str], *options: str) -> None:
        self.worker_id = directory.name
        options = ("--roles", "worker", "--worker-id", self.worker_id, "--clickhouse", "off", *options)
        super().__init__(directory, *options)
        self._environment = environment

    def argv(self) -> list[str]:
        return ["env", *(f"{name}={value}" for name, value in self._environment.items()), *super().argv()]

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None


class KillCluster:
    """The processes, and what tests do with them."""

    def __init__(self, plan: Plan, folder: Path, parts: "Parts") -> None:
        self.plan, self.folder = plan, folder
        self.store, self.clickhouse, self.api, self._new_worker = parts
        self.workers = [self._new_worker() for _ in range(plan.workers)]
        self.failpoints = FailpointFolder(folder / "failpoints")
        self.planted = Planted(self.failpoints.folder)
        self.broker = Broker("holdfast", f"127.0.0.1:{self.api.port}", self.api)
        self.http = HttpClient(self.api.http, timeout_s=30)

    def make_pipeline(self, topic: str, table: str, *, engine: str = FAST, **parts: Any) -> str:
        """A started pipeline from a topic into a table, created over HTTP."""
        made = self.http.post("/api/pipelines", {"name": f"{table}-{next(_names)}"})
        path = f"/api/pipelines/{made['id']}"
        more = parts.pop("sink", {})
        sink = {"kind": "clickhouse", "dsn": self.clickhouse.url, "table": table, "batchSize": 2_000}
        reads = {"source": {"topic": topic}, "mapping": MAPPING} if engine == FAST else {"query": query_over(topic)}
        options = {**reads, "sink": {**sink, "batchFlushIntervalMs": 100, **more}}
        self.http.put(f"{path}/parts", {**options, **parts})
        self.http.post(f"{path}/start")
        return path

    def status(self, path: str) -> dict[str, Any]:
        """Of a pipeline; empty while HTTP does not respond."""
        try:
            found: dict[str, Any] = self.http.get(f"{path}/status")
        except HoldfastError:
            return {}
        return found

    def held_at(self, step: str) -> ProcessTree:
        """Hold the next process that reaches a step until `release`: it, and the processes of its worker."""
        while True:
            if not [*self.failpoints.folder.glob(f"{step}.hold*")]:
                self.hold(step)
            pid = self.failpoints.wait_taken(step, "hold", within_s=READY_TIMEOUT_S)
            if (tree := process_tree_of(pid, self.failpoints.folder)) is not None:
                return tree
            self.release(step)

    def hold(self, step: str) -> None:
        """The next process that reaches a step waits there."""
        self.release(step)
        self.failpoints.arm(step, "hold")

    def release(self, *steps: str) -> None:
        """Let them go on, if they can."""
        for step in steps:
            for file in self.failpoints.folder.glob(f"{step}.hold*"):
                file.unlink(missing_ok=True)

    def drivers_of(self, path: str) -> list[int]:
        """The living drivers of the workers that run a pipeline's slots, by its status."""
        workers = {slot["workerId"] for slot in self.status(path).get("slots", ())}
        pids = {each.pid for each in self.workers if each.runs and each.worker_id in workers}
        known = ours(self.failpoints.folder).values()
        return [each.pid for each in known if each.is_driver and each.parent in pids]

    def fence_refusals(self) -> int:
        """How many inserts ClickHouse has refused because of a fence since it was started."""
        code = ClickHouseErrorCode.FUNCTION_THROW_IF_VALUE_IS_NON_ZERO
        return int(self.clickhouse.query(f"SELECT sum(value) FROM system.errors WHERE code = {int(code)}"))

    def worker_of(self, tree: ProcessTree) -> WorkerServer:
        """The worker of a process tree."""
        return next(each for each in self.workers if each.runs and each.pid == tree.worker)

    def start_successor(self) -> None:
        """A worker beside the only one, if there is only one; it stays when that is ended."""
        if len(self.workers) == 1:
            self.workers.append(self._new_worker())
            self.workers[-1].start()

    def end_predecessor(self) -> None:
        """Kill the worker that a successor was started for."""
        if len(self.workers) > self.plan.workers:
            self.workers.pop(0).kill()

    def supervise(self) -> None:
        """Restart every worker that has exited."""
        for worker in self.workers:
            if not worker.runs:
                worker.start()

    def log(self) -> str:
        """The ends of the workers' logs."""
        parts = []
        for file in sorted(self.folder.glob("*/holdfast.log")):
            parts.append(f"--- {file.parent.name}\n{file.read_text(errors='replace')[-3_000:]}")
        return "\n".join(parts)


def query_over(topic: str) -> dict[str, Any]:
    """The query of a streaming pipeline: valid records as rows, with their place."""
    source = {"topic": topic, "name": "orders", "schema": "seq BIGINT, amount BIGINT"}
    return {"engine": "structured-streaming", "sources": [source], "sql": QUERY, "shufflePartitions": 1}


Parts = tuple[PostgresServer, ClickHouseServer, Api, Callable[[], WorkerServer]]


def worker_environment(plan: Plan, failpoints: Path) -> dict[str, str]:
    """Short leases and short retries, and the failpoint handler."""
    worker = {
        "INTERVAL_MS": plan.lease_ms // 8,
        "LEASE_TTL_MS": plan.lease_ms,
        "MARGIN_MS": plan.lease_ms // 8,
        "SETTLE_MS": 1_000,
        "ALIVE_MS": plan.lease_ms,
        "RETRY_BASE_MS": 200,
        "RETRY_MAX_MS": 2_000,
        "STATUS_MS": 500,
        "IDLE_MS": 600_000,
    }
    options = {f"HOLDFAST_WORKER_{name}": str(value) for name, value in worker.items()}
    if plan.planted:
        options[VARIABLE] = "yes"
    return {**options, "HOLDFAST_SPARK_QUICK_START": "true", **FailpointFolder(failpoints).environment}


@contextmanager
def running_cluster(plan: Plan, folder: Path) -> Iterator[KillCluster]:
    """The cluster, for the body; no process is left afterwards."""
    failpoints = folder / "failpoints"
    failpoints.mkdir(parents=True)
    with ExitStack() as stack:
        for name in ("store", "clickhouse", "api"):
            (folder / name).mkdir()
        store = stack.enter_context(PostgresServer(folder / "store").running())
        shared = ("--store", store.url(schema="cluster"), "--objects", f"file://{folder}/objects")
        clickhouse = stack.enter_context(clickhouse_server(folder / "clickhouse"))
        api = Api(folder / "api", "--roles", "api,agent", "--http", "127.0.0.1:0", "--clickhouse", "off", *shared)
        stack.enter_context(api.running())
        stack.callback(end_all, failpoints)

        numbers = itertools.count()

        def new_worker() -> WorkerServer:
            environment = worker_environment(plan, failpoints)
            directory = folder / f"worker{next(numbers)}"
            worker = WorkerServer(directory, environment, *shared, "--spark-master", "local[2]")
            worker.prepare()
            stack.callback(worker.kill)
            return worker

        cluster = KillCluster(plan, folder, (store, clickhouse, api, new_worker))
        for worker in cluster.workers:
            worker.start()
        try:
            yield cluster
        finally:
            send([each.pid for each in cluster.workers if each.runs], signal.SIGCONT)
            store.thaw()


def await_ready(cluster: KillCluster, path: str) -> None:
    """Until a pipeline runs."""

    def runs() -> bool:
        status = cluster.status(path)
        return bool(status) and status["state"] == "running"

    try:
        until(runs, within_s=READY_TIMEOUT_S, pause_s=0.25, what="the pipeline runs")
    except AssertionError as error:
        raise UnavailableError("pipeline", f"{error}: {cluster.status(path)}\n{cluster.log()}") from None
