"""A real Prometheus, from Debian's package: on the PATH, or unpacked by `.ci/run` without root."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from tests.support.waiting import WAIT_S, until

from holdfast.testing.server_process import free_port

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "holdfast" / "prometheus"  # noqa: TID251
MISSING = "Prometheus is not installed: apt-get install prometheus, or .ci/run unpacks it into the cache"


def prometheus_program(name: str = "prometheus") -> str | None:
    """Where it is, if it is anywhere."""
    unpacked = CACHE / "usr" / "bin" / name
    return shutil.which(name) or (str(unpacked) if unpacked.exists() else None)


class Prometheus:
    """One that runs."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series of an expression, now. Fails if it is not valid."""
        answer = self._client.post("/api/v1/query", data={"query": expression}).json()
        assert answer["status"] == "success", (expression, answer)
        found: list[dict[str, Any]] = answer["data"]["result"]
        return found

    def rules(self) -> dict[str, str]:
        """The health of each alert by its name, once all were evaluated."""
        answer = self._client.get("/api/v1/rules").json()
        return {rule["name"]: rule["health"] for group in answer["data"]["groups"] for rule in group["rules"]}


@contextmanager
def running_prometheus(directory: Path, program: str, target: str, rules: Path) -> Iterator[Prometheus]:
    """A Prometheus that scrapes `target` (host:port) every 200 ms, for the body."""
    (directory / "prometheus.yml").write_text(
        "global: {scrape_interval: 200ms, evaluation_interval: 1s}\n"
        f"rule_files: ['{rules}']\n"
        f"scrape_configs: [{{job_name: holdfast, static_configs: [{{targets: ['{target}']}}]}}]\n"
    )
    address = f"127.0.0.1:{free_port()}"
    options = (f"--config.file={directory}/prometheus.yml", f"--storage.tsdb.path={directory}/data")
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen([program, *options, f"--web.listen-address={address}"], stdout=log, stderr=log)
    try:
        with httpx.Client(base_url=f"http://{address}", timeout=WAIT_S) as client:
            until(lambda: _is_ready(process, client), what=lambda: (directory / "log").read_text())
            yield Prometheus(client)
    finally:
        process.kill()
        process.wait()


def _is_ready(process: "subprocess.Popen[bytes]", client: httpx.Client) -> bool:
    assert process.poll() is None
    try:
        return client.get("/-/ready").status_code == 200
    except httpx.TransportError:
        return False
