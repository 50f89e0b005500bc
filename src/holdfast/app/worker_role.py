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
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.import_lock import import_lock
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.tasks import background_tasks

if TYPE_CHECKING:
    from holdfast.pipeline.workers.driver_supervisor import StartDriver

_log: Final = logging.getLogger(__name__)
_REQUIRED_MODULES: Final = ("pyspark", "pyarrow", "pandas")


class WorkerRole:
    """The worker of this process, if it can have one. `stop` is asked before the faces close: its driver reads through them."""

    def __init__(self) -> None:
        self._stop_requested = asyncio.Event()
        self._done = asyncio.Event()

    async def stop(self) -> None:
        """Let slots finish what is under way, and give everything back."""
        self._stop_requested.set()
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
        random: Random,
    ) -> None:
        """Work until asked to stop."""
        try:
            why = _missing(settings)
            if why:
                _log.warning("no pipelines run here: %s", why)
                return
            # Off the loop: the first clients need not wait for what the first pipeline will need.
            await asyncio.to_thread(_import_off_loop, "holdfast.pipeline.workers.worker")
            from holdfast.pipeline.workers.worker import WorkerIdentity, running_worker

            about = WorkerIdentity(
                id=settings.worker.id or name, host=socket.gethostname(), pid=os.getpid(), version=__version__
            )
            drive = _driver_factory(settings, bootstrap=bootstrap, clickhouse=clickhouse, clock=clock)
            if settings.worker.no_leases:
                _log.warning(
                    "this worker runs without leases: one instance of every started pipeline, replicas ignored"
                )
            async with running_worker(
                store, about=about, drive=drive, settings=settings.worker, clock=clock, random=random
            ):
                await self._stop_requested.wait()
        finally:
            self._done.set()


def _import_off_loop(name: str) -> None:
    with import_lock:
        import_module(name)


def _missing(settings: ServeSettings) -> str:
    missing = [each for each in _REQUIRED_MODULES if find_spec(each) is None]
    if missing:
        return f"{', '.join(missing)} not installed; pip install 'holdfast[spark]' or leave the role worker out"
    if settings.store.startswith("memory:"):
        return "the store is this process's memory, which no Spark driver can reach"
    return ""


def _driver_factory(settings: ServeSettings, *, bootstrap: str, clickhouse: str, clock: Clock) -> "StartDriver":
    from holdfast.pipeline.driver.settings import DriverStart, SparkOptions, start_line
    from holdfast.pipeline.workers.driver_process import running_driver

    spark = settings.spark
    start = DriverStart(
        store=settings.store,
        objects=settings.objects,
        bootstrap=bootstrap,
        clickhouse=clickhouse,
        spark=SparkOptions(
            master=spark.master,
            remote=spark.remote,
            driver_memory=spark.driver_memory,
            java=spark.java,
            ui=spark.ui,
            quick_start=spark.quick_start,
            conf=dict(spark.conf),
        ),
    )
    return lambda hear: running_driver(clock=clock, first_line=start_line(start), hear=hear)


@asynccontextmanager
async def worker_role(
    settings: ServeSettings,
    *,
    name: str,
    bootstrap: str,
    store: Store,
    clock: Clock,
    random: Random,
    clickhouse: str = "",
) -> AsyncIterator[WorkerRole]:
    """The worker role for the body. `clickhouse` is the embedded one's URL, for sinks that name none."""
    role = WorkerRole()
    async with background_tasks(
        role.run(
            settings, name=name, bootstrap=bootstrap, clickhouse=clickhouse, store=store, clock=clock, random=random
        )
    ):
        yield role
