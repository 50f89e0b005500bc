"""PipelineService: the API that gateways call, below any protocol.

The one rule: the event loop never waits for a server. ClickHouse and Kafka are called in threads, with timeouts; the outcome is a
response (`responses`) or an error with a reason.

Its members: `catalog` (stored pipelines), `inspection` (samples, previews, validation, tables), `dead_letters` (the DLQ),
`reprocessing` (rewind, backfill) and `migration` (of tables). Parts from `catalog` hold secrets: show them `redacted`.
"""

import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Final, Self

from holdfast.client.broker_login import BrokerLogin
from holdfast.contracts.store import Store
from holdfast.pipeline.catalog.settings import CatalogSettings
from holdfast.pipeline.catalog.store import PipelineStore
from holdfast.pipeline.catalog.worker_status import SlotAssignment, WorkerRecord, list_assignments, list_workers
from holdfast.pipeline.model.definition import Pipeline
from holdfast.pipeline.model.secret_references import SecretReferences
from holdfast.pipeline.service import status
from holdfast.pipeline.service.connections import ServerConnections
from holdfast.pipeline.service.dead_letters import DeadLetterService
from holdfast.pipeline.service.inspection import PipelineInspection
from holdfast.pipeline.service.migration import TableMigration
from holdfast.pipeline.service.reprocessing import Reprocessing
from holdfast.pipeline.service.settings import ServiceSettings
from holdfast.pipeline.service.status import PipelineStatus
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import ClosedError, CorruptError, HoldfastError
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.tasks import background_tasks

_log: Final = logging.getLogger(__name__)


class PipelineService:
    """The pipelines of a cluster, as one process serves them. `running` adds the maintenance in the background."""

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock,
        random: Random,
        bootstrap: str = "",
        embedded: str = "",
        login: BrokerLogin | None = None,
        secrets: SecretReferences | None = None,
        settings: ServiceSettings | None = None,
        catalog: CatalogSettings | None = None,
    ) -> None:
        """`bootstrap`: the Kafka address of this cluster, with `login`; `embedded`: the URL of its own ClickHouse; `secrets`: what
        pipelines may refer to."""
        self.settings = settings or ServiceSettings()
        self._store, self._clock, self._random = store, clock, random
        self._connections = ServerConnections(
            bootstrap=bootstrap,
            embedded=embedded,
            clock=clock,
            settings=self.settings,
            login=login,
            secrets=secrets,
        )
        self.catalog = PipelineStore(
            store, clock=clock, random=random, settings=catalog, references=secrets.settings if secrets else None
        )
        self.inspection = PipelineInspection(self.catalog, self._connections)
        self.dead_letters = DeadLetterService(store, self.catalog, self._connections, clock=clock, random=random)
        self.reprocessing = Reprocessing(store, self.catalog, self._connections, self.dead_letters)
        self.migration = TableMigration(self.catalog, self._connections)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        """The service for the body, with maintenance in the background."""
        try:
            async with background_tasks(self._maintenance()):
                yield self
        finally:
            self._connections.close()

    # --- state

    async def start(self, pipeline_id: str, *, expected: int | None = None) -> Pipeline:
        """Have workers run it. `NotReadyError` lists what is missing."""
        return await self.catalog.set_state(pipeline_id, desired="started", expected=expected)

    async def stop(self, pipeline_id: str, *, expected: int | None = None) -> Pipeline:
        """Have workers finish their ranges and release it."""
        return await self.catalog.set_state(pipeline_id, desired="stopped", expected=expected)

    async def scale(self, pipeline_id: str, replicas: int, *, expected: int | None = None) -> Pipeline:
        """Set how many slots it has."""
        return await self.catalog.set_state(pipeline_id, replicas=replicas, expected=expected)

    async def status(self, pipeline_id: str) -> PipelineStatus:
        """Its status over all workers."""
        return await status.status_of(self._store, await self.catalog.get(pipeline_id))

    async def statuses(self) -> Sequence[PipelineStatus]:
        """The status of every pipeline, by name."""
        return await status.statuses_of(self._store, await self.catalog.list())

    async def assignments(self, pipeline_id: str) -> Sequence[SlotAssignment]:
        """The holder of each slot, and until when."""
        await self.catalog.get(pipeline_id)
        return await list_assignments(self._store, pipeline_id)

    async def workers(self) -> Sequence[WorkerRecord]:
        """Every live worker."""
        return await list_workers(self._store)

    # --- maintenance

    async def maintain(self) -> None:
        """One round: remove keys of deleted pipelines and rows that rewinds replace. Any number of processes may run it."""
        await self.catalog.sweep()
        for pipeline in await self.catalog.list():
            with _log_postponed(pipeline, "deletion of replaced rows"):
                if why := await self.reprocessing.delete_replaced(pipeline):
                    _log.debug("pipeline %s: deletion of replaced rows postponed: %s", pipeline.name, why)

    async def trim_dead_letters(self) -> None:
        """Trim every DLQ to `dlqRowsKept`. Any number of processes may run it."""
        for pipeline in await self.catalog.list():
            with _log_postponed(pipeline, "DLQ trim"):
                if gone := await self.dead_letters.trim(pipeline):
                    _log.info("pipeline %s: deleted %d dead letters beyond dlqRowsKept", pipeline.name, gone)

    async def _maintenance(self) -> None:
        trim_at_ms = self._clock.boot_ms() + self._random.jitter(self.settings.dlq_interval_ms)
        logged = ""  # an outage is logged once, however long it lasts
        while True:
            await self._clock.sleep_ms(self._random.jitter(self.settings.upkeep_interval_ms))
            try:
                await self.maintain()
                if self._clock.boot_ms() >= trim_at_ms:
                    trim_at_ms = self._clock.boot_ms() + self._random.jitter(self.settings.dlq_interval_ms)
                    await self.trim_dead_letters()
                logged = ""
            except ClosedError:
                raise
            except CorruptError:
                _log.exception("pipeline maintenance failed: stored state is corrupt")
            except HoldfastError as error:
                if str(error) != logged:
                    logged = str(error)
                    _log.warning("pipeline maintenance failed, retrying: %s", error)


@contextmanager
def _log_postponed(pipeline: Pipeline, what: str) -> Iterator[None]:
    """A failure for one pipeline does not affect the others: it is logged, and the next round retries."""
    try:
        yield
    except (ClosedError, CorruptError):
        raise
    except HoldfastError as error:
        _log.warning("pipeline %s: %s postponed: %s", pipeline.name, what, error)
