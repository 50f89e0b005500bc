"""The worker role of a server: composed here, run beside the faces, and never a reason for them to wait.

Nothing of Spark is imported in this process: pipelines run in a driver of their own, which is started when the first slot is taken.
"""

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from holdfast import __version__
from holdfast.app.config import ServeSettings
from holdfast.contracts.store import Store
from holdfast.vocabulary.clock import Chance, Clock
from holdfast.vocabulary.importing import importing
from holdfast.vocabulary.tasks import beside

if TYPE_CHECKING:
    from holdfast.pipeline.workers.keeper import Drive

_log: Final = logging.getLogger(__name__)
_NEEDED: Final = ("pyspark", "pyarrow", "pandas")


class WorkerRole:
    """The worker of this process, if it can have one. `stop` is asked before the faces close: its driver reads through them."""

    def __init__(self) -> None:
        self._asked = asyncio.Event()
        self._done = asyncio.Event()

    async def stop(self) -> None:
        """Let slots finish what is under way, and give everything back."""
        self._asked.set()
        await self._done.wait()

    async def run(
        self,
        settings: ServeSettings,
        *,
        name: str,
        bootstrap: str,
        clickhouse: str,
        store: Store,
        clock: Clock,
        chance: Chance,
    ) -> None:
        """Work until asked to stop."""
        try:
            why = _missing(settings)
            if why:
                _log.warning("no pipelines run here: %s", why)
                return
            # Off the loop: the first clients need not wait for what the first pipeline will need.
            await asyncio.to_thread(_imported, "holdfast.pipeline.workers.worker")
            from holdfast.pipeline.workers.worker import About, working

            about = About(
                id=settings.worker.id or name, host=socket.gethostname(), pid=os.getpid(), version=__version__
            )
            drive = _drive(settings, bootstrap=bootstrap, clickhouse=clickhouse, clock=clock)
            if settings.worker.no_leases:
                _log.warning(
                    "this worker runs without leases: one instance of every started pipeline, replicas ignored"
                )
            async with working(store, about=about, drive=drive, settings=settings.worker, clock=clock, chance=chance):
                await self._asked.wait()
        finally:
            self._done.set()


def _imported(name: str) -> None:
    with importing:
        import_module(name)


def _missing(settings: ServeSettings) -> str:
    missing = [each for each in _NEEDED if find_spec(each) is None]
    if missing:
        return f"{', '.join(missing)} not installed; pip install 'holdfast[spark]' or leave the role worker out"
    if settings.store.startswith("memory:"):
        return "the store is this process's memory, which no Spark driver can reach"
    return ""


def _drive(settings: ServeSettings, *, bootstrap: str, clickhouse: str, clock: Clock) -> "Drive":
    from holdfast.pipeline.driver.settings import SparkPart, Start, start_line
    from holdfast.pipeline.workers.driver_process import driving

    spark = settings.spark
    start = Start(
        store=settings.store,
        objects=settings.objects,
        bootstrap=bootstrap,
        clickhouse=clickhouse,
        spark=SparkPart(
            master=spark.master,
            remote=spark.remote,
            driver_memory=spark.driver_memory,
            java=spark.java,
            ui=spark.ui,
            quick_start=spark.quick_start,
            conf=dict(spark.conf),
        ),
    )
    return lambda hear: driving(clock=clock, first_line=start_line(start), hear=hear)


@asynccontextmanager
async def worker_role(
    settings: ServeSettings,
    *,
    name: str,
    bootstrap: str,
    store: Store,
    clock: Clock,
    chance: Chance,
    clickhouse: str = "",
) -> AsyncIterator[WorkerRole]:
    """The worker role for the body. `clickhouse` is the embedded one's URL, for sinks that name none."""
    role = WorkerRole()
    async with beside(
        role.run(
            settings, name=name, bootstrap=bootstrap, clickhouse=clickhouse, store=store, clock=clock, chance=chance
        )
    ):
        yield role
