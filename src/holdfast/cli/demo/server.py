"""The demo's server: one of its own that is stopped with it, or a running one."""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.cli.arguments import environment_text
from holdfast.cli.clickhouse_access import DATA_VARIABLE, DEFAULT_DATA, ClickHouseAccess, server_addresses
from holdfast.cli.kafka.options import BOOTSTRAP_VARIABLE, DEFAULT_BOOTSTRAP
from holdfast.cli.server_url import ADDRESS_VARIABLE, server_url
from holdfast.client.http_client import HttpClient
from holdfast.vocabulary.errors import HoldfastError, UnavailableError, UsageError
from holdfast.vocabulary.installation import install_hint

_START_S: Final = 60.0
_READY_S: Final = 5.0
_STOP_S: Final = 60.0
_POLL_S: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoServer:
    """The addresses of a server. `own`: it is stopped, and its data removed, with the demo."""

    http: str
    bootstrap: str
    clickhouse: ClickHouseAccess
    own: bool = False


@contextmanager
def demo_server(args: argparse.Namespace, *, note: Callable[[str], None]) -> Iterator[DemoServer]:
    """The running server that the arguments or the environment name, or one of its own."""
    named = "" if args.own else args.http or environment_text(ADDRESS_VARIABLE)
    if named:
        yield _running_server(args, server_url(named))
        return
    note("starting a server with a worker and an embedded ClickHouse on free ports")
    with own_server(args.data) as server:
        yield server


def _running_server(args: argparse.Namespace, url: str) -> DemoServer:
    if not _becomes_ready(url):
        raise UnavailableError(
            f"Holdfast at {url}", "it is not ready; without --http the demo starts a server of its own"
        )
    data = Path(args.data or os.environ.get(DATA_VARIABLE) or DEFAULT_DATA)
    addresses = server_addresses(data) or {}
    local = addresses.get("http", "") == url.partition("://")[2].rstrip("/")
    bootstrap = (
        args.bootstrap or environment_text(BOOTSTRAP_VARIABLE) or (addresses["kafka"] if local else DEFAULT_BOOTSTRAP)
    )
    if args.clickhouse:
        access = ClickHouseAccess.from_url(args.clickhouse)
    elif local:
        access = ClickHouseAccess.of_server(data)
    else:
        raise UsageError(
            f"the ClickHouse of {url} is unknown: give --clickhouse URL, or --data DIR, the server's data directory"
        )
    return DemoServer(http=url, bootstrap=bootstrap, clickhouse=access)


def _becomes_ready(url: str) -> bool:
    """Whether the server is ready within a few seconds: one that has just started, or is busy, may take a moment."""
    deadline = time.monotonic() + _READY_S
    while not is_ready(url):
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True


def is_ready(url: str) -> bool:
    """Whether a Holdfast server at the URL is ready."""
    try:
        response = HttpClient(url, timeout_s=2).get("/ready")
    except HoldfastError:
        return False
    return isinstance(response, dict) and response.get("status") == "ready"


@contextmanager
def own_server(data: str) -> Iterator[DemoServer]:
    """A server on free ports, in `data` or in a folder that is removed at the end. Stopped by SIGTERM, then SIGKILL."""
    folder = Path(data or tempfile.mkdtemp(prefix="holdfast-demo-")).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    addresses, log = folder / "addresses.json", folder / "server.log"
    addresses.unlink(missing_ok=True)
    argv = [sys.executable, "-m", "holdfast", "serve", "--data", str(folder / "data"), "--kafka", "127.0.0.1:0"]
    argv += ["--http", "127.0.0.1:0", "--grpc", "off", "--print-addresses", str(addresses), "--log-level", "info"]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    with log.open("wb") as lines:
        # In a session of its own: Ctrl-C is for the demo, which stops the server later.
        process = subprocess.Popen(  # noqa: S603 - our own command
            argv, stdout=subprocess.DEVNULL, stderr=lines, env=kept, start_new_session=True
        )
    try:
        yield _await_listening(process, addresses, log, folder)
    finally:
        _stop_process(process)
        if not data:
            shutil.rmtree(folder, ignore_errors=True)


def _await_listening(process: "subprocess.Popen[bytes]", addresses: Path, log: Path, folder: Path) -> DemoServer:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            lines = log.read_text(errors="replace").strip().splitlines()
            raise UnavailableError("the demo's server", lines[-1] if lines else f"it exited with {process.returncode}")
        if addresses.exists():
            found = json.loads(addresses.read_text())
            http = f"http://{found['http']}"
            if is_ready(http):
                return DemoServer(
                    http=http,
                    bootstrap=found["kafka"],
                    clickhouse=_clickhouse(found, folder / "data"),
                    own=True,
                )
        time.sleep(_POLL_S)
    raise UnavailableError("the demo's server", f"it was not ready within {_START_S:g} s")


def _clickhouse(addresses: dict[str, str], data: Path) -> ClickHouseAccess:
    if "clickhouse" not in addresses:
        raise UnavailableError("the embedded ClickHouse", f"chdb is not installed: {install_hint('clickhouse')}")
    return ClickHouseAccess.of_server(data)


def _stop_process(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_STOP_S)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
