"""What an agent sees of the plan: plans, holders, transfers and members as mirrors, and which resources are to be decided.

Every change makes its resource `undecided`. It decides nothing (`plan_actions`) and writes nothing (`plan_executor`).
"""

from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import NamedTuple, TypeVar

from holdfast.contracts.store import Entry, Store
from holdfast.kernel.keys import HOLDERS, PLACED, PLANS, TRANSFERS, holder_key, members_prefix, transfer_key
from holdfast.kernel.lease import Held, Lease, read_holder
from holdfast.kernel.membership import read_member
from holdfast.kernel.mirror import Mirror, open_mirror
from holdfast.kernel.placement import Placement
from holdfast.kernel.plan_actions import ResourceView, changed_resources, is_offered_to, planned_owner, resources_of
from holdfast.kernel.planner import decode_placements
from holdfast.kernel.transfer import Transfer, read_transfer
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.tasks import Notify
from holdfast.vocabulary.types import Member

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PlanMirrors:
    """The parts of the store that a plan view is made of."""

    plan: Mirror[tuple[Placement, ...]]
    holders: Mirror[Held]
    moving: Mirror[Transfer]
    members: Mirror[Member]


class _SeenTransfer(NamedTuple):
    """A transfer of ours: its own start, and when this process saw it first."""

    since_ms: int
    first_ms: int


class PlanView:
    """The plan as `agent` sees it. Made by `open_plan_view`; `owned` are the leases the agent serves."""

    def __init__(
        self,
        mirrors: PlanMirrors,
        owned: Mapping[str, Lease],
        *,
        agent: str,
        session: str,
        clock: Clock,
        transfer_timeout_ms: int,
    ) -> None:
        self._mirrors, self._owned, self._agent, self._session = mirrors, owned, agent, session
        self._clock, self._transfer_timeout_ms = clock, transfer_timeout_ms
        self._plans: dict[str, tuple[Placement, ...]] = {}
        self._members: dict[str, Member] = {}
        self._under_way: dict[str, _SeenTransfer] = {}  # our own, the oldest first
        self.undecided: dict[str, None] = {}  # resources about which something has changed
        self._watch()

    @property
    def is_moving(self) -> bool:
        """Whether a transfer of ours is under way."""
        return bool(self._under_way)

    def take_undecided(self, count: int) -> list[str]:
        """At most so many resources that are to be decided; they are decided then."""
        taken = list(islice(self.undecided, count))
        for resource in taken:
            del self.undecided[resource]
        return taken

    def resource(self, resource: str) -> ResourceView:
        """What is known of one resource."""
        return ResourceView(
            resource=resource,
            agent=self._agent,
            session=self._session,
            planned=planned_owner(self._plans, resource),
            held=self._mirrors.holders.items.get(holder_key(resource)),
            transfer=self._mirrors.moving.items.get(transfer_key(resource)),
            members=self._members,
            lease=self._owned.get(resource),
            timed_out=self._timed_out(resource),
        )

    def is_settled(self, resource: str) -> bool:
        """Whether there is nothing to decide, in most cases: it is planned for us and ours, and no transfer of it is known."""
        lease = self._owned.get(resource)
        if lease is None or transfer_key(resource) in self._mirrors.moving.items:
            return False
        held = self._mirrors.holders.items.get(holder_key(resource))
        return (
            held is not None and held.version == lease.version and planned_owner(self._plans, resource) == self._agent
        )

    def shows(self, *, holder: int, transfer: int) -> bool:
        """Whether it has caught up with these versions of the store."""
        return holder <= self._mirrors.holders.version and transfer <= self._mirrors.moving.version

    def reconsider_all(self) -> None:
        """Decide about everything that may be ours."""
        undecided = self.undecided
        for topic, placements in self._plans.items():
            undecided.update(dict.fromkeys(resources_of(topic, placements, self._agent)))
        undecided.update(dict.fromkeys(self._owned))
        for held in self._mirrors.holders.items.values():
            if held.session == self._session:
                undecided[held.resource] = None
        for transfer in self._mirrors.moving.items.values():
            if is_offered_to(transfer, self._agent):
                undecided[transfer.resource] = None

    def reconsider_timed_out(self) -> None:
        """Decide about our transfers that have taken too long."""
        self.undecided.update(dict.fromkeys(takewhile(self._timed_out, self._under_way)))

    def _timed_out(self, resource: str) -> bool:
        seen = self._under_way.get(resource)
        return seen is not None and self._clock.boot_ms() - seen.first_ms >= self._transfer_timeout_ms

    def _watch(self) -> None:
        """From now on, what changes in a mirror is decided again; and everything once, at first."""
        mirrors = self._mirrors
        for mirror, changed in (
            (mirrors.plan, self._plan_changed),
            (mirrors.moving, self._transfers_changed),
            (mirrors.members, self._members_changed),
        ):
            mirror.on_changed = changed
            changed(mirror.items)
        mirrors.holders.on_changed = self._holders_changed

    def _plan_changed(self, keys: Collection[str]) -> None:
        for key in keys:
            topic = key.removeprefix(PLANS)
            before, after = self._plans.pop(topic, ()), self._mirrors.plan.items.get(key, ())
            if after:
                self._plans[topic] = after
            self.undecided.update(dict.fromkeys(changed_resources(topic, before, after)))

    def _holders_changed(self, keys: Collection[str]) -> None:
        self.undecided.update(dict.fromkeys(key.removeprefix(HOLDERS) for key in keys))

    def _transfers_changed(self, keys: Collection[str]) -> None:
        for key in keys:
            resource = key.removeprefix(TRANSFERS)
            self._see_transfer(resource, self._mirrors.moving.items.get(key))
            self.undecided[resource] = None

    def _members_changed(self, _: Collection[str]) -> None:
        self._members = {member.id: member for member in self._mirrors.members.items.values()}
        self.reconsider_all()

    def _see_transfer(self, resource: str, transfer: Transfer | None) -> None:
        """Remember since when a transfer of ours is under way, by this process's own clock."""
        seen = self._under_way.get(resource)
        if transfer is None or not transfer.under_way or transfer.record.source != self._agent:
            self._under_way.pop(resource, None)
        elif seen is None or seen.since_ms != transfer.record.since_ms:
            self._under_way.pop(resource, None)
            self._under_way[resource] = _SeenTransfer(transfer.record.since_ms, self._clock.boot_ms())


@asynccontextmanager
async def open_plan_view(
    store: Store,
    owned: Mapping[str, Lease],
    *,
    agent: str,
    session: str,
    clock: Clock,
    random: Random,
    notify: Notify,
    transfer_timeout_ms: int,
) -> AsyncIterator[PlanView]:
    """A plan view for the body; `notify` is called after every change."""

    def mirror(prefix: str, read: Callable[[Entry], T]) -> AbstractAsyncContextManager[Mirror[T]]:
        return open_mirror(store, prefix, read, clock=clock, random=random, notify=notify)

    async with AsyncExitStack() as stack:
        mirrors = PlanMirrors(
            await stack.enter_async_context(mirror(PLANS, lambda entry: decode_placements(entry.value))),
            await stack.enter_async_context(mirror(holder_key(PLACED), read_holder)),
            await stack.enter_async_context(mirror(TRANSFERS, read_transfer)),
            await stack.enter_async_context(mirror(members_prefix("agent"), read_member)),
        )
        yield PlanView(
            mirrors, owned, agent=agent, session=session, clock=clock, transfer_timeout_ms=transfer_timeout_ms
        )
