"""Everything a pipeline needs, as real processes that can be killed and frozen one by one.

A PostgreSQL with the state, a broker with HTTP, an embedded ClickHouse, and workers, each with its own Spark driver. The one
rule: a killed process is restarted as a supervisor would, on the same data and with the same address.
"""

import itertools
import json
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.pipeline.kills.plan import Plan
from tests.pipeline.kills.process_tree import ProcessTree, end_all, process_tree_of, send
from tests.support.broker import Broker, HoldfastServer
from tests.support.failpoints import FailpointFolder
from tests.support.store_engines.postgres import PostgresServer
from tests.support.waiting import until

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
        self.store, self.clickhouse, self.api, self.workers = parts
        self.failpoints = FailpointFolder(folder / "failpoints")
        self.broker = Broker("holdfast", f"127.0.0.1:{self.api.port}", self.api)
        self.http = HttpClient(self.api.http, timeout_s=30)

    def make_pipeline(self, topic: str, table: str, *, replicas: int = 1, **parts: Any) -> str:
        """A started pipeline from a topic into a table, created over HTTP."""
        made = self.http.post("/api/pipelines", {"name": f"{table}-{next(_names)}"})
        path = f"/api/pipelines/{made['id']}"
        more = parts.pop("sink", {})
        sink = {"kind": "clickhouse", "dsn": self.clickhouse.url, "table": table, "batchSize": 2_000}
        options = {
            "source": {"topic": topic},
            "sink": {**sink, "batchFlushIntervalMs": 100, **more},
            "mapping": MAPPING,
        }
        self.http.put(f"{path}/parts", {**options, **parts})
        if replicas > 1:
            self.http.post(f"{path}/scale", {"replicas": replicas})
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
            if not [*self.failpoints.folder.glob(f"pipeline.{step}.hold*")]:
                self.hold(step)
            pid = self.failpoints.wait_taken(f"pipeline.{step}", "hold", within_s=READY_TIMEOUT_S)
            if (tree := process_tree_of(pid, self.failpoints.folder)) is not None:
                return tree
            self.release(step)

    def hold(self, step: str) -> None:
        """The next process that reaches a step waits there."""
        self.release(step)
        self.failpoints.arm(f"pipeline.{step}", "hold")

    def release(self, step: str) -> None:
        """Let it go on, if it can."""
        (self.failpoints.folder / f"pipeline.{step}.go").touch()
        for file in self.failpoints.folder.glob(f"pipeline.{step}.hold*"):
            file.unlink(missing_ok=True)

    def worker_of(self, tree: ProcessTree) -> WorkerServer:
        """The worker of a process tree."""
        return next(each for each in self.workers if each.runs and each.pid == tree.worker)

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


Parts = tuple[PostgresServer, ClickHouseServer, Api, list[WorkerServer]]


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
    }
    options = {f"HOLDFAST_WORKER_{name}": str(value) for name, value in worker.items()}
    return {**options, "HOLDFAST_SPARK_QUICK_START": "true", **FailpointFolder(failpoints).environment}


@contextmanager
def running_cluster(plan: Plan, folder: Path) -> Iterator[KillCluster]:
    """The cluster, for the body; no process is left afterwards."""
    failpoints = folder / "failpoints"
    failpoints.mkdir(parents=True)
    with ExitStack() as stack:
        for name in ("store", "clickhouse", "api", *(f"worker{n}" for n in range(plan.workers))):
            (folder / name).mkdir()
        store = stack.enter_context(PostgresServer(folder / "store").running())
        shared = ("--store", store.url(schema="cluster"), "--objects", f"file://{folder}/objects")
        clickhouse = stack.enter_context(clickhouse_server(folder / "clickhouse"))
        api = Api(folder / "api", "--roles", "api,agent", "--http", "127.0.0.1:0", "--clickhouse", "off", *shared)
        stack.enter_context(api.running())
        stack.callback(end_all, failpoints)
        options = (*shared, "--spark-master", "local[2]")
        workers = [
            WorkerServer(folder / f"worker{n}", worker_environment(plan, failpoints), *options)
            for n in range(plan.workers)
        ]
        for worker in workers:
            stack.enter_context(worker.running())
        cluster = KillCluster(plan, folder, (store, clickhouse, api, workers))
        try:
            yield cluster
        finally:
            send([each.pid for each in workers if each.runs], signal.SIGCONT)
            store.thaw()


def await_ready(cluster: KillCluster, path: str) -> None:
    """Until a pipeline runs."""

    def runs() -> bool:
        status = cluster.status(path)
        return bool(status) and status["state"] == "running"

    try:
        until(runs, within_s=READY_TIMEOUT_S, what="the pipeline runs")
    except AssertionError as error:
        raise UnavailableError("pipeline", f"{error}: {cluster.status(path)}\n{cluster.log()}") from None
