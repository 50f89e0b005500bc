"""A server's end as its log tells it: what a graceful stop waits for, and how long at most."""

import asyncio
import gc
import logging
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.support.waiting import async_until

from holdfast.app import process
from holdfast.app.addresses import Address
from holdfast.app.agent_processes import AgentCommand
from holdfast.app.config import ServeSettings
from holdfast.app.process import STOPPED, STOPPED_LATE, ShutdownSignal, freeze_garbage_collector, serve
from holdfast.app.server import RunningServer
from holdfast.app.stop_progress import StopProgress
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SystemRandom
from holdfast.vocabulary.with_parent import STOP_SIGNAL


class SlowServer:
    """Stops when it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.may_end, self.stopping = asyncio.Event(), StopProgress()
        monkeypatch.setattr(process, "running_server", self._running)
        monkeypatch.setattr(process, "_REPORT_S", 0.05)
        monkeypatch.setattr(process, "freeze_garbage_collector", lambda: None)

    @asynccontextmanager
    async def _running(self, settings: ServeSettings, **_: object) -> AsyncIterator[RunningServer]:
        address = Address("localhost", 9092)
        yield RunningServer(
            kafka=address, advertised=address, node=1, name="ann", cluster_id="c", stopping=self.stopping
        )
        self.stopping.stage("Kafka requests in flight")
        await self.may_end.wait()

    async def stopped(self, directory: Path, stop_ms: int, *further: AgentCommand) -> int:
        """Stop it when it serves, or when its first further agent was started."""
        stop = ShutdownSignal()
        settings = ServeSettings(data=directory, store="memory:", objects="memory:", stop_ms=stop_ms)
        serving = asyncio.ensure_future(
            serve(
                settings,
                clock=RealClock(),
                random=SystemRandom(),
                announce=lambda _: stop.asked.set(),
                stop=stop,
                further_agents=further,
            )
        )
        if further:
            await async_until(further[0].data.exists)
            stop.asked.set()
        async with asyncio.timeout(30):
            return await serving


async def test_a_stop_that_takes_its_time_says_what_it_waits_for_and_how_long_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    server = SlowServer(monkeypatch)
    stopping = asyncio.ensure_future(server.stopped(tmp_path, 60_000))
    report = re.compile("waiting for Kafka requests in flight; exits at the latest in ([0-9]+) s")
    await async_until(lambda: report.search(caplog.text))
    assert 0 < int(report.findall(caplog.text)[0]) < 60
    server.stopping.follow(lambda: "the store, to leave the cluster")
    await async_until(lambda: "waiting for the store, to leave the cluster" in caplog.text)
    assert "a second signal exits at once" in caplog.text
    server.may_end.set()
    assert await stopping == STOPPED


async def test_a_stop_that_does_not_end_is_given_up_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    server = SlowServer(monkeypatch)
    assert await server.stopped(tmp_path, 120) == STOPPED_LATE
    assert "graceful stop exceeded 120 ms, waiting for Kafka requests in flight" in caplog.text


async def test_a_stop_does_not_wait_for_an_agent_of_this_host_that_does_not_listen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = SlowServer(monkeypatch)
    server.may_end.set()
    sleeps = (sys.executable, "-c", "import time; time.sleep(600)")
    assert await server.stopped(tmp_path, 60_000, AgentCommand(tmp_path / "2", sleeps, {})) == STOPPED


def test_no_collection_but_the_rare_full_one_looks_at_more_objects_than_fit_into_one_pause() -> None:
    before = gc.get_threshold()
    try:
        freeze_garbage_collector()
        objects, collections, _ = gc.get_threshold()
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
    assert (
        objects * (collections + 1) < 60_000
    )  # of the middle generation; while partitions are opened nearly all of them stay


async def test_what_the_process_that_started_it_sends_is_no_second_signal(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    exits: list[int] = []
    monkeypatch.setattr(os, "_exit", exits.append)
    stop, loop = ShutdownSignal(), asyncio.get_running_loop()
    stop.listen()
    try:
        for number in (STOP_SIGNAL, signal.SIGTERM, STOP_SIGNAL):  # in either order
            os.kill(os.getpid(), number)
            await async_until(stop.asked.is_set)
        await async_until(lambda: "SIGTERM: stopping gracefully" in caplog.text)
        assert not exits
        os.kill(os.getpid(), signal.SIGTERM)
        await async_until(lambda: exits == [128 + signal.SIGTERM])
    finally:
        for number in (STOP_SIGNAL, signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
