"""The batches that leaders of this process coordinate: prepared everywhere, decided in the store, resolved everywhere.

The one rule: a batch is remembered here until its outcome is certain. Whoever prepared it may ask; a coordinator of the same epoch
that does not remember a batch will never commit it. So nothing is dropped while a commit may be under way, whatever else ends.
"""

import asyncio
import logging
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from holdfast.contracts.commits import commit_resolved
from holdfast.contracts.store import Committed, Conflict, NotCommitted, Store
from holdfast.heap.batch.coordinator import BatchCoordinator, BatchState
from holdfast.heap.batch.messages import Prepare, Promised
from holdfast.heap.batch.model import Forgotten, Resolved
from holdfast.heap.errors import (
    BatchAbortedError,
    PartitionsGrownError,
    ProducerFencedError,
    ResourceExhaustedError,
    SequenceForgottenError,
)
from holdfast.heap.model import Enqueued, NewMessage
from holdfast.heap.partition import HeapPartition
from holdfast.heap.settings import HeapSettings
from holdfast.vocabulary import failpoints
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import HoldfastError, InvalidError, OutcomeUnknownError, UnavailableError
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.tasks import LoopTurns, Notify, gather_or_cancel, task_group

_log: Final = logging.getLogger(__name__)
T = TypeVar("T")

# Everything else is about a partition's leader, and over when there is another one.
_OF_THE_CALLER: Final = (
    InvalidError,
    ProducerFencedError,
    SequenceForgottenError,
    ResourceExhaustedError,
    BatchAbortedError,
    PartitionsGrownError,
)


class BatchPeers(Protocol):
    """The leaders of a heap's partitions, wherever they are. Each raises what the leader raises, or `UnavailableError`."""

    async def prepare(self, topic: str, partition: int, prepare: Prepare) -> Promised:
        """Reserve messages."""
        ...

    async def resolve(self, topic: str, partition: int, resolved: Resolved) -> None:
        """Make the messages of a batch ready, or drop them; returns when that is durable. The same again changes nothing."""
        ...

    async def is_deciding(self, topic: str, partition: int, batch: str, epoch: int) -> bool:
        """Whether the leader of a partition, at this very epoch, may still commit a batch."""
        ...


@dataclass(slots=True)
class _Batch:
    view: HeapPartition
    coordinator: BatchCoordinator
    parts: Mapping[int, Sequence[NewMessage]]
    answer: "asyncio.Future[dict[int, list[Enqueued]]]"

    @property
    def topic(self) -> str:
        return self.view.log.partition_id.topic

    def accept(self, promised: "Mapping[int, Promised]") -> None:
        if not self.answer.done():
            self.answer.set_result({number: each.enqueued for number, each in promised.items()})

    def refuse(self, error: HoldfastError) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)
            self.answer.exception()  # its caller may be gone


class LocalBatches:
    """What this process coordinates."""

    def __init__(
        self, peers: BatchPeers, settings: HeapSettings, *, store: Store, clock: Clock, random: Random
    ) -> None:
        self.peers, self.settings, self.store, self.clock = peers, settings, store, clock
        self._random = random
        self._coordinating: dict[str, BatchCoordinator] = {}
        self._new: list[_Batch] = []
        self._arrived = Notify()
        self._turns = LoopTurns()  # a partition's part of a batch is applied in one step
        self._running = False

    def is_coordinating(self, batch: str) -> bool:
        """Whether a batch is not at its end here: it may still be committed, or is being resolved."""
        return batch in self._coordinating

    async def run(self) -> None:
        """Coordinate what comes, until cancelled."""
        self._running = True
        try:
            async with task_group() as group:
                while True:
                    new, self._new = self._new, []
                    for batch in new:
                        group.create_task(self._coordinate(batch))
                    await self._arrived.wait()
        finally:
            self._running = False
            for batch in self._new:
                batch.refuse(UnavailableError(f"batch of {batch.topic}", "nothing was enqueued: the node stops"))

    async def enqueue(
        self, view: HeapPartition, parts: Mapping[int, Sequence[NewMessage]]
    ) -> dict[int, list[Enqueued]]:
        """Enqueue messages in several partitions, the lowest of which is `view`; returns when they are there, or surely will be.

        `BatchAbortedError`: another batch was in its way, or a partition has a new leader; `UnavailableError`: one does not
        answer. Nothing was enqueued then. `OutcomeUnknownError`: the store did not say what became of it.
        """
        if not self._running:
            raise UnavailableError(f"batch of {view.rules.topic}", "nothing was enqueued: the node stops")
        used, limit = len(self._coordinating), self.settings.batches_max
        if used >= limit:
            raise ResourceExhaustedError("batches over several partitions", used, limit)
        coordinator = BatchCoordinator(view.log.partition_id.topic_id, self._random.token(), [*parts])
        batch = _Batch(view, coordinator, parts, asyncio.get_running_loop().create_future())
        self._coordinating[coordinator.batch] = coordinator
        self._new.append(batch)
        self._arrived.notify()
        return await batch.answer

    async def _coordinate(self, batch: _Batch) -> None:
        coordinator = batch.coordinator
        try:
            await self._run_batch(batch)
        except HoldfastError as error:
            batch.refuse(error)
        except Exception:
            _log.exception("batch %s of %s failed", coordinator.batch, batch.topic)
        finally:
            batch.refuse(OutcomeUnknownError(f"batch of {batch.topic}", "its coordinator failed"))
            coordinator.abort()  # if nobody could commit it yet, nobody ever will
            if coordinator.state is not BatchState.DECIDING:
                self._coordinating.pop(coordinator.batch, None)
            batch.view.batches_changed.notify()

    async def _run_batch(self, batch: _Batch) -> None:
        coordinator = batch.coordinator
        failpoints.reached("heap.batch-begun")
        promised = await self._prepare(batch)
        if not any(each.reserved for each in promised.values()):  # all of them were enqueued before
            coordinator.abort()
            batch.accept(promised)
            return
        failpoints.reached("heap.batch-prepared")
        try:
            committed = await self._decide(batch)
        except UnavailableError:
            await self._tell_abort(batch, promised)
            raise
        failpoints.reached("heap.batch-decided")
        if not committed:
            await self._tell_abort(batch, promised)
            raise BatchAbortedError(batch.topic, "a partition has another leader by now")
        await self.resolve(batch.view, coordinator)
        failpoints.reached("heap.batch-resolved")
        batch.accept(promised)
        await self.forget(batch.view, coordinator)

    # ── prepare ──

    async def _prepare(self, batch: _Batch) -> dict[int, Promised]:
        """Everybody's promise, or the abort."""
        asked = [self._tried(self._ask(batch, number)) for number in batch.coordinator.partitions]
        found = dict(zip(batch.coordinator.partitions, await gather_or_cancel(*asked), strict=True))
        own = batch.view.number
        promised = {number: each for number, each in found.items() if isinstance(each, Promised)}
        failures = [each for each in found.values() if not isinstance(each, Promised)]
        if not failures and not promised[own].reserved and any(each.reserved for each in promised.values()):
            marked = await self._tried(self._ask(batch, own, always=True))
            failures = [] if isinstance(marked, Promised) else [marked]
        if failures:
            batch.coordinator.abort()
            await self._tell_abort(batch, promised)
            raise _refusal(batch.topic, failures)
        for number, each in promised.items():
            batch.coordinator.prepared(number, each.promise)
        return promised

    async def _ask(self, batch: _Batch, partition: int, *, always: bool = False) -> Promised:
        await self._turns.next()
        coordinator = batch.coordinator
        prepare = Prepare(
            coordinator.batch,
            batch.view.log.epoch,
            coordinator.partitions,
            [] if always else [*batch.parts[partition]],
            always,
        )
        if partition == batch.view.number:
            return await batch.view.prepare(prepare)
        return await self.peers.prepare(batch.topic, partition, prepare)

    async def _tell_abort(self, batch: _Batch, promised: Mapping[int, Promised]) -> None:
        """Those who are not told find out: they ask."""
        own = batch.view.number
        told = {number for number, each in promised.items() if each.reserved} | {own}
        await self._tell(batch.view, Resolved(batch.coordinator.batch, committed=False), told)

    # ── decide ──

    async def _decide(self, batch: _Batch) -> bool:
        coordinator = batch.coordinator
        require, apply = coordinator.decision()
        within_ms = self.settings.batch_wait_ms
        outcome: Committed | Conflict | NotCommitted
        try:
            outcome = await commit_resolved(
                self.store, clock=self.clock, random=self._random, require=require, apply=apply, within_ms=within_ms
            )
        except OutcomeUnknownError as error:
            batch.refuse(OutcomeUnknownError(f"batch of {batch.topic}", str(error)))
            outcome = await self._outcome(error.commit_id)
        except UnavailableError as error:
            coordinator.decided(committed=False)
            raise UnavailableError(f"batch of {batch.topic}", f"nothing was enqueued: {error}") from error
        coordinator.decided(committed=isinstance(outcome, Committed))
        return isinstance(outcome, Committed)

    async def _outcome(self, commit_id: str) -> Committed | NotCommitted:
        """What became of a commit, however long the store is away: others wait for it."""
        while True:
            try:
                return await self.store.resolve(commit_id)
            except UnavailableError:
                await self.clock.sleep_ms(self.settings.batch_resolve_ms)

    # ── resolve ──

    async def resolve(self, view: HeapPartition, coordinator: BatchCoordinator) -> None:
        """Tell everybody that the batch is committed, once. Those who do not answer are told later."""
        resolved = Resolved(coordinator.batch, committed=True)
        for number in await self._tell(view, resolved, coordinator.unresolved()):
            coordinator.resolved(number)

    async def forget(self, view: HeapPartition, coordinator: BatchCoordinator) -> bool:
        """Remove the decision, if everybody has resolved it; whether it is gone, and that is written down."""
        if coordinator.unresolved():
            return False
        operations = coordinator.forget()
        await commit_resolved(self.store, clock=self.clock, random=self._random, apply=operations)
        failpoints.reached("heap.batch-key-deleted")
        view.add((Forgotten(coordinator.batch),))
        await view.durable()
        return True

    async def _tell(self, view: HeapPartition, resolved: Resolved, partitions: Iterable[int]) -> list[int]:
        """Those of the partitions that have resolved the batch, durably."""

        async def tell(number: int) -> bool:
            await self._turns.next()
            if number == view.number:
                await view.resolve(resolved)
            else:
                await self.peers.resolve(view.log.partition_id.topic, number, resolved)
            return True

        numbers = [*partitions]
        told = await gather_or_cancel(*(self._tried(tell(number)) for number in numbers))
        return [number for number, done in zip(numbers, told, strict=True) if done is True]

    async def _tried(self, call: Awaitable[T]) -> T | HoldfastError:
        """What a partition answers in time."""
        try:
            async with asyncio.timeout(self.settings.batch_wait_ms / 1000):
                return await call
        except TimeoutError:
            return UnavailableError("leader of a partition", f"no answer within {self.settings.batch_wait_ms} ms")
        except HoldfastError as error:
            return error


def _refusal(topic: str, failures: Sequence[HoldfastError]) -> HoldfastError:
    """The error of a batch that was not enqueued: what its caller can do something about, if there is such a thing."""
    for error in failures:
        if isinstance(error, _OF_THE_CALLER):
            return error
    return UnavailableError(f"batch of {topic}", f"nothing was enqueued: {failures[0]}")
