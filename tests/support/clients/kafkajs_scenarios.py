"""kafkajs, installed once for all workers and kept, and its scenarios as calls that return what they saw."""

import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.broker import Broker
from tests.support.clients.group_members import REPOSITORY, Event, Start, started

SCRIPTS = Path(__file__).parent / "kafkajs"
MANIFEST = (SCRIPTS / "package.json").read_text()
VERSION = json.loads(MANIFEST)["dependencies"]["kafkajs"]
HOME = REPOSITORY / ".cache" / f"kafkajs-{VERSION}"
INSTALL = ["install", "--no-package-lock", "--no-audit", "--no-fund", "--silent"]
INSTALL_TIMEOUT_S = 90
RUN_TIMEOUT_S = 60


def installed() -> Path:
    """The folder of modules, filled if it was not; skips where there is no node, no npm or no way to the registry."""
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            pytest.skip(f"kafkajs needs {program}, which is not installed")
    HOME.mkdir(parents=True, exist_ok=True)
    with (HOME / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = HOME / "installed.json"
        if not done.exists() or done.read_text() != MANIFEST:
            (HOME / "package.json").write_text(MANIFEST)
            try:
                ran = subprocess.run(["npm", *INSTALL], cwd=HOME, capture_output=True, timeout=INSTALL_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                pytest.skip(f"npm did not install kafkajs within {INSTALL_TIMEOUT_S} s")
            if ran.returncode != 0:
                pytest.skip(f"npm cannot install kafkajs: {ran.stderr.decode(errors='replace')[-500:]}")
            done.write_text(MANIFEST)
    return HOME / "node_modules"


def node_environment(modules: Path) -> dict[str, str]:
    told = {"NODE_PATH": str(modules), "KAFKAJS_NO_PARTITIONER_WARNING": "1"}
    return {**os.environ, **told}  # noqa: TID251 (a child's, with a word more)


class Scenarios:
    """`scenarios("file.name", key=value)` runs one to its end and returns what it said."""

    def __init__(self, modules: Path, broker: Broker) -> None:
        self.modules, self.broker = modules, broker

    def __call__(self, scenario: str, **settings: object) -> list[Event]:
        argv = ["node", str(SCRIPTS / "run.js"), self.broker.bootstrap, scenario]
        given, env = json.dumps(settings).encode(), node_environment(self.modules)
        try:
            ran = subprocess.run(argv, input=given, capture_output=True, timeout=RUN_TIMEOUT_S, env=env)
        except subprocess.TimeoutExpired as endless:
            told_last = [(each or b"")[-2_000:].decode(errors="replace") for each in (endless.stdout, endless.stderr)]
            raise AssertionError(f"{scenario} does not end; it said {told_last}") from None
        said = [json.loads(line) for line in ran.stdout.splitlines()]
        complaint = ran.stderr.decode(errors="replace")[-3_000:]
        assert ran.returncode == 0, f"{scenario} failed, having said {said[-3:]}: {complaint}"
        assert said[-1]["event"] == "end"
        return said[:-1]

    def facts(self, scenario: str, **settings: object) -> dict[str, Event]:
        """What it said, by event; for scenarios that say each thing once."""
        return {event["event"]: event for event in self(scenario, **settings)}

    @contextmanager
    def running(self, scenario: str, **settings: object) -> Iterator[Start]:
        """Starts the scenario as processes that tests freeze and kill."""

        def command(told: Mapping[str, object]) -> tuple[list[str], Mapping[str, str]]:
            argv = ["node", str(SCRIPTS / "run.js"), str(told["bootstrap"]), scenario, json.dumps(told)]
            return argv, node_environment(self.modules)

        with started(command, self.broker.bootstrap, settings) as start:
            yield start


def message(key: bytes | None, value: bytes | None, **more: Any) -> dict[str, Any]:
    """A record as the scenarios take it."""
    headers: dict[str, list[str | None]] = {}
    for name, some in more.get("headers", ()):
        headers.setdefault(name, []).append(None if some is None else some.hex())
    return {
        "key": None if key is None else key.hex(),
        "value": None if value is None else value.hex(),
        "headers": list(headers.items()),
        "partition": more.get("partition", 0),
        "timestamp": more.get("timestamp_ms"),
    }
