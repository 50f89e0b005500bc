"""The plan executor: watches the plan, calls `plan_actions.decide`, and carries the actions out.

One action per resource at a time, many resources concurrently; a slow tick is the safety net under the watches. It owns the set of
leases this agent serves; what serving means (WAL, segments, heaps) is up to the `LeaseHandler`.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Protocol, TypeVar

from holdfast.contracts.store import Entry, Store
from holdfast.kernel.keys import PLACED, PLANS, TRANSFERS, holder_key, members_prefix
from holdfast.kernel.lease import Held, Lease, acquire, read_holder, release
from holdfast.kernel.membership import read_member
from holdfast.kernel.mirror import Mirror, open_mirror
from holdfast.kernel.placement import Placement
from holdfast.kernel.plan_actions import (
    AcquireLease,
    AdoptLease,
    AgentView,
    AnswerTransfer,
    CompleteTransfer,
    DropLease,
    FailTransfer,
    OfferTransfer,
    PlanAction,
    ReleaseLease,
    decide,
)
from holdfast.kernel.planner import decode_placements
from holdfast.kernel.session import HeldSession
from holdfast.kernel.transfer import (
    Transfer,
    TransferStep,
    answer_transfer,
    complete_transfer,
    offer_transfer,
    read_transfer,
)
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import FencedError, OutcomeUnknownError, UnavailableError
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.settings import check_at_least
from holdfast.vocabulary.tasks import Notify, background_tasks, task_group
from holdfast.vocabulary.types import Member

T = TypeVar("T")


class LeaseHandler(Protocol):
    """Does the work of a lease. Calls for one resource never overlap."""

    async def open(self, lease: Lease) -> None:
        """Start serving under this lease; recover the state the last owner left."""
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
    actions_max: int = 64
    retry_ms: int = 500

    def __post_init__(self) -> None:
        for name in ("tick_ms", "transfer_timeout_ms", "actions_max", "retry_ms"):
            check_at_least(name, getattr(self, name), 1)


@dataclass(frozen=True, slots=True)
class _Mirrors:
    plan: Mirror[tuple[Placement, ...]]
    holders: Mirror[Held]
    moving: Mirror[Transfer]
    members: Mirror[Member]


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
        self._unconfirmed: dict[str, _WrittenVersions] = {}
        self._first_seen_ms: dict[tuple[str, int], int] = {}  # our transfers under way, by resource and their own start
        self._slots = asyncio.Semaphore(settings.actions_max)
        self.owned: dict[str, Lease] = {}
        self.changed = Notify()  # notified when `owned` changes

    async def run(self) -> None:
        """Run until cancelled. An error of the handler ends it: an agent that cannot serve must not hold leases."""
        async with AsyncExitStack() as stack, task_group() as group:
            mirrors = _Mirrors(
                await stack.enter_async_context(self._mirror(PLANS, lambda entry: decode_placements(entry.value))),
                await stack.enter_async_context(self._mirror(holder_key(PLACED), read_holder)),
                await stack.enter_async_context(self._mirror(TRANSFERS, read_transfer)),
                await stack.enter_async_context(self._mirror(members_prefix("agent"), read_member)),
            )
            while True:
                for action in decide(self._view(mirrors)):
                    self._busy.add(action.resource)
                    group.create_task(self._execute(action))
                await self._wait_for_change()

    def _mirror(self, prefix: str, read: Callable[[Entry], T]) -> AbstractAsyncContextManager[Mirror[T]]:
        return open_mirror(self._store, prefix, read, clock=self._clock, random=self._random, notify=self._notify)

    def _view(self, mirrors: _Mirrors) -> AgentView:
        under_way = {transfer.resource: transfer for transfer in mirrors.moving.items.values()}
        self._unconfirmed = {
            resource: written
            for resource, written in self._unconfirmed.items()
            if written.holder > mirrors.holders.version or written.transfer > mirrors.moving.version
        }
        return AgentView(
            agent=self._agent,
            session=self._session.id,
            plan={key.removeprefix(PLANS): placements for key, placements in mirrors.plan.items.items()},
            holders={held.resource: held for held in mirrors.holders.items.values()},
            transfers=under_way,
            members={member.id: member for member in mirrors.members.items.values()},
            owned=self.owned,
            timed_out=self._timed_out(under_way),
            unconfirmed=frozenset({*self._busy, *self._unconfirmed}),
        )

    def _timed_out(self, transfers_seen: Mapping[str, Transfer]) -> frozenset[str]:
        """Our transfers that have taken too long, by this process's own clock."""
        now_ms = self._clock.boot_ms()
        ours = [t for t in transfers_seen.values() if t.under_way and t.record.source == self._agent]
        self._first_seen_ms = {
            (t.resource, t.record.since_ms): self._first_seen_ms.get((t.resource, t.record.since_ms), now_ms)
            for t in ours
        }
        limit_ms = self._settings.transfer_timeout_ms
        return frozenset(r for (r, _), since_ms in self._first_seen_ms.items() if now_ms - since_ms >= limit_ms)

    async def _wait_for_change(self) -> None:
        """Until a mirror changes, an action ends, or the tick is due; reports progress to the session meanwhile."""
        check_ms = self._settings.tick_ms
        if self._first_seen_ms:
            check_ms = min(check_ms, self._settings.transfer_timeout_ms)
        until_ms = self._clock.boot_ms() + self._random.jitter(check_ms)
        while True:
            self._session.report_progress()
            left_ms = until_ms - self._clock.boot_ms()
            if left_ms <= 0 or await self._notify.wait_ms(
                self._clock, min(left_ms, self._session.progress_interval_ms)
            ):
                return

    async def _execute(self, action: PlanAction) -> None:
        written: _WrittenVersions | None = None
        try:
            async with self._slots:
                written = await self._perform(action)
        except FencedError:
            await self._drop(action.resource)
        except (UnavailableError, OutcomeUnknownError):
            pass  # the mirrors will show the outcome
        if (
            written is None
        ):  # lost a race, or the store did not answer: let the mirrors catch up before the next attempt
            await self._clock.sleep_ms(self._random.jitter(self._settings.retry_ms))
        else:
            self._unconfirmed[action.resource] = written
        self._busy.discard(action.resource)
        self._notify.notify()

    async def _perform(self, action: PlanAction) -> _WrittenVersions | None:
        """Perform it; None: it had no effect."""
        match action:
            case AcquireLease(resource):
                return await self._take(resource)
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

    async def _take(self, resource: str) -> _WrittenVersions | None:
        taken = await acquire(
            self._store,
            resource,
            holder=self._agent,
            session=self._session.id,
            clock=self._clock,
            random=self._random,
        )
        return await self._serve(taken) if isinstance(taken, Lease) else None

    async def _serve(self, lease: Lease) -> _WrittenVersions:
        self.owned[lease.resource] = lease
        await self._handler.open(lease)
        self.changed.notify()
        return _WrittenVersions(holder=lease.version)

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
