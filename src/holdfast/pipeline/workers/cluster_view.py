"""A worker's view of the cluster: pipelines, holders of slots, and live workers, kept current by watches.

The one rule: a malformed record stops no worker: it is logged and ignored.
"""

import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec

from holdfast.contracts.store import Entry, Store
from holdfast.kernel.keys import HOLDERS
from holdfast.kernel.lease import Held, read_holder
from holdfast.kernel.mirror import Mirror, open_mirror
from holdfast.pipeline.catalog.keys import PIPELINES
from holdfast.pipeline.catalog.stored_parts import pipeline_of
from holdfast.pipeline.catalog.worker_status import SLOTS, WORKERS, WorkerRecord, read_worker, slot_of_resource
from holdfast.pipeline.model.definition import Pipeline, active_generations
from holdfast.pipeline.workers.slot_assignment import SlotId
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import CorruptError
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.tasks import Notify

_log: Final = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class WorkerClusterView:
    """The three mirrors. They may lag: whatever is decided from them is done by a commit that checks."""

    _pipelines: Mirror[Pipeline | None]
    _holders: Mirror[Held | None]
    _workers: Mirror[WorkerRecord | None]

    def started(self) -> dict[str, Pipeline]:
        """Pipelines that are started and complete."""
        return {each.id: each for each in self._readable() if each.state.desired == "started" and each.revision > 0}

    def with_retired(self) -> list[Pipeline]:
        """Pipelines that had generations before those they run, started or not."""
        return [each for each in self._readable() if each.generations[-1].number > len(active_generations(each))]

    def name_of(self, pipeline_id: str) -> str:
        """A pipeline's name, for log lines; the id of one that was deleted."""
        return next((each.name for each in self._readable() if each.id == pipeline_id), pipeline_id)

    def _readable(self) -> Iterator[Pipeline]:
        return (each for each in self._pipelines.items.values() if each is not None)

    def holders(self) -> dict[SlotId, Held]:
        """The holders of slots."""
        return {SlotId(*slot_of_resource(held.resource)): held for held in self._holders.items.values() if held}

    def workers(self) -> dict[str, WorkerRecord]:
        """Live workers, by id."""
        return {worker.id: worker for worker in self._workers.items.values() if worker is not None}


@asynccontextmanager
async def watching_cluster(
    store: Store, *, notify: Notify, clock: Clock, random: Random
) -> AsyncIterator[WorkerClusterView]:
    """A view for the body; `notify` is notified of every change."""
    async with AsyncExitStack() as stack:

        async def mirror(prefix: str, read: Callable[[Entry], T]) -> Mirror[T | None]:
            return await stack.enter_async_context(
                open_mirror(store, prefix, _tolerant(read), clock=clock, random=random, notify=notify)
            )

        yield WorkerClusterView(
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
            _log.error("malformed record %s ignored: %s", entry.key, error)
            return None

    return attempt
