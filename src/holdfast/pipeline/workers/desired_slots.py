"""How many slots each started pipeline should have, which depends on its number of partitions.

A pipeline whose partitions cannot be counted gets one slot, so that its status shows why. Nobody waits for another Kafka: it is
asked in the background, and may not respond.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from holdfast.contracts.store import Store
from holdfast.pipeline.model.definition import KafkaConfig, Pipeline, active_generations
from holdfast.pipeline.model.query import STREAMING
from holdfast.pipeline.workers.generation_registry import stored_count
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import CorruptError, HoldfastError, InvalidError, UnavailableError
from holdfast.vocabulary.tasks import Notify

_log: Final = logging.getLogger(__name__)

SourceLookup = Callable[[str, int], Awaitable[KafkaConfig]]
QUERY_PARTITIONS: Final = 1
"""Of a streaming query: one slot owns it, under one claim, whatever its sources have."""
PartitionCounter = Callable[[KafkaConfig], Awaitable[int]]
_COUNTED_AT_ONCE_MAX: Final = 4
"""Sources elsewhere. Each takes a thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredSlots:
    """The desired slots of every started pipeline."""

    slots: Mapping[str, int] = field(default_factory=dict)
    partitions: Mapping[tuple[str, int], int] = field(default_factory=dict)
    """By pipeline and generation, as far as known."""
    blocked: Mapping[str, str] = field(default_factory=dict)
    """Why the partitions of a pipeline's source cannot be counted."""
    warnings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class PartitionCounts:
    """Caches counts, and looks at them again once in a while: all workers must come to the same number of slots.

    A live generation grows with its source, as drivers see it. A backfill does not: what is written to new partitions is read by
    the live generation.
    """

    def __init__(
        self,
        store: Store,
        *,
        source_of: SourceLookup,
        count: PartitionCounter,
        leases: bool,
        notify: Notify,
        clock: Clock,
        retry_ms: int,
    ) -> None:
        self._store, self._source_of, self._count = store, source_of, count
        self._leases, self._notify, self._clock, self._retry_ms = leases, notify, clock, retry_ms
        self._counting: dict[tuple[str, int], asyncio.Task[int | HoldfastError]] = {}  # by pipeline and revision
        self._may_count = asyncio.Semaphore(_COUNTED_AT_ONCE_MAX)
        self._known: dict[tuple[str, int], int] = {}
        self._seen: dict[tuple[str, int], int] = {}  # by drivers, in the source
        self._again_at_ms: dict[tuple[str, int], int] = {}  # when others may have added partitions
        self._blocked: dict[str, tuple[str, int]] = {}  # why, and when to retry
        self._logged: dict[str, tuple[str, ...]] = {}

    async def desired(self, started: Mapping[str, Pipeline]) -> DesiredSlots:
        """The desired slots now. An unreachable store is an `UnavailableError`; an unreachable source blocks its own pipeline."""
        live = {(each.id, generation.number) for each in started.values() for generation in active_generations(each)}
        self._known = {key: count for key, count in self._known.items() if key in live}
        self._seen = {key: count for key, count in self._seen.items() if key in live}
        self._again_at_ms = {key: at_ms for key, at_ms in self._again_at_ms.items() if key in live}
        self._blocked = {each: why for each, why in self._blocked.items() if each in started}
        for key in [key for key in self._counting if key[0] not in started or started[key[0]].revision != key[1]]:
            self._counting.pop(key).cancel()
        slots, warnings = {}, {}
        for each in started.values():
            for generation in active_generations(each):
                await self._count_partitions(each, generation.number)
                key = (each.id, generation.number)
                if key in self._known and generation.kind == "live":
                    self._known[key] = max(self._known[key], self._seen.get(key, 0))
            counts = [count for (pipeline_id, _), count in self._known.items() if pipeline_id == each.id]
            slots[each.id], warnings[each.id] = self._slots(each, max(counts, default=0))
        self._log_warnings(started, warnings)
        blocked = {each: why for each, (why, _) in self._blocked.items()}
        return DesiredSlots(slots=slots, partitions=dict(self._known), blocked=blocked, warnings=warnings)

    def seen(self, pipeline_id: str, generation: int, count: int) -> bool:
        """A driver found so many partitions in the source; whether these are more than before."""
        key = (pipeline_id, generation)
        grown = count > max(self._seen.get(key, 0), self._known.get(key, count))
        self._seen[key] = max(count, self._seen.get(key, 0))
        return grown

    async def close(self) -> None:
        """Stop counting."""
        counting, self._counting = self._counting, {}
        for each in counting.values():
            each.cancel()
        await asyncio.gather(*counting.values(), return_exceptions=True)

    async def _count_partitions(self, pipeline: Pipeline, generation: int) -> None:
        key, now_ms = (pipeline.id, generation), self._clock.boot_ms()
        if key in self._known and now_ms < self._again_at_ms[key]:
            return
        if now_ms < self._blocked.get(pipeline.id, ("", 0))[1]:
            return
        try:
            stored = await stored_count(self._store, pipeline.id, generation)
            if stored is None:
                stored = await self._count_source(pipeline)
        except (InvalidError, CorruptError) as error:
            self._blocked[pipeline.id] = (str(error), self._clock.boot_ms() + self._retry_ms)
            return
        if stored is None:
            self._blocked.setdefault(pipeline.id, ("the partitions of its source are being counted", 0))
            return
        self._blocked.pop(pipeline.id, None)
        self._known[key], self._again_at_ms[key] = max(stored, self._known.get(key, 0)), now_ms + self._retry_ms

    async def _count_source(self, pipeline: Pipeline) -> int | None:
        """None: it is being counted."""
        if pipeline.engine == STREAMING:
            return QUERY_PARTITIONS
        key = (pipeline.id, pipeline.revision)
        if key not in self._counting:
            source = await self._source_of(*key)
            if not source.brokers:
                return await self._count(source)
            self._counting[key] = asyncio.create_task(self._count_elsewhere(source))
        if not self._counting[key].done():
            return None
        found = self._counting.pop(key).result()
        if isinstance(found, HoldfastError):
            raise found
        return found

    async def _count_elsewhere(self, source: KafkaConfig) -> int | HoldfastError:
        """The partitions of a topic of another Kafka; an error blocks this pipeline, not the worker."""
        try:
            async with self._may_count:
                return await self._count(source)
        except UnavailableError as error:
            return InvalidError("source", ",".join(source.brokers), f"reachable brokers ({error})")
        except HoldfastError as error:
            return error
        finally:
            self._notify.notify()

    def _slots(self, pipeline: Pipeline, partitions: int) -> tuple[int, tuple[str, ...]]:
        replicas = pipeline.state.replicas
        if not self._leases:
            ignored = f"replicas {replicas} ignored: workers without leases run one instance each"
            return 1, (ignored,) if replicas != 1 else ()
        if partitions and replicas > partitions:
            capped = f"replicas {replicas} capped at {partitions}, the partitions of the source"
            if pipeline.engine == STREAMING:
                capped = f"replicas {replicas} is ignored: a query runs in one slot"
            return partitions, (capped,)
        return (replicas if partitions else 1), ()

    def _log_warnings(self, started: Mapping[str, Pipeline], warnings: Mapping[str, tuple[str, ...]]) -> None:
        for each, texts in warnings.items():
            if texts != self._logged.get(each, ()):
                for warning in texts:
                    _log.warning("pipeline %s: %s", started[each].name, warning)
        self._logged = dict(warnings)
