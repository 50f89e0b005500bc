"""A server that starts together with its store: it waits, says why, and gives up in the end."""

import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.support.server_process import BROKER_ONLY, ServeProcess
from tests.support.store_engines.postgres import PostgresServer
from tests.support.waiting import until

from holdfast.app import store_wait
from holdfast.app.store_wait import waited_for_store
from holdfast.contracts.store import Store
from holdfast.stores.urls import open_store
from holdfast.testing.server_process import free_port
from holdfast.vocabulary.clock import Clock, RealClock
from holdfast.vocabulary.errors import UnavailableError, UsageError
from holdfast.vocabulary.random import Random, SeededRandom


class HurriedClock(RealClock):
    """Whoever sleeps is told at once that the time has passed."""

    def __init__(self) -> None:
        self.slept_ms = 0.0

    def boot_ms(self) -> int:
        return int(self.slept_ms)

    async def sleep_ms(self, duration_ms: float) -> None:
        self.slept_ms += duration_ms


def failing(monkeypatch: pytest.MonkeyPatch, *errors: Exception) -> None:
    """The store fails like this, and then opens."""
    left = list(errors)

    @asynccontextmanager
    async def opening(url: str, *, clock: Clock, random: Random) -> AsyncIterator[Store]:
        if left:
            raise left.pop(0)
        async with open_store(url, clock=RealClock(), random=random) as store:
            yield store

    monkeypatch.setattr(store_wait, "open_store", opening)


async def test_a_store_that_is_starting_is_waited_for_and_the_log_says_why(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    starting = UnavailableError("store", "the database system is starting up")
    failing(monkeypatch, UnavailableError("store", "connection refused"), starting, starting)
    caplog.set_level(logging.INFO, "holdfast.app.store_wait")
    async with waited_for_store("memory:", clock=HurriedClock(), random=SeededRandom(1), wait_ms=15_000) as store:
        assert await store.get("nothing") is None
    said = [re.sub(r"\d+", "N", record.message) for record in caplog.records]
    assert said == [
        "waiting for the store, at most N s more: store is unavailable: connection refused",
        "waiting for the store, at most N s more: store is unavailable: the database system is starting up",
        "the store is available",
    ]


async def test_a_store_that_stays_away_is_an_error_after_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = HurriedClock()
    failing(monkeypatch, *[UnavailableError("store", "connection refused")] * 1_000)
    with pytest.raises(UnavailableError, match="connection refused"):
        async with waited_for_store("memory:", clock=clock, random=SeededRandom(1), wait_ms=2_000):
            pass
    assert clock.slept_ms == pytest.approx(2_000, abs=1)


async def test_what_waiting_does_not_mend_is_raised_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = HurriedClock()
    failing(monkeypatch, UsageError("cannot open store: password authentication failed"))
    with pytest.raises(UsageError):
        async with waited_for_store("memory:", clock=clock, random=SeededRandom(1), wait_ms=2_000):
            pass
    assert clock.slept_ms == 0


@pytest.mark.slow
def test_a_server_started_before_postgresql_serves_once_that_runs(tmp_path: Path) -> None:
    postgres = PostgresServer(tmp_path / "postgres")
    postgres.prepare()
    server = ServeProcess(
        tmp_path / "node", *BROKER_ONLY, "--store", postgres.url(schema="waited"), "--store-wait-ms", "100000"
    )
    try:
        server.launch()
        until(lambda: "waiting for the store" in server.log, what="the log says what the server waits for")
        postgres.start()
        server.listening()
        assert "the store is available" in server.log
        assert server.terminate() == 0
    finally:
        server.kill()
        postgres.kill()


@pytest.mark.slow
def test_a_server_whose_store_stays_away_ends_with_the_reason(tmp_path: Path) -> None:
    url = f"postgresql://nobody@127.0.0.1:{free_port()}/nowhere"
    server = ServeProcess(tmp_path / "node", *BROKER_ONLY, "--store", url, "--store-wait-ms", "0").launch()
    assert server.ended() == 3
    assert "check host and port, and that PostgreSQL is running" in server.log
    assert "waiting for the store" not in server.log
