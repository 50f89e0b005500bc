"""PipelineService: what HTTP and the command line call. Every question about pipelines is answered here, below any protocol.

The one rule: the event loop never waits for a server. ClickHouse and Kafka are asked in threads, with time limits; what they say is
turned into answers (`answers`) or errors with a reason.

The rooms: `catalog` (stored objects), `looking` (samples, previews, validation, tables), `letters` (the DLQ), `rewinds` (rewind,
backfill). Whoever shows a part shows it `shown`: without its secrets.
"""

import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Final, Self

from holdfast.contracts.store import Store
from holdfast.pipeline.catalog.settings import CatalogSettings, ServiceSettings
from holdfast.pipeline.catalog.store import PipelineStore
from holdfast.pipeline.catalog.worker_status import SlotAssignment, WorkerRecord, list_assignments, list_workers
from holdfast.pipeline.model.definition import Pipeline
from holdfast.pipeline.service import status
from holdfast.pipeline.service.connections import ServerConnections
from holdfast.pipeline.service.dead_letters import DeadLetterService
from holdfast.pipeline.service.inspection import PipelineInspection
from holdfast.pipeline.service.reprocessing import Reprocessing
from holdfast.pipeline.service.status import PipelineStatus
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import ClosedError, CorruptError, HoldfastError
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.tasks import background_tasks

_log: Final = logging.getLogger(__name__)


class PipelineService:
    """The pipelines of a cluster, as one process serves them. `running` does what goes on by itself."""

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock,
        random: Random,
        bootstrap: str = "",
        embedded: str = "",
        settings: ServiceSettings | None = None,
        catalog: CatalogSettings | None = None,
    ) -> None:
        """`bootstrap` is where this cluster speaks Kafka; `embedded` is the URL of its own ClickHouse."""
        self.settings = settings or ServiceSettings()
        self._store, self._clock, self._random = store, clock, random
        self._connections = ServerConnections(
            bootstrap=bootstrap, embedded=embedded, clock=clock, settings=self.settings
        )
        self.catalog = PipelineStore(store, clock=clock, random=random, settings=catalog)
        self.looking = PipelineInspection(self.catalog, self._connections)
        self.letters = DeadLetterService(store, self.catalog, self._connections, clock=clock, random=random)
        self.rewinds = Reprocessing(store, self.catalog, self._connections)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        """The service for the body; beside it, what deleted pipelines and rewinds leave to be removed is removed."""
        try:
            async with background_tasks(self._upkeep()):
                yield self
        finally:
            self._connections.close()

    # --- state

    async def start(self, pipeline_id: str, *, expected: int | None = None) -> Pipeline:
        """Workers run it from now on. `NotReadyError` lists what is missing."""
        return await self.catalog.set_state(pipeline_id, desired="started", expected=expected)

    async def stop(self, pipeline_id: str, *, expected: int | None = None) -> Pipeline:
        """Workers finish what is under way and let it go."""
        return await self.catalog.set_state(pipeline_id, desired="stopped", expected=expected)

    async def scale(self, pipeline_id: str, replicas: int, *, expected: int | None = None) -> Pipeline:
        """How many slots it has."""
        return await self.catalog.set_state(pipeline_id, replicas=replicas, expected=expected)

    async def status(self, pipeline_id: str) -> PipelineStatus:
        """What it does now, over all workers."""
        return await status.status_of(self._store, await self.catalog.get(pipeline_id))

    async def statuses(self) -> Sequence[PipelineStatus]:
        """The same of all pipelines, by name."""
        return await status.statuses_of(self._store, await self.catalog.list())

    async def assignments(self, pipeline_id: str) -> Sequence[SlotAssignment]:
        """Who holds which slot, and until when."""
        await self.catalog.get(pipeline_id)
        return await list_assignments(self._store, pipeline_id)

    async def workers(self) -> Sequence[WorkerRecord]:
        """Every live worker."""
        return await list_workers(self._store)

    # --- what goes on by itself

    async def upkeep(self) -> None:
        """One round: what deleted pipelines left behind, and rows that rewinds replace. Any number of processes may do it."""
        await self.catalog.sweep()
        for pipeline in await self.catalog.list():
            with _log_postponed(pipeline, "what was replaced is deleted"):
                if why := await self.rewinds.delete_replaced(pipeline):
                    _log.debug("pipeline %s: what was replaced stays for now: %s", pipeline.name, why)

    async def trim_dead_letters(self) -> None:
        """Cut every DLQ to the length that is kept. Any number of processes may do it."""
        for pipeline in await self.catalog.list():
            with _log_postponed(pipeline, "the DLQ is cut"):
                if gone := await self.letters.trim(pipeline):
                    _log.info("pipeline %s: %d dead letters were more than are kept", pipeline.name, gone)

    async def _upkeep(self) -> None:
        trim_at_ms = self._clock.boot_ms() + self._random.jitter(self.settings.dlq_interval_ms)
        while True:
            await self._clock.sleep_ms(self._random.jitter(self.settings.upkeep_interval_ms))
            try:
                await self.upkeep()
                if self._clock.boot_ms() >= trim_at_ms:
                    trim_at_ms = self._clock.boot_ms() + self._random.jitter(self.settings.dlq_interval_ms)
                    await self.trim_dead_letters()
            except ClosedError:
                raise
            except CorruptError:
                _log.exception("the upkeep of pipelines failed, and will until somebody has looked at it")
            except HoldfastError as error:
                _log.warning("the upkeep of pipelines is tried again later: %s", error)


@contextmanager
def _log_postponed(pipeline: Pipeline, what: str) -> Iterator[None]:
    """One pipeline's trouble is no other's: it is said, and tried again with the next round."""
    try:
        yield
    except (ClosedError, CorruptError):
        raise
    except HoldfastError as error:
        _log.warning("pipeline %s: %s later: %s", pipeline.name, what, error)
