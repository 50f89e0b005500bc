"""One worker of Kafka Connect in distributed mode, and its REST interface on loopback."""

import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tests.support.waiting import until

from conformance.java import java, properties
from conformance.programs import kill, launch
from holdfast.testing.server_process import free_port

START_S: Final = 180.0
REST_TIMEOUT_S: Final = 100.0
_STORES: Final = ("config", "offset", "status")


class ConnectWorker:
    """A worker of the cluster `group`; started, killed and started again by scenarios."""

    def __init__(
        self,
        jars: str,
        bootstrap: str,
        folder: Path,
        log: Path,
        *,
        group: str = "connect",
        more: Mapping[str, object] | None = None,
    ) -> None:
        self.port = free_port()
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "key.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "key.converter.schemas.enable": "false",
            "value.converter.schemas.enable": "false",
            **{f"{each}.storage.topic": f"{group}-{each}" for each in _STORES},
            **{f"{each}.storage.replication.factor": 1 for each in _STORES},
            "offset.flush.interval.ms": 1000,
            "scheduled.rebalance.max.delay.ms": 3000,
            "session.timeout.ms": 10_000,
            "heartbeat.interval.ms": 2000,
            "listeners": f"http://127.0.0.1:{self.port}",
            "plugin.discovery": "only_scan",
            **(more or {}),
        }
        path = properties(folder / f"worker-{self.port}.properties", settings)
        self._argv = java(jars, "org.apache.kafka.connect.cli.ConnectDistributed", path)
        self._folder, self._log = folder, log
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start it and wait until it answers requests about connectors, which it does once it has joined its group."""
        self._process = launch(self._argv, log=self._log, cwd=self._folder)
        until(self._answers, what="the worker answers", within_s=START_S)

    def kill(self) -> None:
        """SIGKILL."""
        process, self._process = self._process, None
        if process is not None:
            kill(process)

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"the worker ended with {self._process.returncode}"
        try:
            self.request("GET", "/connectors")
        except (OSError, AssertionError):
            return False
        return True

    def request(self, method: str, path: str, body: object = None) -> Any:
        """What it answers; an answer that is an error is one here."""
        data = None if body is None else json.dumps(body).encode()
        asked = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            data=data,
            method=method,
            headers={"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(asked, timeout=REST_TIMEOUT_S) as answer:
                content = answer.read()
        except urllib.error.HTTPError as refused:
            raise AssertionError(f"{method} {path}: {refused.code} {refused.read().decode()[:500]}") from None
        return json.loads(content) if content else None

    def put_connector(self, name: str, config: Mapping[str, object]) -> None:
        """Create or change a connector; returns when it and its tasks run."""
        self.request("PUT", f"/connectors/{name}/config", config)
        self.await_running(name)

    def await_running(self, name: str, *, within_s: float = START_S) -> None:
        """Return when the connector and all its tasks run; a failed task is an error at once."""
        until(lambda: self._runs(name), what=lambda: f"{name} runs: {self.status(name)}", within_s=within_s)

    def status(self, name: str) -> Any:
        return self.request("GET", f"/connectors/{name}/status")

    def _runs(self, name: str) -> bool:
        try:
            status = self.status(name)
        except (OSError, AssertionError):  # not known yet, or the cluster rebalances
            return False
        failed = [task["trace"] for task in status["tasks"] if task["state"] == "FAILED"]
        assert not failed, failed[0][:500]
        states = [status["connector"]["state"], *(task["state"] for task in status["tasks"])]
        return len(states) > 1 and set(states) == {"RUNNING"}
