"""A server as a process: it runs until a signal, and stops within a bounded time.

The first SIGTERM or SIGINT stops it gracefully, and the log says what that waits for; the second ends it at once. Neither loses
anything acknowledged: that is in the WAL, and so is what a graceful stop could not publish in time.

A WAL that has failed ends the process, whatever else ends or hangs with it (docs/safety.md, rule 21).
"""

import asyncio
import gc
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, NoReturn

from holdfast.app.agent_processes import AgentCommand, running_agents
from holdfast.app.config import ServeSettings
from holdfast.app.server import RunningServer, running_server
from holdfast.app.stop_progress import StopProgress
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import HoldfastError
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.with_parent import STOP_SIGNAL

_log: Final = logging.getLogger(__name__)

_SWITCH_INTERVAL_S: Final = 0.0005  # Python's own is 5 ms, five times what an acknowledgement may take
# When generations are collected: after so many allocations, then after so many collections of the one before. A collection stops
# everything: 5,000 objects take 3 ms, 30,000 take 20. Python's own are 700, 10 and 10.
_GC_THRESHOLDS: Final = (5_000, 5, 800)
_REPORT_S: Final = 5.0  # how often a stop that goes on says what it waits for
_CANCEL_TIMEOUT_S: Final = 5.0  # for the cancellation after a graceful stop took too long
_FAILED_TIMEOUT_S: Final = 10.0  # for everything to end by itself after the WAL has failed
STOPPED: Final = 0
STOPPED_LATE: Final = 1
WAL_FAILED: Final = 4  # the exit code of `CorruptError`


class ShutdownSignal:
    """Whether the process was asked to stop."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self._signalled = False

    def listen(self) -> None:
        """Handle SIGTERM and SIGINT from now on, and what a process that started this one sends."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal, number)
        loop.add_signal_handler(STOP_SIGNAL, self.asked.set)

    def _on_signal(self, number: signal.Signals) -> None:
        if self._signalled:
            _log.warning("second %s: exiting at once", number.name)
            os._exit(128 + number)
        _log.info("%s: stopping gracefully; a second signal exits at once", number.name)
        self._signalled = True
        self.asked.set()


async def serve(
    settings: ServeSettings,
    *,
    clock: Clock,
    random: Random,
    announce: Callable[[RunningServer], None],
    stop: ShutdownSignal,
    further_agents: Sequence[AgentCommand] = (),
) -> int:
    """Serve until `stop`; `announce` is called once everything listens. Errors that prevent or end serving are raised."""
    listening: asyncio.Future[RunningServer] = asyncio.get_running_loop().create_future()
    failed: asyncio.Future[HoldfastError] = asyncio.get_running_loop().create_future()

    async def live() -> None:
        async with (
            running_agents(further_agents, clock=clock, random=random, stop_ms=settings.stop_ms) as agents,
            running_server(settings, clock=clock, random=random) as served,
        ):
            listening.set_result(served)
            if served.failed is not None:
                served.failed.add_done_callback(lambda wal: failed.set_result(wal.result()))
            asked.add_done_callback(lambda _: agents.stop())  # also while they start
            further = await agents.start()
            if not asked.done():
                announce(replace(served, further_agents=further))
                freeze_garbage_collector()
            await stop.asked.wait()

    life = asyncio.ensure_future(live())
    asked = asyncio.ensure_future(stop.asked.wait())
    ends: set[asyncio.Future[Any]] = {life, asked, failed}
    try:
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if not listening.done() and not life.done():
            return STOPPED  # stopped before anything was served: nothing to finish
        if not failed.done() and not life.done():
            await _wait_reporting({life, failed}, listening.result().stopping, settings.stop_ms / 1000)
        if failed.done():
            await _end_at_once(life, failed.result())
        if life.done():
            life.result()
            _log.info("stopped")
            return STOPPED
        _log.warning(
            "graceful stop exceeded %d ms, waiting for %s: unpublished records stay in the WAL for the next start",
            settings.stop_ms,
            listening.result().stopping.waits_for,
        )
        return STOPPED_LATE
    finally:
        asked.cancel()
        if not life.done():
            life.cancel()
            await asyncio.wait({life}, timeout=_CANCEL_TIMEOUT_S)


async def _wait_reporting(ends: "set[asyncio.Future[Any]]", stopping: StopProgress, timeout_s: float) -> None:
    """Wait until the server has ended, or may take no longer, and say now and then what for."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + timeout_s
    while (left_s := until_s - loop.time()) > 0:
        done, _ = await asyncio.wait(ends, timeout=min(left_s, _REPORT_S), return_when=asyncio.FIRST_COMPLETED)
        if done:
            return
        if (left_s := until_s - loop.time()) > 0:
            _log.info(
                "stopping: waiting for %s; exits at the latest in %d s, a second signal exits at once",
                stopping.waits_for,
                left_s,
            )


async def _end_at_once(life: "asyncio.Future[None]", failure: HoldfastError) -> NoReturn:
    """Raise `failure` once the server has ended. One that does not end is left as a crash would leave it."""
    await asyncio.wait({life}, timeout=_FAILED_TIMEOUT_S)
    if not life.done():
        _log.critical("%s; the server does not end by itself: exiting at once", failure)
        os._exit(WAL_FAILED)
    if not life.cancelled() and (error := life.exception()) is not None and error is not failure:
        raise failure from error
    raise failure


def shorten_switch_interval() -> None:
    """Shorten the interpreter's switch interval: acknowledgements cross from the WAL's thread to the loop."""
    sys.setswitchinterval(_SWITCH_INTERVAL_S)


def freeze_garbage_collector() -> None:
    """Exempt what exists at start from collection: it lives as long as the process."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)


def raise_open_file_limit() -> None:
    """Raise the limit of open files to the hard limit: every connection is a file."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
