"""A server as a process: it runs until it is told to stop, and stops within bounds.

The first SIGTERM or SIGINT asks it to finish politely; the second ends it at once. Neither loses anything that was acknowledged:
that is in the WAL, and so is what a polite stop could not publish in time.
"""

import asyncio
import gc
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from holdfast.app.config import ServeSettings
from holdfast.app.server import RunningServer, running_server
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.random import Random

_log: Final = logging.getLogger(__name__)

_SWITCH_INTERVAL_S: Final = 0.0005  # Python's own is 5 ms, five times what an acknowledgement may take
_GC_THRESHOLD: Final = 20_000  # objects made before the collector looks at the youngest; Python's own is 700
_CANCEL_TIMEOUT_S: Final = 5.0  # for what is cancelled when a polite stop takes too long
STOPPED: Final = 0
STOPPED_LATE: Final = 1


class ShutdownSignal:
    """Whether, and how urgently, the process is to end."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    def listen(self) -> None:
        """Take SIGTERM and SIGINT from here on."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal, number)

    def _on_signal(self, number: signal.Signals) -> None:
        if self.asked.is_set():
            _log.warning("%s again: ending at once", number.name)
            os._exit(128 + number)
        _log.info("%s: stopping; once more ends at once", number.name)
        self.asked.set()


async def serve(
    settings: ServeSettings,
    *,
    clock: Clock,
    random: Random,
    announce: Callable[[RunningServer], None],
    stop: ShutdownSignal,
) -> int:
    """Serve until told to stop; `announce` is called once everything listens. What prevents serving, or ends it, is raised."""
    listening = asyncio.Event()

    async def live() -> None:
        async with running_server(settings, clock=clock, random=random) as served:
            listening.set()
            announce(served)
            freeze_garbage_collector()
            await stop.asked.wait()

    life = asyncio.ensure_future(live())
    asked = asyncio.ensure_future(stop.asked.wait())
    try:
        await asyncio.wait({life, asked}, return_when=asyncio.FIRST_COMPLETED)
        if not listening.is_set() and not life.done():
            return STOPPED  # told to stop before anybody was served: there is nothing to be polite about
        await asyncio.wait({life}, timeout=settings.stop_ms / 1000)
        if life.done():
            life.result()
            _log.info("stopped")
            return STOPPED
        _log.warning("not finished after %d ms: the rest stays in the WAL for the next start", settings.stop_ms)
        return STOPPED_LATE
    finally:
        asked.cancel()
        if not life.done():
            life.cancel()
            await asyncio.wait({life}, timeout=_CANCEL_TIMEOUT_S)


def shorten_switch_interval() -> None:
    """Have a thread that waits for the interpreter get it soon: an acknowledgement comes from the WAL's thread to the loop."""
    sys.setswitchinterval(_SWITCH_INTERVAL_S)


def freeze_garbage_collector() -> None:
    """What is there once the server listens stays for good: the collector need not look at it again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GC_THRESHOLD, 20, 50)


def raise_open_file_limit() -> None:
    """Every connection is a file: have as many as the system lets us."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
