"""The plan executor: watches the plan, calls `plan_actions.decide`, and carries the actions out.

One action per resource at a time, many resources concurrently. Only resources about which something has changed are decided; a slow
tick over all of them is the safety net. It owns the set of leases this agent serves; what serving means (WAL, segments, heaps) is
up to the `LeaseHandler`.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import Final, NamedTuple, Protocol, TypeVar

from holdfast.contracts.store import Entry, Store
from holdfast.kernel.keys import HOLDERS, PLACED, PLANS, TRANSFERS, holder_key, members_prefix, transfer_key
from holdfast.kernel.lease import Held, Lease, acquire, read_holder, release
from holdfast.kernel.membership import read_member
from holdfast.kernel.mirror import Mirror, open_mirror
from holdfast.kernel.placement import Placement
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
    ResourceView,
    changed_resources,
    decide,
    is_offered_to,
    planned_owner,
    resources_of,
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

_DECISIONS_AT_ONCE: Final = 200


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


class _SeenTransfer(NamedTuple):
    """A transfer of ours: its own start, and when this process saw it first."""

    since_ms: int
    first_ms: int


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
        self._undecided: dict[str, None] = {}  # resources about which something has changed
        self._busy: set[str] = set()
        self._queued: deque[PlanAction] = deque()  # decided, and not begun
        self._running = 0
        self._unconfirmed: dict[str, _WrittenVersions] = {}
        self._plans: dict[str, tuple[Placement, ...]] = {}
        self._under_way: dict[str, _SeenTransfer] = {}  # our own, the oldest first
        self._members: dict[str, Member] = {}
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
            self._watch(mirrors)
            while True:
                await self._decide_changed(mirrors, group)
                if not await self._wait_for_change():
                    self._reconsider_all(mirrors)

    def _mirror(self, prefix: str, read: Callable[[Entry], T]) -> AbstractAsyncContextManager[Mirror[T]]:
        return open_mirror(self._store, prefix, read, clock=self._clock, random=self._random, notify=self._notify)

    def _watch(self, mirrors: _Mirrors) -> None:
        """From now on, what changes in a mirror is decided again; and everything once, at first."""

        def plan_changed(keys: Collection[str]) -> None:
            for key in keys:
                topic = key.removeprefix(PLANS)
                before, after = self._plans.pop(topic, ()), mirrors.plan.items.get(key, ())
                if after:
                    self._plans[topic] = after
                self._undecided.update(dict.fromkeys(changed_resources(topic, before, after)))

        def holders_changed(keys: Collection[str]) -> None:
            self._undecided.update(dict.fromkeys(key.removeprefix(HOLDERS) for key in keys))

        def transfers_changed(keys: Collection[str]) -> None:
            for key in keys:
                resource = key.removeprefix(TRANSFERS)
                self._see_transfer(resource, mirrors.moving.items.get(key))
                self._undecided[resource] = None

        def members_changed(_: Collection[str]) -> None:
            self._members = {member.id: member for member in mirrors.members.items.values()}
            self._reconsider_all(mirrors)

        for mirror, changed in (
            (mirrors.plan, plan_changed),
            (mirrors.moving, transfers_changed),
            (mirrors.members, members_changed),
        ):
            mirror.on_changed = changed
            changed(mirror.items)
        mirrors.holders.on_changed = holders_changed

    def _reconsider_all(self, mirrors: _Mirrors) -> None:
        """Decide about everything that may be ours."""
        undecided = self._undecided
        for topic, placements in self._plans.items():
            undecided.update(dict.fromkeys(resources_of(topic, placements, self._agent)))
        undecided.update(dict.fromkeys(self.owned))
        for held in mirrors.holders.items.values():
            if held.session == self._session.id:
                undecided[held.resource] = None
        for transfer in mirrors.moving.items.values():
            if is_offered_to(transfer, self._agent):
                undecided[transfer.resource] = None

    def _see_transfer(self, resource: str, transfer: Transfer | None) -> None:
        """Remember since when a transfer of ours is under way, by this process's own clock."""
        seen = self._under_way.get(resource)
        if transfer is None or not transfer.under_way or transfer.record.source != self._agent:
            self._under_way.pop(resource, None)
        elif seen is None or seen.since_ms != transfer.record.since_ms:
            self._under_way.pop(resource, None)
            self._under_way[resource] = _SeenTransfer(transfer.record.since_ms, self._clock.boot_ms())

    def _timed_out(self, resource: str) -> bool:
        seen = self._under_way.get(resource)
        return seen is not None and self._clock.boot_ms() - seen.first_ms >= self._settings.transfer_timeout_ms

    async def _decide_changed(self, mirrors: _Mirrors, group: asyncio.TaskGroup) -> None:
        """Decide about what has changed, some at a time: thousands of decisions must not hold up everybody else."""
        # Our transfers that have taken too long; the oldest come first.
        self._undecided.update(dict.fromkeys(takewhile(self._timed_out, self._under_way)))
        while self._undecided:
            for resource in list(islice(self._undecided, _DECISIONS_AT_ONCE)):
                del self._undecided[resource]
                self._decide(resource, mirrors)
            self._begin_actions(group)
            if self._undecided:
                await self._clock.sleep_ms(0)
        self._begin_actions(group)

    def _decide(self, resource: str, mirrors: _Mirrors) -> None:
        if resource in self._busy:
            return  # decided again when its action ends
        written = self._unconfirmed.get(resource)
        if written is not None:
            if written.holder > mirrors.holders.version or written.transfer > mirrors.moving.version:
                return  # decided again when the mirrors show what it wrote
            del self._unconfirmed[resource]
        action = decide(
            ResourceView(
                resource=resource,
                agent=self._agent,
                session=self._session.id,
                planned=planned_owner(self._plans, resource),
                held=mirrors.holders.items.get(holder_key(resource)),
                transfer=mirrors.moving.items.get(transfer_key(resource)),
                members=self._members,
                lease=self.owned.get(resource),
                timed_out=self._timed_out(resource),
            )
        )
        if action is not None:
            self._busy.add(resource)
            self._queued.append(action)

    def _begin_actions(self, group: asyncio.TaskGroup) -> None:
        """Begin what was decided, as far as there are slots. A drain waits for object storage, and takes none meanwhile."""
        while self._queued:
            drains = isinstance(self._queued[0], (CompleteTransfer, ReleaseLease))
            if not drains and self._running >= self._settings.actions_max:
                return
            group.create_task(self._execute(self._queued.popleft(), slots=0 if drains else 1))
            self._running += not drains

    async def _wait_for_change(self) -> bool:
        """Until a mirror changes, an action ends, or the tick is due (False); reports progress to the session meanwhile."""
        check_ms = self._settings.tick_ms
        if self._under_way:
            check_ms = min(check_ms, self._settings.transfer_timeout_ms)
        until_ms = self._clock.boot_ms() + self._random.jitter(check_ms)
        while True:
            self._session.report_progress()
            left_ms = until_ms - self._clock.boot_ms()
            if left_ms <= 0:
                return False
            if await self._notify.wait_ms(self._clock, min(left_ms, self._session.progress_interval_ms)):
                return True

    async def _execute(self, action: PlanAction, *, slots: int) -> None:
        written: _WrittenVersions | None = None
        try:
            written = await self._perform(action)
        except FencedError:
            await self._drop(action.resource)
        except (UnavailableError, OutcomeUnknownError):
            pass  # the mirrors will show the outcome
        self._running -= slots
        self._notify.notify()
        if written is None:
            # Lost a race, or the store did not answer: let the mirrors catch up before the next attempt.
            await self._clock.sleep_ms(self._random.jitter(self._settings.retry_ms))
        else:
            self._unconfirmed[action.resource] = written
        self._busy.discard(action.resource)
        self._undecided[action.resource] = None
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
