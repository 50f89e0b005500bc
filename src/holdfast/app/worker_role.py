"""The worker role of a server: composed here, run in the background; the gateways never wait for it.

Nothing of Spark is imported in this process: pipelines run in a driver process, which is started with the first slot.
"""

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast import __version__
from holdfast.app.config import WORKER, ServeSettings
from holdfast.app.embedded_etcd.place import opened_store_url
from holdfast.app.master_keys import master_key_text
from holdfast.client.broker_login import BrokerLogin
from holdfast.contracts.store import Store
from holdfast.pipeline.model.secret_references import SecretReferences
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.import_lock import import_lock
from holdfast.vocabulary.installation import install_hint
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.tasks import background_tasks

if TYPE_CHECKING:
    from holdfast.pipeline.driver.settings import DriverLogin
    from holdfast.pipeline.workers.driver_supervisor import StartDriver

_log: Final = logging.getLogger(__name__)
_REQUIRED_MODULES: Final = ("pyspark", "pyarrow", "pandas")


class WorkerRole:
    """The worker of this process. `stop` is called before the gateways close: the driver reads through them."""

    def __init__(self) -> None:
        self._stop_requested = asyncio.Event()
        self._done = asyncio.Event()

    async def stop(self) -> None:
        """Finish batches in flight and release every slot."""
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
        login: BrokerLogin | None,
    ) -> None:
        """Run until `stop`."""
        try:
            if why := why_no_worker(settings):
                _log.warning("worker role disabled: %s", why)
                return
            # Off the loop: the first clients need not wait for imports that only pipelines need.
            await asyncio.to_thread(_import_off_loop, "holdfast.pipeline.workers.worker")
            from holdfast.pipeline.workers.stream_leftovers import StreamLeftovers
            from holdfast.pipeline.workers.worker import WorkerIdentity, running_worker

            identity = WorkerIdentity(
                id=settings.worker.id or name, host=socket.gethostname(), pid=os.getpid(), version=__version__
            )
            start_driver = _driver_factory(
                settings, bootstrap=bootstrap, login=login, clickhouse=clickhouse, clock=clock
            )
            if settings.worker.no_leases:
                _log.warning("running without leases: one instance of every started pipeline, replicas ignored")
            async with running_worker(
                store,
                identity=identity,
                start_driver=start_driver,
                settings=settings.worker,
                clock=clock,
                random=random,
                secrets=secret_references(settings),
                leftovers=StreamLeftovers(
                    store,
                    objects=settings.objects,
                    checkpoints=settings.worker.checkpoints,
                    interval_ms=settings.worker.leftovers_interval_ms,
                    clock=clock,
                    random=random,
                ),
            ):
                await self._stop_requested.wait()
        finally:
            self._done.set()


def secret_references(settings: ServeSettings) -> SecretReferences:
    """What pipelines may refer to, with the variables of this process."""
    return SecretReferences(settings=settings.pipelines, environment=os.environ)  # noqa: TID251 (for references alone)


def _import_off_loop(name: str) -> None:
    with import_lock:
        import_module(name)


def why_no_worker(settings: ServeSettings) -> str:
    """Why this process runs no pipelines, and the remedy; empty: it does."""
    if WORKER not in settings.roles:
        return "--roles does not include worker"
    missing = [each for each in _REQUIRED_MODULES if find_spec(each) is None]
    if missing:
        return f"{', '.join(missing)} not installed; to run pipelines here: {install_hint('spark')}"
    if settings.store.startswith("memory:"):
        return "the store is in this process's memory, which the Spark driver cannot reach: give another --store"
    return ""


def _driver_factory(
    settings: ServeSettings, *, bootstrap: str, login: BrokerLogin | None, clickhouse: str, clock: Clock
) -> "StartDriver":
    from holdfast.pipeline.driver.settings import DriverStart, SparkOptions, start_line
    from holdfast.pipeline.sinks.roots import parse_roots
    from holdfast.pipeline.workers.driver_process import running_driver

    spark = settings.spark
    start = DriverStart(
        store=opened_store_url(settings),
        objects=settings.objects,
        bootstrap=bootstrap,
        login=_driver_login(login),
        clickhouse=clickhouse,
        sink_roots=parse_roots(settings.worker.sink_roots),
        checkpoints=settings.worker.checkpoints,
        python_queries=settings.worker.python_queries,
        spark=SparkOptions(
            master=spark.master,
            remote=spark.remote,
            driver_memory=spark.driver_memory,
            java=spark.java,
            ui=spark.ui,
            quick_start=spark.quick_start,
            executor_python=spark.executor_python,
            archives=spark.archives,
            conf=dict(spark.conf),
        ),
        log_level=settings.log_level,
        env_prefix=settings.pipelines.env_prefix,
        secret_dir=settings.pipelines.secret_dir,
        master_keys=master_key_text(settings),
    )
    return lambda on_message: running_driver(clock=clock, first_line=start_line(start), on_message=on_message)


def _driver_login(login: BrokerLogin | None) -> "DriverLogin | None":
    from holdfast.pipeline.driver.settings import DriverLogin

    if login is None:
        return None
    return DriverLogin(
        mechanism=login.mechanism,
        user=login.user,
        password=login.password,
        ca=_absolute(login.ca),
        certificate=_absolute(login.certificate),
        key=_absolute(login.key),
    )


def _absolute(file: str) -> str:
    """Executors have a working directory of their own."""
    return str(Path(file).absolute()) if file else ""


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
    login: BrokerLogin | None = None,
) -> AsyncIterator[WorkerRole]:
    """The worker role, for the body. `clickhouse`: the URL for sinks that name none. `login`: the node's, at `bootstrap`."""
    role = WorkerRole()
    async with background_tasks(
        role.run(
            settings,
            name=name,
            bootstrap=bootstrap,
            clickhouse=clickhouse,
            store=store,
            clock=clock,
            random=random,
            login=login,
        )
    ):
        yield role
