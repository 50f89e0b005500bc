"""The wall behind the fence: what the kernel refuses to the engine's threads, whatever a statement says."""

import ctypes
import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.clickhouse.embedded import landlock
from holdfast.testing.clickhouse import clickhouse_server

TRY = """
import json, socket, sys, threading
from pathlib import Path
from holdfast.clickhouse.embedded.landlock import confine

data, outside, port = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
found = {}

def tried(name, call):
    try:
        call()
        found[name] = "done"
    except OSError as error:
        found[name] = type(error).__name__
    except RuntimeError as error:
        found[name] = str(error)[:200]

def attempts():
    tried("read", lambda: (outside / "secret").read_text())
    tried("write", lambda: (outside / "new").write_text("x"))
    tried("list", lambda: list(outside.iterdir()))
    tried("environment", lambda: Path("/proc/self/environ").read_bytes())
    tried("connect", lambda: socket.create_connection(("127.0.0.1", port), timeout=5).close())
    tried("own", lambda: (data / "new").write_text("x"))

def engine():
    from chdb import _chdb
    connection = _chdb.connect(str(data / "engine"))
    connection.query("CREATE TABLE t (a Int8) ENGINE = MergeTree ORDER BY a")
    connection.query("INSERT INTO t VALUES (1)")
    found["rows"] = connection.query("SELECT count() FROM t", "TSV").bytes().decode()
    tried("engine", lambda: connection.query(f"SELECT file('{outside}/secret')", "TSV"))
    tried("engine table", lambda: connection.query(f"SELECT * FROM file('{outside}/secret', 'LineAsString')", "TSV"))
    tried("engine write", lambda: connection.query(f"SELECT 1 INTO OUTFILE '{outside}/new'", "TSV"))

def life():
    found["confined"] = confine(data)
    attempts()
    inner = threading.Thread(target=attempts)
    inner.start()
    inner.join()
    engine()

import os
os.putenv("TMPDIR", str(data))
thread = threading.Thread(target=life)
thread.start()
thread.join()
found["main"] = (outside / "secret").read_text()
print(json.dumps(found), flush=True)
os._exit(0)
"""


def _landlock() -> int:
    return int(ctypes.CDLL(None).syscall(444, None, 0, 1)) if sys.platform == "linux" else -1


@pytest.mark.skipif(_landlock() < 4, reason="this kernel's Landlock knows no hosts, or it has none")
def test_the_engine_reaches_its_own_directory_and_nothing_else(tmp_path: Path) -> None:
    pytest.importorskip("chdb")
    data, outside = tmp_path / "data", tmp_path / "outside"
    data.mkdir()
    outside.mkdir()
    (outside / "secret").write_text("secret")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        argv = [sys.executable, "-c", TRY, str(data), str(outside), str(listening.getsockname()[1])]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    refused = {name: found[name] for name in ("read", "write", "list", "environment", "connect")}
    assert refused == dict.fromkeys(refused, "PermissionError")
    assert found["own"] == "done"
    assert found["rows"] == "1\n"
    assert "secret" not in found["engine"].replace("/secret", "")
    for name in ("engine", "engine table", "engine write"):
        assert found[name] != "done", name
    assert not (outside / "new").exists()
    assert found["main"] == "secret", "only the engine's threads are confined"


@pytest.mark.parametrize(
    ("version", "missing"),
    [
        (-1, ["other files", "other hosts", "signals"]),
        (1, ["truncating", "other hosts", "signals"]),
        (3, ["other hosts", "signals"]),
        (4, ["signals"]),
        (6, []),
    ],
)
def test_the_log_says_what_a_kernel_does_not_confine(
    version: int, missing: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    found = landlock.unconfined_access(version)
    assert [words for words in missing if not any(words in each for each in found)] == []
    assert len([each for each in found if "UDP" not in each]) == len(missing)
    with caplog.at_level("INFO"):
        landlock.log_unconfined(found)
    (record,) = caplog.records
    assert record.levelname == ("WARNING" if missing else "INFO")
    assert all(each in record.getMessage() for each in found)


def test_an_engine_that_is_not_to_be_confined_says_so(tmp_path: Path) -> None:
    pytest.importorskip("chdb")
    with clickhouse_server(tmp_path / "server", options=["--confined", "false"]) as server:
        log = (server.directory / "clickhouse.log").read_text()
    assert "not confined by the kernel" in log
    assert "other files" in log
