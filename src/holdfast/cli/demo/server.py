"""A server for the demo: the one that runs, or one of its own that is gone with it."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

from holdfast.client.http_client import HttpClient
from holdfast.vocabulary.errors import HoldfastError, UnavailableError

_START_S: Final = 60.0
_STOP_S: Final = 60.0
_LOOK_S: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoServer:
    """Where everything is. `clickhouse` is empty if it is not known how to sign in there."""

    http: str
    bootstrap: str
    clickhouse: str = ""
    own: bool = False
    data: Path | None = None


def is_ready(url: str) -> bool:
    """Whether a Holdfast that can do its work answers there."""
    try:
        said = HttpClient(url, timeout_s=2).get("/ready")
    except HoldfastError:
        return False
    return isinstance(said, dict) and said.get("status") == "ready"


@contextmanager
def own_server(data: str) -> Iterator[DemoServer]:
    """A server on free ports, in `data` or in a folder that is removed afterwards. SIGTERM ends it, and after a while SIGKILL."""
    folder = Path(data or tempfile.mkdtemp(prefix="holdfast-demo-")).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    addresses, log = folder / "addresses.json", folder / "server.log"
    addresses.unlink(missing_ok=True)
    argv = [sys.executable, "-m", "holdfast", "serve", "--data", str(folder / "data"), "--kafka", "127.0.0.1:0"]
    argv += ["--http", "127.0.0.1:0", "--print-addresses", str(addresses), "--log-level", "info"]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    with log.open("wb") as lines:
        # In a session of its own: Ctrl-C is for the demo, which then ends the server in its own time.
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
            raise UnavailableError("the demo's server", lines[-1] if lines else f"it ended with {process.returncode}")
        if addresses.exists():
            found = json.loads(addresses.read_text())
            http = f"http://{found['http']}"
            if is_ready(http):
                return DemoServer(
                    http=http,
                    bootstrap=found["kafka"],
                    clickhouse=_clickhouse(found.get("clickhouse", ""), folder / "data"),
                    own=True,
                    data=folder,
                )
        time.sleep(_LOOK_S)
    raise UnavailableError("the demo's server", f"it did not listen within {_START_S:g} s")


def _clickhouse(address: str, data: Path) -> str:
    if not address:
        raise UnavailableError("the embedded ClickHouse", "it is not installed: pip install 'holdfast[clickhouse]'")
    from holdfast.clickhouse.embedded.authentication import read_password_file

    return f"http://default:{quote(read_password_file(data / 'clickhouse' / 'password'))}@{address}"


def _stop_process(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_STOP_S)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
