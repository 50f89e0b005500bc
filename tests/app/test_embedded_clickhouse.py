"""The embedded ClickHouse beside a server: started by its first request, again after a death, and gone with its server."""

import asyncio
import json
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.server_process import ServeProcess
from tests.support.waiting import until

from holdfast.app import embedded_clickhouse
from holdfast.app.config import EmbeddedSettings, ServeSettings
from holdfast.app.embedded_clickhouse import clickhouse_endpoint
from holdfast.testing.clickhouse import ClickHouseServer
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SystemRandom

pytest.importorskip("chdb")


class SkippingClock(RealClock):
    """Time passes, and more of it when a test says so."""

    skipped_ms = 0

    def boot_ms(self) -> int:
        return super().boot_ms() + self.skipped_ms


def _beside(node: ServeProcess) -> ClickHouseServer:
    """Its client: the address it told, the password in its directory."""
    found = ClickHouseServer(node.directory, user="default")
    found.port = int(json.loads(node.addresses.read_text())["clickhouse"].rpartition(":")[2])
    kept = node.data / "clickhouse" / "password"
    assert kept.stat().st_mode & 0o777 == 0o600
    found.password = kept.read_text().strip()
    return found


def _child(node: ServeProcess) -> int:
    """The process that has the data directory, by its lock; 0: none."""
    lock = node.data / "clickhouse" / "lock"
    pid = int(lock.read_text() or 0) if lock.exists() else 0
    return pid if pid and Path(f"/proc/{pid}").exists() else 0


@contextmanager
def _running(directory: Path, *options: str) -> Iterator[ServeProcess]:
    node = ServeProcess(directory, *options)
    node.start()
    try:
        yield node
    finally:
        node.kill()


def test_it_costs_nothing_until_it_is_asked_and_then_answers(tmp_path: Path) -> None:
    with _running(tmp_path) as node:
        beside = _beside(node)
        assert _child(node) == 0
        assert beside.query("SELECT 1") == b"1\n"
        assert _child(node) != 0
        assert beside.password not in node.out + node.log
        child = _child(node)
        assert node.terminate() == 0
        assert not Path(f"/proc/{child}").exists()


def test_it_comes_back_after_a_death_with_what_it_had(tmp_path: Path) -> None:
    with _running(tmp_path) as node:
        beside = _beside(node)
        beside.query("CREATE TABLE t (a Int8) ENGINE = MergeTree ORDER BY a")
        beside.query("INSERT INTO t VALUES (1)")
        for _ in range(2):
            os.kill(_child(node), signal.SIGKILL)
            until(lambda: _child(node) == 0, what="it is dead")
            assert beside.query("SELECT count() FROM t") == b"1\n"


def test_it_dies_with_a_server_that_was_killed(tmp_path: Path) -> None:
    with _running(tmp_path) as node:
        _beside(node).query("CREATE TABLE t (a Int8) ENGINE = MergeTree ORDER BY a")
        child = _child(node)
        node.kill()
        until(lambda: not Path(f"/proc/{child}").exists(), what="the child ends with its parent")
        node.start()
        assert _beside(node).query("SELECT count() FROM t") == b"0\n"


async def test_one_that_is_frozen_is_killed_and_comes_back_with_what_it_had(tmp_path: Path) -> None:
    settings = ServeSettings(
        data=tmp_path,
        store="memory:",
        objects="memory:",
        clickhouse="embedded",
        embedded=EmbeddedSettings(ping_ms=300),
    )
    clock = SkippingClock()
    async with clickhouse_endpoint(settings, clock=clock, random=SystemRandom()) as beside:
        assert beside.address is not None
        server = ClickHouseServer(tmp_path, user="default")
        server.port, server.password = beside.address.port, (tmp_path / "clickhouse" / "password").read_text().strip()
        await asyncio.to_thread(server.query, "CREATE TABLE t (a Int8) ENGINE = MergeTree ORDER BY a")
        frozen = int((tmp_path / "clickhouse" / "lock").read_text())
        os.kill(frozen, signal.SIGSTOP)

        def killed() -> bool:
            if Path(f"/proc/{frozen}").exists():
                clock.skipped_ms += settings.embedded.hung_ms
                return False
            return True

        await asyncio.to_thread(until, killed, what="it is killed")
        assert await asyncio.to_thread(server.query, "SELECT count() FROM t") == b"0\n"


@pytest.mark.parametrize(
    "options", [("--clickhouse", "off"), ("--roles", "agent,api"), ("--clickhouse", "http://u:secret@h:1")]
)
def test_there_is_none_unless_it_is_wanted(tmp_path: Path, options: tuple[str, str]) -> None:
    with _running(tmp_path, *options) as node:
        assert "clickhouse" not in json.loads(node.addresses.read_text())
        assert "secret" not in node.out + node.log
        assert not (node.data / "clickhouse").exists()


def test_a_node_on_a_store_that_others_may_share_has_none(tmp_path: Path) -> None:
    """Each would have its own, and the workers of one pipeline would write into different ones."""
    with _running(tmp_path / "node", "--store", f"sqlite:///{tmp_path}/shared.db") as node:
        assert "clickhouse" not in json.loads(node.addresses.read_text())
        assert "embedded ClickHouse disabled: the store may be shared by several nodes" in node.log


async def test_another_port_is_taken_if_somebody_has_the_usual_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = ServeSettings(data=tmp_path, store="memory:", objects="memory:", clickhouse="embedded")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        monkeypatch.setattr(embedded_clickhouse, "_PORT", taken.getsockname()[1])
        async with clickhouse_endpoint(settings, clock=RealClock(), random=SystemRandom()) as beside:
            assert beside.address is not None
            assert beside.address.port not in (0, taken.getsockname()[1])
            server = ClickHouseServer(tmp_path, user="default")
            server.port, server.password = (
                beside.address.port,
                (tmp_path / "clickhouse" / "password").read_text().strip(),
            )
            assert await asyncio.to_thread(server.query, "SELECT 1") == b"1\n"


def test_a_value_that_cannot_be_is_refused(tmp_path: Path) -> None:
    node = ServeProcess(tmp_path, "--clickhouse", "tcp://x:secret@y")
    node.launch()
    assert node.process.wait(60) == 2
    assert "embedded, off, or http" in node.log
    assert "secret" not in node.log
