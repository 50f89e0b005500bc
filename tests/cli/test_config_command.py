"""`holdfast config show` as a person or a script uses it."""

import json
import subprocess
import sys
from pathlib import Path

from tests.support.server_process import environment

from holdfast.app.config import CATALOGUE


def show(*argv: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    called = [sys.executable, "-m", "holdfast", "config", "show", *argv]
    return subprocess.run(called, capture_output=True, text=True, timeout=60, cwd=cwd, env=environment(**env))


def test_it_says_what_holds_and_where_it_came_from(tmp_path: Path) -> None:
    (tmp_path / "node.toml").write_text("[wal]\nfile_bytes = 1048576\n")
    done = show(
        *("--config", "node.toml", "--zone", "west"),
        cwd=tmp_path,
        HOLDFAST_STORE="postgresql://me:s3cr3t@db/x",
        KAFKA_ADDR="127.0.0.1:19092",
        GRPC_ADDR="127.0.0.1:9090",
        AGENT_ADDRESS="127.0.0.1:9091",
    )
    assert done.returncode == 0, done.stderr
    lines = {line.split()[0]: line.split(maxsplit=2)[1:] for line in done.stdout.splitlines()}
    assert lines["agent.zone"] == ["west", "flag --zone"]
    assert lines["store"] == ["postgresql://me:***@db/x", "env HOLDFAST_STORE"]
    assert lines["kafka.listen"] == ["127.0.0.1:19092", "alias KAFKA_ADDR"]
    assert lines["wal.file_bytes"] == ["1048576", "node.toml:2"]
    assert lines["objects"] == [f"file://{tmp_path}/holdfast-data/objects", "default"]
    assert "wal.read_bytes" not in lines
    assert lines["grpc.listen"] == ["127.0.0.1:9090", "alias GRPC_ADDR"]
    assert "AGENT_ADDRESS" in done.stderr
    assert not (tmp_path / "holdfast-data").exists()


def test_programs_get_one_object_per_setting(tmp_path: Path) -> None:
    done = show("--all", "--json", "--set", "kafka.idle_ms=5", cwd=tmp_path)
    rows = {row["name"]: row for row in map(json.loads, done.stdout.splitlines())}
    assert set(rows) == set(CATALOGUE)
    assert rows["kafka.idle_ms"] == {
        "name": "kafka.idle_ms",
        "value": 5,
        "from": "flag --set kafka.idle_ms",
        "variable": "HOLDFAST_KAFKA_IDLE_MS",
    }
    assert rows["insecure"]["value"] is False


def test_a_wrong_setting_is_refused_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "node.toml").write_text("[wall]\nfile_bytes = 1048576\n")
    done = show("--config", "node.toml", cwd=tmp_path)
    assert done.returncode == 2
    assert "node.toml:2" in done.stderr
    assert "did you mean wal.file_bytes" in done.stderr
    assert not done.stdout
