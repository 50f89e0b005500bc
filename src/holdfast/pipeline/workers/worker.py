"""A worker's life: one session after another, a reconciliation after every change, and one Spark driver throughout.

The one rule: when the session is lost, every run stops before the worker rejoins. The driver outlives sessions and works only until
the deadline of its last claims, which counts from when the last renewal was sent: cut off from the store, it stops by itself before
others may take over.
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
from holdfast.pipeline.model.secret_references import SecretReferences
from holdfast.pipeline.workers.cluster_view import WorkerClusterView, watching_cluster
from holdfast.pipeline.workers.desired_slots import PartitionCounts
from holdfast.pipeline.workers.driver_supervisor import DriverSupervisor, StartDriver
from holdfast.pipeline.workers.generation_registry import GenerationRegistry
from holdfast.pipeline.workers.held_slots import HeldSlots
from holdfast.pipeline.workers.partition_count import count_partitions
from holdfast.pipeline.workers.reconciler import Reconciler
from holdfast.pipeline.workers.settings import WorkerSettings
from holdfast.pipeline.workers.status_publisher import StatusPublisher
from holdfast.pipeline.workers.stream_leftovers import StreamLeftovers
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import ExpiredError, HoldfastError, OutcomeUnknownError, UnavailableError
from holdfast.vocabulary.random import Random, backoff_ms
from holdfast.vocabulary.tasks import Notify, background_tasks, leaf_errors, raise_if_cancelled

_log: Final = logging.getLogger(__name__)
_TICK_MS_MAX: Final = 1_000
_REJOIN_ON: Final = (ExpiredError, UnavailableError, OutcomeUnknownError)  # with a new session


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerIdentity:
    """The identity of a worker process."""

    id: str
    host: str
    pid: int
    version: str


class PipelineWorker:
    """One worker. Made by `running_worker`."""

    def __init__(
        self,
        store: Store,
        *,
        identity: WorkerIdentity,
        start_driver: StartDriver,
        settings: WorkerSettings,
        clock: Clock,
        random: Random,
        leftovers: StreamLeftovers | None = None,
        secrets: SecretReferences | None = None,
    ) -> None:
        self._secrets = secrets or SecretReferences()
        self.id, self._identity = identity.id, identity
        self._store, self._settings, self._clock, self._random = store, settings, clock, random
        self._notify = Notify()
        self._leftovers = leftovers
        self._stopping = False
        self._stopped = asyncio.Event()
        self._started_at_ms = clock.now_ms()
        self._catalog = PipelineStore(store, clock=clock, random=random)
        self._topics = Topics(store, clock=clock, random=random)
        self.reconciler: Reconciler | None = None
        self.supervisor = DriverSupervisor(
            start_driver,
            on_message=self._on_message,
            on_death=self._on_driver_death,
            settings=settings,
            clock=clock,
            random=random,
        )

    # --- life

    async def run(self) -> None:
        """Work until `stop`, through lost sessions and dead drivers."""
        upkeep = () if self._leftovers is None else (self._leftovers.run(),)
        async with background_tasks(self.supervisor.run(), *upkeep):
            attempt, logged = 0, ""  # an outage is logged once, however often joining is tried
            while not self._stopping:
                began_ms, joined = self._clock.boot_ms(), False
                try:
                    async with hold_session(
                        self._store, clock=self._clock, random=self._random, settings=self._settings.session
                    ) as session:
                        joined = True
                        await self._work(session)
                except (HoldfastError, BaseExceptionGroup) as error:
                    raise_if_cancelled()
                    leaves = list(leaf_errors(error))
                    if not all(isinstance(each, _REJOIN_ON) for each in leaves):
                        raise
                    reason = "; ".join(dict.fromkeys(map(str, leaves)))
                    lived_ms = self._clock.boot_ms() - began_ms
                    attempt = 0 if lived_ms > self._settings.lease_ttl_ms else attempt + 1
                    pause_ms = backoff_ms(attempt, base_ms=100, max_ms=5_000, random=self._random)
                    if joined:
                        logged = ""
                        _log.warning("worker %s lost its session, rejoining: %s", self.id, reason)
                    elif reason != logged:
                        logged = reason
                        _log.warning("worker %s cannot join, retrying: %s", self.id, reason)
                    await self._clock.sleep_ms(pause_ms)
            self.supervisor.need(False)
            self.supervisor.stop_now()
            while self.supervisor.exists:
                await self._clock.sleep_ms(20)
        self._stopped.set()

    async def stop(self) -> None:
        """Let every run finish its batch, release everything, stop the driver."""
        self._stopping = True
        if self.reconciler is not None:
            self.reconciler.stopping = True
        self._notify.notify()
        await self._stopped.wait()

    async def _work(self, session: HeldSession) -> None:
        async with watching_cluster(self._store, notify=self._notify, clock=self._clock, random=self._random) as view:
            reconciler = self._reconciler(session, view)
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
                _log.warning("worker %s: store unavailable, retrying in %.0f ms: %s", self.id, wait_ms, error)
            if self.supervisor.healthy:
                session.report_progress()
            if not (self._stopping and not reconciler.runs and not reconciler.slots.held):
                await self._notify.wait_ms(self._clock, reconciler.idle_ms(wait_ms))

    async def _tick(self, session: HeldSession, reconciler: Reconciler) -> None:
        """What must not wait for a slow store: the driver's liveness checks and renewed claims."""
        tick_ms = min(_TICK_MS_MAX, self._settings.alive_ms / 4, self._settings.lease_ttl_ms / 20)
        while True:
            reconciler.check_liveness()
            reconciler.send_claims()
            await self._clock.sleep_ms(tick_ms)

    async def _announce(self, session: HeldSession, record: WorkerRecord) -> None:
        """Register the worker's name. A session that has it is waited for: most likely it is this worker's, before a restart."""
        logged = False
        while not self._stopping and (other := await self._publisher.announce(record)) is not None:
            if not logged:
                _log.warning("worker %s: session %s has this name, waiting until it expires", self.id, other)
                logged = True
            session.report_progress()
            await self._notify.wait_ms(self._clock, self._settings.interval_ms)

    def _reconciler(self, session: HeldSession, view: WorkerClusterView) -> Reconciler:
        store, settings, clock, random = self._store, self._settings, self._clock, self._random
        self._publisher = StatusPublisher(store, session.id, clock=clock, random=random)
        record = WorkerRecord(
            id=self.id,
            host=self._identity.host,
            pid=self._identity.pid,
            version=self._identity.version,
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
            record=record,
            session=session,
            view=view,
            slots=HeldSlots(
                store,
                worker_id=self.id,
                session=session,
                view=view,
                settings=settings,
                clock=clock,
                random=random,
            ),
            supervisor=self.supervisor,
            counts=PartitionCounts(
                store,
                source_of=self._source_of,
                count=self._count,
                leases=settings.leases,
                notify=self._notify,
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

    async def _source_of(self, pipeline_id: str, revision: int) -> KafkaConfig:
        return (await self._catalog.revision(pipeline_id, revision)).source

    async def _count(self, source: KafkaConfig) -> int:
        return await count_partitions(source, self._topics, clock=self._clock, secrets=self._secrets)

    # --- the driver

    def _on_message(self, message: FromDriver) -> None:
        if isinstance(message, DriverReady):
            self.supervisor.on_ready()
            _log.info("Spark driver ready: Spark %s", message.spark_version)
        if self.reconciler is not None:
            self.reconciler.on_message(message)
        self._notify.notify()

    def _on_driver_death(self, why: str) -> None:
        if self.reconciler is not None:
            self.reconciler.on_driver_death(why)
        self._notify.notify()


@asynccontextmanager
async def running_worker(
    store: Store,
    *,
    identity: WorkerIdentity,
    start_driver: StartDriver,
    settings: WorkerSettings,
    clock: Clock,
    random: Random,
    leftovers: StreamLeftovers | None = None,
    secrets: SecretReferences | None = None,
) -> AsyncIterator[PipelineWorker]:
    """A worker for the body. Leaving it stops gracefully and releases everything; cancelling it kills the driver."""
    worker = PipelineWorker(
        store,
        identity=identity,
        start_driver=start_driver,
        settings=settings,
        clock=clock,
        random=random,
        leftovers=leftovers,
        secrets=secrets,
    )
    async with background_tasks(worker.run()):
        try:
            yield worker
            await worker.stop()
        except BaseException:
            worker.supervisor.terminate("the worker was cancelled")
            raise
