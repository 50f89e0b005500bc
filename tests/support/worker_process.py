"""A worker as a process of its own: `python worker_process.py STORE_URL NAME FOLDER TTL_MS`. Its driver is `fake_driver.py`.

It stops gracefully when its stdin ends.
"""

import asyncio
import logging
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from holdfast.pipeline.driver.settings import DriverStart, start_line
from holdfast.pipeline.model.driver_protocol import FromDriver
from holdfast.pipeline.workers.driver_process import DriverProcess, running_driver
from holdfast.pipeline.workers.settings import WorkerSettings
from holdfast.pipeline.workers.worker import WorkerIdentity, running_worker
from holdfast.stores.urls import open_store
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SystemRandom

FAKE_DRIVER = str(Path(__file__).with_name("fake_driver.py"))


def brief(ttl_ms: int) -> WorkerSettings:
    """Settings for tests that wait in real time."""
    return WorkerSettings(
        interval_ms=min(500, ttl_ms // 4),
        lease_ttl_ms=ttl_ms,
        margin_ms=ttl_ms // 10,
        settle_ms=500,
        alive_ms=3_000,
        start_ms=60_000,
        idle_ms=500,
        halt_ms=2_000,
        retry_base_ms=100,
        retry_max_ms=500,
        status_ms=200,
    )


async def main(url: str, name: str, folder: str, ttl_ms: str) -> None:
    clock, random = RealClock(), SystemRandom()
    identity = WorkerIdentity(id=name, host="here", pid=os.getpid(), version="0")
    first_line = start_line(DriverStart(store=url))
    async with (
        open_store(url, clock=clock, random=random) as store,
        running_worker(
            store,
            identity=identity,
            start_driver=lambda on_message: running_driver(
                clock=clock, first_line=first_line, on_message=on_message, command=(sys.executable, FAKE_DRIVER, folder)
            ),
            settings=brief(int(ttl_ms)),
            clock=clock,
            random=random,
        ),
    ):
        await asyncio.to_thread(sys.stdin.read)


@asynccontextmanager
async def fake_driver(folder: Path, said: list[FromDriver]) -> AsyncIterator[DriverProcess]:
    """`fake_driver.py` as a worker runs it; `said` gets its messages."""
    url = f"sqlite:///{folder}/store.db"
    command = (sys.executable, FAKE_DRIVER, str(folder))
    async with running_driver(
        clock=RealClock(), first_line=start_line(DriverStart(store=url)), on_message=said.append, command=command
    ) as made:
        yield made


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    asyncio.run(main(*sys.argv[1:]))
