"""The registry of a generation: watched; its partitions assigned, claimed and released.

Not the coordinator and engine of `holdfast.registry`: those push single messages to handlers in their own process and renew every
partition by itself. Here a driver in another process works in ranges and reports when it has released a partition. All claims are
under the worker's one session, so that a thousand partitions cost one keep-alive and expire with the worker. The consumers are
known by the slots' leases and do not register.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from typing import Final

from holdfast.contracts.store import Session, Store
from holdfast.pipeline.model.definition import Generation, registry_namespace
from holdfast.pipeline.workers.partition_assignment import PlannedClaim, assign_partitions
from holdfast.pipeline.workers.slot_run import SlotRun
from holdfast.registry import PartitionState, RegistrySettings, RegistryStore, RegistryView
from holdfast.registry.growth import ensure_partitions
from holdfast.registry.queries import partition_count
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import HoldfastError
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.tasks import Notify

_log: Final = logging.getLogger(__name__)


NewRegistry = Callable[[str, int], "GenerationRegistry"]


async def stored_count(store: Store, pipeline_id: str, generation: int) -> int | None:
    """How many partitions a generation's registry has; None before there is one."""
    return await partition_count(store, registry_namespace(pipeline_id, generation))


class GenerationRegistry:
    """The registry of one generation, followed while the worker has a run in it."""

    def __init__(
        self,
        store: Store,
        namespace: str,
        partitions: int,
        *,
        notify: Notify,
        clock: Clock,
        random: Random,
        ttl_ms: int,
    ) -> None:
        settings = RegistrySettings(namespace=namespace, partitions=partitions, ttl_ms=ttl_ms)
        self.registry = RegistryStore(store, clock=clock, random=random, settings=settings)
        self._store, self._namespace, self._clock, self._random = store, namespace, clock, random
        self._partitions = partitions
        self._notify = notify
        self._view: RegistryView | None = None
        self._released: dict[int, int] = {}  # the highest epoch released: a view that lags must not bring it back
        self._following = asyncio.ensure_future(self._follow())

    def follow(self) -> None:
        """Watch it again, after a failure."""
        self._following = asyncio.ensure_future(self._follow())

    async def close(self) -> None:
        """Stop watching."""
        self._following.cancel()
        await asyncio.gather(self._following, return_exceptions=True)

    @property
    def failure(self) -> str:
        """Why it is not watched any more; empty: it is."""
        if not self._following.done() or self._following.cancelled():
            return ""
        return str(self._following.exception() or "the watch ended")

    async def _follow(self) -> None:
        await self._make(self._partitions)
        async with aclosing(self.registry.watch()) as views:
            async for view in views:
                self._view = view
                self._notify.notify()

    async def grow(self, partitions: int) -> None:
        """Add partitions, if it has fewer than these."""
        if partitions > self._partitions:
            await self._make(partitions)

    async def _make(self, partitions: int) -> None:
        store, clock, random = self._store, self._clock, self._random
        self._partitions = await ensure_partitions(store, self._namespace, partitions, clock=clock, random=random)

    async def assign(self, runs: Sequence[SlotRun], consumers: Iterable[str], session: Session) -> None:
        """Bring the runs of this worker to their shares: claim, adopt, revoke."""
        view = self._view
        if view is None or not runs:
            return
        by_name = {run.name: run for run in runs}
        shares = assign_partitions(
            partitions=view.partitions,
            heartbeats=view.heartbeats,
            consumers=consumers,
            held={run.name: {**run.leaving, **run.releasable, **run.held} for run in runs},
            session=session.id,
        )
        for name, run in by_name.items():
            run.forget(set(shares.lost[name]))
            run.revoke(set(shares.revoke[name]))
            run.held.update(
                {number: epoch for number, epoch in shares.adopt[name].items() if epoch > self._released.get(number, 0)}
            )
        await self._claim(shares.claims, by_name, session)

    async def _claim(self, claims: Sequence[PlannedClaim], runs: dict[str, SlotRun], session: Session) -> None:
        async def one(claim: PlannedClaim) -> None:
            epoch = claim.epoch
            if claim.expired is not None:
                if not await self.registry.release(claim.partition, claim.expired, epoch):
                    return
                epoch += 1
            if await self.registry.claim(claim.partition, claim.consumer, epoch, session=session):
                run = runs[claim.consumer]
                (run.releasable if run.halted else run.held)[claim.partition] = epoch + 1

        await _all_of([one(claim) for claim in claims])

    async def release(self, run: SlotRun) -> None:
        """Release what the run's driver has released."""

        async def one(number: int, epoch: int) -> None:
            await self.registry.release(number, run.name, epoch)
            self._released[number] = max(epoch, self._released.get(number, 0))
            if run.releasable.get(number) == epoch:
                del run.releasable[number]

        await _all_of([one(number, epoch) for number, epoch in run.releasable.items()])

    async def has_reached_end(self, generation: Generation) -> bool:
        """Whether a backfill has reached its ends, with no range open."""
        states = {state.id: state for state in await self.registry.partitions()}
        return bool(generation.ends) and all(
            _has_reached(states.get(int(number)), generation.starts.get(number, 0), end)
            for number, end in generation.ends.items()
        )


def _has_reached(state: PartitionState | None, start: int, end: int) -> bool:
    if state is None or start >= end:
        return True
    return state.checkpoint >= end and state.intent is None


async def _all_of(calls: Iterable[Awaitable[None]]) -> None:
    """Await all calls, then raise the first failure: an unexpected one before one of ours."""
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    failures = [each for each in outcomes if isinstance(each, BaseException)]
    for error in failures:
        if not isinstance(error, HoldfastError):
            raise error
    if failures:
        raise failures[0]
