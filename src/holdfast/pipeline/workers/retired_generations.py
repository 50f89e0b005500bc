"""Retired generations, adopted by whichever worker comes first.

The one rule: what is retired is still owned by somebody until its claims and intents are cleared. No worker runs a retired
generation, so nobody would take over from an owner that died in it; its intents would hold back retention for ever.
"""

import logging
from typing import Final

from holdfast.pipeline.catalog.store import PipelineStore
from holdfast.pipeline.workers.cluster_view import WorkerClusterView
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import CorruptError, InvalidError
from holdfast.vocabulary.random import Random

_log: Final = logging.getLogger(__name__)


class RetiredGenerations:
    """Of all pipelines, looked at every `interval_ms` or so."""

    def __init__(
        self, catalog: PipelineStore, view: WorkerClusterView, *, interval_ms: int, clock: Clock, random: Random
    ) -> None:
        self._catalog, self._view, self._interval_ms = catalog, view, interval_ms
        self._clock, self._random = clock, random
        self._due_ms = clock.boot_ms() + random.jitter(interval_ms)

    async def clear_when_due(self) -> None:
        """Clear what dead owners left. A malformed record concerns its own pipeline alone."""
        if self._clock.boot_ms() < self._due_ms:
            return
        self._due_ms = self._clock.boot_ms() + self._random.jitter(self._interval_ms)
        for pipeline in self._view.with_retired():
            try:
                await self._catalog.clear_retired(pipeline)
            except (CorruptError, InvalidError) as error:
                _log.error("pipeline %s: retired generations cannot be cleared: %s", pipeline.name, error)
