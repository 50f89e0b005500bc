"""The plan executor: watches the plan (`plan_view`), calls `plan_actions.decide`, and carries the actions out.

One action per resource at a time, many resources concurrently. Only resources about which something has changed are decided; a slow
tick over all of them is the safety net. It owns the set of leases this agent serves; what serving means (WAL, segments, heaps) is
up to the `LeaseHandler`.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Final, Protocol

from holdfast.contracts.store import Entry, Store
from holdfast.kernel.lease import Lease, release
from holdfast.kernel.lease_batches import LEASES_PER_COMMIT, acquire_many, read_epochs
from holdfast.kernel.plan_actions import (
    AcquireLease,
    AdoptLease,
    AnswerTransfer,
    CompleteTransfer,
    DropLease,
    FailTransfer,
    OfferTransfer,
    PlanAction,
    ReleaseLease,
    decide,
)
from holdfast.kernel.plan_view import PlanView, open_plan_view
from holdfast.kernel.session import HeldSession
from holdfast.kernel.transfer import (
    Transfer,
    TransferStep,
    answer_transfer,
    complete_transfer,
    offer_transfer,
)
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import FencedError, OutcomeUnknownError, UnavailableError
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.settings import check_at_least
from holdfast.vocabulary.tasks import Notify, background_tasks, task_group

_DECISIONS_AT_ONCE: Final = 200
_EPOCHS_READ_MIN: Final = 8  # fewer are acquired without a look


class LeaseHandler(Protocol):
    """Does the work of a lease. Calls for one resource never overlap."""

    async def open(self, lease: Lease) -> None:
        """Start serving under this lease; recover the state the last owner left."""
        ...

    async def open_many(self, leases: Sequence[Lease]) -> Collection[str]:
        """`open` for leases that were just acquired; the resources of those that are lost again (`FencedError`)."""
        ...

    async def drain(self, lease: Lease) -> None:
        """Stop accepting, finish and flush what was accepted. The lease is still ours."""
        ...

    async def resume(self, lease: Lease) -> None:
        """Serve again after a drain: the transfer failed."""
        ...

    async def close(self, lease: Lease) -> None:
        """Stop at once: the lease is no longer ours."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanExecutorSettings:
    """How often to check without a change, how long a transfer may take, how many actions run concurrently."""

    tick_ms: int = 30_000
    transfer_timeout_ms: int = 30_000
    actions_max: int = 256
    retry_ms: int = 500

    def __post_init__(self) -> None:
        for name in ("tick_ms", "transfer_timeout_ms", "actions_max", "retry_ms"):
            check_at_least(name, getattr(self, name), 1)


@dataclass(frozen=True, slots=True)
class _WrittenVersions:
    """What an action wrote: no further action on the resource until the mirrors show it. 0: not written there."""

    holder: int = 0
    transfer: int = 0


class PlanExecutor:
    """Executes the plan for one agent. Made by `execute_plan`; `owned` are the leases it serves now."""

    def __init__(
        self,
        store: Store,
        handler: LeaseHandler,
        *,
        agent: str,
        session: HeldSession,
        clock: Clock,
        random: Random,
        settings: PlanExecutorSettings,
    ) -> None:
        self._store, self._handler, self._agent, self._session = store, handler, agent, session
        self._clock, self._random, self._settings = clock, random, settings
        self._notify = Notify()
        self._busy: set[str] = set()
        self._queued: deque[PlanAction] = deque()  # decided, and not begun
        self._running = 0
        self._unconfirmed: dict[str, _WrittenVersions] = {}
        self._epochs: dict[str, Entry] = {}  # read ahead, of leases that are about to be acquired
        self.owned: dict[str, Lease] = {}
        self.changed = Notify()  # notified when `owned` changes

    async def run(self) -> None:
        """Run until cancelled. An error of the handler ends it: an agent that cannot serve must not hold leases."""
        async with (
            open_plan_view(
                self._store,
                self.owned,
                agent=self._agent,
                session=self._session.id,
                clock=self._clock,
                random=self._random,
                notify=self._notify,
                transfer_timeout_ms=self._settings.transfer_timeout_ms,
            ) as view,
            task_group() as group,
        ):
            while True:
                await self._decide_changed(view, group)
                if not await self._wait_for_change(view):
                    view.reconsider_all()

    async def _decide_changed(self, view: PlanView, group: asyncio.TaskGroup) -> None:
        """Decide about what has changed, some at a time: thousands of decisions must not hold up everybody else."""
        view.reconsider_timed_out()
        while undecided := view.take_undecided(_DECISIONS_AT_ONCE):
            self._session.report_progress()
            decided = len(self._queued)
            for resource in undecided:
                self._decide(resource, view)
            await self._read_epochs(islice(self._queued, decided, None))
            self._begin_actions(view, group)
            if view.undecided:
                await self._clock.sleep_ms(0)
        self._begin_actions(view, group)

    def _decide(self, resource: str, view: PlanView) -> None:
        if resource in self._busy:
            return  # decided again when its action ends
        written = self._unconfirmed.get(resource)
        if written is not None:
            if not view.shows(holder=written.holder, transfer=written.transfer):
                return  # decided again when the mirrors show what it wrote
            del self._unconfirmed[resource]
        if view.is_settled(resource):
            return  # thousands are, whenever everything is looked at again
        action = decide(view.resource(resource))
        if action is not None:
            self._busy.add(resource)
            self._queued.append(action)

    async def _read_epochs(self, actions: Iterable[PlanAction]) -> None:
        """Read the epochs of leases that are to be acquired, if they are many."""
        resources = [action.resource for action in actions if isinstance(action, AcquireLease)]
        if len(resources) >= _EPOCHS_READ_MIN:
            self._epochs.update(await read_epochs(self._store, resources))

    def _begin_actions(self, view: PlanView, group: asyncio.TaskGroup) -> None:
        """Begin what was decided, as far as there are slots. A drain waits for object storage, and takes none meanwhile."""
        while self._queued:
            drains = isinstance(self._queued[0], (CompleteTransfer, ReleaseLease))
            if not drains and self._running >= self._settings.actions_max:
                return
            if isinstance(self._queued[0], AcquireLease):
                resources = self._take_acquisitions(self._settings.actions_max - self._running)
                group.create_task(self._acquire(resources, view))
                self._running += len(resources)
                continue
            group.create_task(self._execute(self._queued.popleft(), view, slots=0 if drains else 1))
            self._running += not drains

    def _take_acquisitions(self, count: int) -> list[str]:
        """The next leases to acquire: at most so many, and no more than one commit acquires."""
        resources: list[str] = []
        while self._queued and len(resources) < min(count, LEASES_PER_COMMIT):
            action = self._queued[0]
            if not isinstance(action, AcquireLease):
                break
            self._queued.popleft()
            resources.append(action.resource)
        return resources

    async def _wait_for_change(self, view: PlanView) -> bool:
        """Until a mirror changes, an action ends, or the tick is due (False); reports progress to the session meanwhile."""
        check_ms = self._settings.tick_ms
        if view.is_moving:
            check_ms = min(check_ms, self._settings.transfer_timeout_ms)
        until_ms = self._clock.boot_ms() + self._random.jitter(check_ms)
        while True:
            self._session.report_progress()
            left_ms = until_ms - self._clock.boot_ms()
            if left_ms <= 0:
                return False
            if await self._notify.wait_ms(self._clock, min(left_ms, self._session.progress_interval_ms)):
                return True

    async def _execute(self, action: PlanAction, view: PlanView, *, slots: int) -> None:
        written: _WrittenVersions | None = None
        try:
            written = await self._perform(action)
        except FencedError:
            await self._drop(action.resource)
        except (UnavailableError, OutcomeUnknownError):
            pass  # the mirrors will show the outcome
        self._running -= slots
        await self._finish({action.resource: written}, view)

    async def _acquire(self, resources: Sequence[str], view: PlanView) -> None:
        """Acquire these leases together, and serve those that were free."""
        written: dict[str, _WrittenVersions | None] = dict.fromkeys(resources)
        try:
            taken = await acquire_many(
                self._store,
                resources,
                holder=self._agent,
                session=self._session.id,
                clock=self._clock,
                random=self._random,
                seen={resource: self._epochs.pop(resource, None) for resource in resources},
            )
            written |= await self._serve_many([lease for lease in taken if isinstance(lease, Lease)])
        except (UnavailableError, OutcomeUnknownError):
            pass  # the mirrors will show the outcome
        self._running -= len(resources)
        await self._finish(written, view)

    async def _finish(self, written: Mapping[str, _WrittenVersions | None], view: PlanView) -> None:
        """The actions on these resources have ended: decide about them again. None: it had no effect."""
        self._notify.notify()
        for resource, versions in written.items():
            if versions is not None:
                self._unconfirmed[resource] = versions
                self._busy.discard(resource)
                view.undecided[resource] = None
        without_effect = [resource for resource, versions in written.items() if versions is None]
        if without_effect:
            # Lost a race, or the store did not answer: let the mirrors catch up before the next attempt.
            await self._clock.sleep_ms(self._random.jitter(self._settings.retry_ms))
            self._busy.difference_update(without_effect)
            view.undecided.update(dict.fromkeys(without_effect))
        self._notify.notify()

    async def _perform(self, action: PlanAction) -> _WrittenVersions | None:
        """Perform it; None: it had no effect."""
        match action:
            case AcquireLease():
                raise AssertionError("leases are acquired together")
            case AdoptLease(held):
                return await self._serve(
                    Lease(
                        resource=held.resource,
                        holder=self._agent,
                        session=self._session.id,
                        epoch=held.epoch,
                        version=held.version,
                    )
                )
            case OfferTransfer(lease, target, latest):
                return _written_by(
                    await offer_transfer(
                        self._store, lease, target=target, latest=latest, clock=self._clock, random=self._random
                    )
                )
            case AnswerTransfer(transfer, accepted):
                return await self._answer(transfer, TransferStep.ACCEPT if accepted else TransferStep.REJECT)
            case FailTransfer(transfer):
                return await self._answer(transfer, TransferStep.FAIL)
            case CompleteTransfer():
                return await self._hand_over(action)
            case ReleaseLease(lease):
                await self._handler.drain(lease)
                released = await release(self._store, lease, clock=self._clock, random=self._random)
                await self._drop(lease.resource)
                return _WrittenVersions(holder=released)
            case DropLease(lease):
                await self._drop(lease.resource)
                return _WrittenVersions()

    async def _serve(self, lease: Lease) -> _WrittenVersions:
        self.owned[lease.resource] = lease
        await self._handler.open(lease)
        self.changed.notify()
        return _WrittenVersions(holder=lease.version)

    async def _serve_many(self, leases: Sequence[Lease]) -> dict[str, _WrittenVersions]:
        self.owned.update((lease.resource, lease) for lease in leases)
        lost = await self._handler.open_many(leases) if leases else ()
        self.changed.notify()
        for resource in lost:
            await self._drop(resource)
        return {
            lease.resource: _WrittenVersions(holder=lease.version) for lease in leases if lease.resource not in lost
        }

    async def _drop(self, resource: str) -> None:
        lease = self.owned.pop(resource, None)
        if lease is not None:
            await self._handler.close(lease)
            self.changed.notify()

    async def _answer(self, transfer: Transfer, step: TransferStep) -> _WrittenVersions | None:
        return _written_by(await answer_transfer(self._store, transfer, step, clock=self._clock, random=self._random))

    async def _hand_over(self, action: CompleteTransfer) -> _WrittenVersions | None:
        await self._handler.drain(action.lease)
        try:
            moved = await complete_transfer(
                self._store,
                action.lease,
                action.transfer,
                target_session=action.target_session,
                clock=self._clock,
                random=self._random,
            )
        except (UnavailableError, OutcomeUnknownError):
            # If it did happen, the mirror will show it and the next decision drops the lease.
            await self._handler.resume(action.lease)
            raise
        if moved is None:
            await self._handler.resume(action.lease)
            return None
        await self._drop(action.resource)
        return _WrittenVersions(holder=moved.version, transfer=moved.version)


def _written_by(transfer: Transfer | None) -> _WrittenVersions | None:
    return None if transfer is None else _WrittenVersions(transfer=transfer.version)


@asynccontextmanager
async def execute_plan(
    store: Store,
    handler: LeaseHandler,
    *,
    agent: str,
    session: HeldSession,
    clock: Clock,
    random: Random,
    settings: PlanExecutorSettings,
) -> AsyncIterator[PlanExecutor]:
    """Execute the plan for the body; leaving stops serving what is still held."""
    executor = PlanExecutor(store, handler, agent=agent, session=session, clock=clock, random=random, settings=settings)
    try:
        async with background_tasks(executor.run()):
            yield executor
    finally:
        for lease in list(executor.owned.values()):
            await handler.close(lease)
        executor.owned.clear()
