"""A worker's life: one session after another, a pass whenever something changed, and one Spark driver throughout.

The one rule: when the session is lost, everything here stops first, then it begins anew. The driver itself outlives sessions, and
acts only below the deadline it was last told, which counts from the send of the last renewal: cut off from the store, it stops by
itself before others may take over.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from holdfast.contracts.store import Store
from holdfast.kernel.session import HeldSession, hold_session
from holdfast.log.topics import Topics
from holdfast.pipeline.catalog.store import PipelineStore
from holdfast.pipeline.catalog.worker_status import WorkerRecord
from holdfast.pipeline.model.definition import KafkaConfig
from holdfast.pipeline.model.driver_protocol import DriverReady, FromDriver
from holdfast.pipeline.workers.cluster_view import ClusterView, watching_cluster
from holdfast.pipeline.workers.desired_slots import PartitionCounts
from holdfast.pipeline.workers.driver_supervisor import DriverSupervisor, StartDriver
from holdfast.pipeline.workers.generation_registry import GenerationRegistry
from holdfast.pipeline.workers.held_slots import HeldSlots
from holdfast.pipeline.workers.partition_count import count_partitions
from holdfast.pipeline.workers.reconciler import Reconciler
from holdfast.pipeline.workers.settings import WorkerSettings
from holdfast.pipeline.workers.status_publisher import StatusPublisher
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import ExpiredError, OutcomeUnknownError, UnavailableError
from holdfast.vocabulary.random import Random, backoff_ms
from holdfast.vocabulary.tasks import Notify, background_tasks

_log: Final = logging.getLogger(__name__)
_TICK_MS_MAX: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerIdentity:
    """Who a worker is."""

    id: str
    host: str
    pid: int
    version: str


class PipelineWorker:
    """One worker. Made by `working`."""

    def __init__(
        self,
        store: Store,
        *,
        about: WorkerIdentity,
        drive: StartDriver,
        settings: WorkerSettings,
        clock: Clock,
        random: Random,
    ) -> None:
        self.id, self._about = about.id, about
        self._store, self._settings, self._clock, self._random = store, settings, clock, random
        self._notify = Notify()
        self._stopping = False
        self._stopped = asyncio.Event()
        self._started_at_ms = clock.now_ms()
        self._catalog = PipelineStore(store, clock=clock, random=random)
        self._topics = Topics(store, clock=clock, random=random)
        self.reconciler: Reconciler | None = None
        self.keeper = DriverSupervisor(
            drive, hear=self._hear, on_death=self._driver_died, settings=settings, clock=clock, random=random
        )

    # --- life

    async def run(self) -> None:
        """Work until `stop` is asked, through lost sessions and dead drivers."""
        async with background_tasks(self.keeper.keep()):
            attempt = 0
            while not self._stopping:
                began_ms = self._clock.boot_ms()
                try:
                    async with hold_session(
                        self._store, clock=self._clock, random=self._random, settings=self._settings.session
                    ) as session:
                        await self._work(session)
                except (ExpiredError, UnavailableError, OutcomeUnknownError) as error:
                    lived_ms = self._clock.boot_ms() - began_ms
                    attempt = 0 if lived_ms > self._settings.lease_ttl_ms else attempt + 1
                    pause_ms = backoff_ms(attempt, base_ms=100, max_ms=5_000, random=self._random)
                    _log.warning(
                        "worker %s stopped everything and begins anew in %.0f ms: %s", self.id, pause_ms, error
                    )
                    _heed_cancellation()
                    await self._clock.sleep_ms(pause_ms)
            self.keeper.want(False)
            self.keeper.end_idle()
            while self.keeper.exists:
                await self._clock.sleep_ms(20)
        self._stopped.set()

    async def stop(self) -> None:
        """Let every run finish what is under way, give everything back, end the driver."""
        self._stopping = True
        if self.reconciler is not None:
            self.reconciler.stopping = True
        self._notify.notify()
        await self._stopped.wait()

    async def _work(self, session: HeldSession) -> None:
        async with watching_cluster(
            self._store, notify=self._notify, clock=self._clock, random=self._random
        ) as outlook:
            reconciler = self._reconciler(session, outlook)
            await self._announce(session, reconciler.record())
            self.reconciler = reconciler
            reconciler.stopping = self._stopping
            try:
                async with background_tasks(self._tick(session, reconciler)):
                    await self._reconcile_until_done(session, reconciler)
            finally:
                await reconciler.close()
                self.reconciler = None

    async def _reconcile_until_done(self, session: HeldSession, reconciler: Reconciler) -> None:
        failures = 0
        while not (self._stopping and not reconciler.runs and not reconciler.slots.held):
            wait_ms = self._random.jitter(self._settings.interval_ms)
            if reconciler.runs:
                wait_ms = min(wait_ms, self._settings.status_ms)
            try:
                await reconciler.reconcile()
                failures = 0
            except (UnavailableError, OutcomeUnknownError) as error:
                wait_ms = min(wait_ms, backoff_ms(failures, base_ms=50, max_ms=2_000, random=self._random))
                failures += 1
                _log.warning("worker %s looks again in %.0f ms: %s", self.id, wait_ms, error)
            if self.keeper.healthy:
                session.report_progress()
            if not (self._stopping and not reconciler.runs and not reconciler.slots.held):
                await self._notify.wait_ms(self._clock, reconciler.idle_ms(wait_ms))

    async def _tick(self, session: HeldSession, reconciler: Reconciler) -> None:
        """What must not wait for a slow store: the driver's liveness, and its news of later deadlines."""
        tick_ms = min(_TICK_MS_MAX, self._settings.alive_ms / 4, self._settings.lease_ttl_ms / 20)
        while True:
            reconciler.check_liveness()
            reconciler.send_claims()
            await self._clock.sleep_ms(tick_ms)

    async def _announce(self, session: HeldSession, record: WorkerRecord) -> None:
        """Take the worker's name; a namesake's session is waited for: most likely it is our own former life's."""
        said = False
        while not self._stopping and (namesake := await self._publisher.announce(record)) is not None:
            if not said:
                _log.warning("worker %s waits for session %s, which has its name, to end", self.id, namesake)
                said = True
            session.report_progress()
            await self._notify.wait_ms(self._clock, self._settings.interval_ms)

    def _reconciler(self, session: HeldSession, outlook: ClusterView) -> Reconciler:
        store, settings, clock, random = self._store, self._settings, self._clock, self._random
        self._publisher = StatusPublisher(store, session.id, clock=clock, random=random)
        about = WorkerRecord(
            id=self.id,
            host=self._about.host,
            pid=self._about.pid,
            version=self._about.version,
            mode="leases" if settings.leases else "no-leases",
            session=session.id,
            started_at_ms=self._started_at_ms,
            slots_per_pipeline_max=settings.slots_per_pipeline_max,
        )

        def new_registry(namespace: str, partitions: int) -> GenerationRegistry:
            return GenerationRegistry(
                store,
                namespace,
                partitions,
                notify=self._notify,
                clock=clock,
                random=random,
                ttl_ms=settings.lease_ttl_ms,
            )

        return Reconciler(
            about=about,
            session=session,
            outlook=outlook,
            slots=HeldSlots(
                store,
                worker_id=self.id,
                session=session,
                outlook=outlook,
                settings=settings,
                clock=clock,
                random=random,
            ),
            keeper=self.keeper,
            counts=PartitionCounts(
                store,
                source_of=self._source_of,
                count=self._count,
                leases=settings.leases,
                clock=clock,
                retry_ms=settings.interval_ms,
            ),
            catalog=self._catalog,
            publisher=self._publisher,
            new_registry=new_registry,
            settings=settings,
            notify=self._notify,
            clock=clock,
            random=random,
        )

    async def _source_of(self, pipeline_id: str, recipe: int) -> KafkaConfig:
        return (await self._catalog.revision(pipeline_id, recipe)).source

    async def _count(self, source: KafkaConfig) -> int:
        return await count_partitions(source, self._topics, clock=self._clock)

    # --- the driver

    def _hear(self, message: FromDriver) -> None:
        if isinstance(message, DriverReady):
            self.keeper.on_ready()
            _log.info("Spark %s is up", message.spark_version)
        if self.reconciler is not None:
            self.reconciler.heard(message)
        self._notify.notify()

    def _driver_died(self, why: str) -> None:
        if self.reconciler is not None:
            self.reconciler.driver_died(why)
        self._notify.notify()


def _heed_cancellation() -> None:
    """A task group that fails while its task is being cancelled raises its own error instead, and the request would be lost."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


@asynccontextmanager
async def running_worker(
    store: Store, *, about: WorkerIdentity, drive: StartDriver, settings: WorkerSettings, clock: Clock, random: Random
) -> AsyncIterator[PipelineWorker]:
    """A worker for the body. Leaving it politely gives everything back; cancelling it kills the driver."""
    worker = PipelineWorker(store, about=about, drive=drive, settings=settings, clock=clock, random=random)
    async with background_tasks(worker.run()):
        try:
            yield worker
            await worker.stop()
        except BaseException:
            worker.keeper.terminate("its worker was cancelled")
            raise
