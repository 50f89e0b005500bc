"""What a worker sees of the others: pipelines, who holds which slots, and live workers, kept in step by watches.

The one rule: a record that cannot be read is nobody's reason to stop: it is logged, and as if it were not there.
"""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec

from holdfast.contracts.store import Entry, Store
from holdfast.kernel.keys import HOLDERS
from holdfast.kernel.lease import Held, read_holder
from holdfast.kernel.mirror import Mirror, open_mirror
from holdfast.pipeline.catalog.encoding import pipeline_of
from holdfast.pipeline.catalog.keys import PIPELINES
from holdfast.pipeline.catalog.worker_status import SLOTS, WORKERS, WorkerRecord, read_worker, slot_of_resource
from holdfast.pipeline.model.definition import Pipeline
from holdfast.pipeline.workers.slot_assignment import SlotId
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import CorruptError
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.tasks import Notify

_log: Final = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The three mirrors. What they show may lag; whoever acts on it acts through a commit that checks."""

    _pipelines: Mirror[Pipeline | None]
    _holders: Mirror[Held | None]
    _workers: Mirror[WorkerRecord | None]

    def started(self) -> dict[str, Pipeline]:
        """Pipelines that are to run, and can."""
        there = (pipeline for pipeline in self._pipelines.items.values() if pipeline is not None)
        return {each.id: each for each in there if each.state.desired == "started" and each.revision > 0}

    def holders(self) -> dict[SlotId, Held]:
        """Who holds which slot."""
        return {SlotId(*slot_of_resource(held.resource)): held for held in self._holders.items.values() if held}

    def workers(self) -> dict[str, WorkerRecord]:
        """Who is alive."""
        return {worker.id: worker for worker in self._workers.items.values() if worker is not None}


@asynccontextmanager
async def watching_cluster(store: Store, *, notify: Notify, clock: Clock, random: Random) -> AsyncIterator[ClusterView]:
    """An outlook for the body; `bell` rings when something changes."""
    async with AsyncExitStack() as stack:

        async def mirror(prefix: str, read: Callable[[Entry], T]) -> Mirror[T | None]:
            return await stack.enter_async_context(
                open_mirror(store, prefix, _tolerant(read), clock=clock, random=random, notify=notify)
            )

        yield ClusterView(
            await mirror(PIPELINES, pipeline_of),
            await mirror(HOLDERS + SLOTS, _holder),
            await mirror(WORKERS, read_worker),
        )


def _holder(entry: Entry) -> Held:
    held = read_holder(entry)
    slot_of_resource(held.resource)
    return held


def _tolerant(read: Callable[[Entry], T]) -> Callable[[Entry], T | None]:
    def attempt(entry: Entry) -> T | None:
        try:
            return read(entry)
        except (CorruptError, msgspec.MsgspecError) as error:
            _log.error("%s cannot be read and is passed over: %s", entry.key, error)
            return None

    return attempt
