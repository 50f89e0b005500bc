"""Plan actions: what an agent does about the plan. Pure decisions; `plan_executor` carries them out.

The one rule: an agent acts on the plan alone. It acquires what is planned for it and free, offers what it holds and is planned
elsewhere, adopts what was transferred to it, and drops at once what it has lost.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from holdfast.kernel.keys import placed_resource, workload_of
from holdfast.kernel.lease import Held, Lease
from holdfast.kernel.placement import Placement, PlacementPlan
from holdfast.kernel.transfer import Transfer, TransferState
from holdfast.vocabulary.types import Member


@dataclass(frozen=True, slots=True)
class AcquireLease:
    """Acquire a free lease that is planned for us."""

    resource: str


@dataclass(frozen=True, slots=True)
class AdoptLease:
    """A transfer has put this lease under our session: open it."""

    held: Held

    @property
    def resource(self) -> str:
        return self.held.resource


@dataclass(frozen=True, slots=True)
class OfferTransfer:
    """Begin a transfer to the planned owner."""

    lease: Lease
    target: str
    latest: Transfer | None

    @property
    def resource(self) -> str:
        return self.lease.resource


@dataclass(frozen=True, slots=True)
class AnswerTransfer:
    """Answer an offer made to us: accept if the plan agrees, reject otherwise."""

    transfer: Transfer
    accepted: bool

    @property
    def resource(self) -> str:
        return self.transfer.resource


@dataclass(frozen=True, slots=True)
class CompleteTransfer:
    """Drain and transfer: the target has accepted."""

    lease: Lease
    transfer: Transfer
    target_session: str

    @property
    def resource(self) -> str:
        return self.lease.resource


@dataclass(frozen=True, slots=True)
class FailTransfer:
    """Fail a transfer of ours that is obsolete or has taken too long. We stay the owner."""

    transfer: Transfer

    @property
    def resource(self) -> str:
        return self.transfer.resource


@dataclass(frozen=True, slots=True)
class ReleaseLease:
    """Drain and release: nobody is planned to own this (a deleted topic, or no agent left)."""

    lease: Lease

    @property
    def resource(self) -> str:
        return self.lease.resource


@dataclass(frozen=True, slots=True)
class DropLease:
    """Somebody else holds it, or nobody: stop serving at once."""

    lease: Lease

    @property
    def resource(self) -> str:
        return self.lease.resource


PlanAction = (
    AcquireLease
    | AdoptLease
    | OfferTransfer
    | AnswerTransfer
    | CompleteTransfer
    | FailTransfer
    | ReleaseLease
    | DropLease
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceView:
    """All an agent decides by about one resource: the mirrored store, and its own lease.

    `planned`: the planned owner. `lease`: ours, if we serve it. `timed_out`: our transfer of it took too long.
    """

    resource: str
    agent: str
    session: str
    planned: str | None
    held: Held | None
    transfer: Transfer | None
    members: Mapping[str, Member]
    lease: Lease | None
    timed_out: bool = False

    @property
    def offered(self) -> bool:
        """Whether somebody waits for our answer to an offer."""
        return self.transfer is not None and is_offered_to(self.transfer, self.agent)


def is_offered_to(transfer: Transfer, agent: str) -> bool:
    """Whether the transfer waits for the answer of this agent."""
    return transfer.record.target == agent and transfer.record.state is TransferState.PENDING


def planned_owner(plan: PlacementPlan, resource: str) -> str | None:
    """Who is planned to own a resource."""
    workload, number = workload_of(resource)
    placements = plan.get(workload, ())
    placement = placements[number] if number < len(placements) else ()
    return placement[0] if placement else None


def resources_of(topic: str, placements: Sequence[Placement], agent: str) -> Iterator[str]:
    """The resources of a topic that are planned for an agent."""
    for number, placement in enumerate(placements):
        if placement and placement[0] == agent:
            yield placed_resource(topic, number)


def changed_resources(topic: str, before: Sequence[Placement], after: Sequence[Placement]) -> Iterator[str]:
    """The resources of a topic whose planned owner is another than before."""
    for number, (old, new) in enumerate(zip_longest(before, after, fillvalue=())):
        if old[:1] != new[:1]:
            yield placed_resource(topic, number)


def decide(view: ResourceView) -> PlanAction | None:
    """What to do about a resource now."""
    return _decide_not_owned(view) if view.lease is None else _decide_owned(view, view.lease)


def _decide_not_owned(view: ResourceView) -> PlanAction | None:
    """For a resource we do not serve."""
    held = view.held
    if held is None:
        return AcquireLease(view.resource) if view.planned == view.agent else None
    if held.session == view.session:
        return AdoptLease(held)
    if view.transfer is not None and view.offered:
        return AnswerTransfer(view.transfer, accepted=view.planned == view.agent)
    return None  # its holder will offer it, or its session will end


def _decide_owned(view: ResourceView, lease: Lease) -> PlanAction | None:
    """For a resource we serve."""
    held, transfer, target = view.held, view.transfer, view.planned
    if held is None or held.version != lease.version:
        return DropLease(lease)
    ours = transfer is not None and transfer.record.epoch == lease.epoch and transfer.record.source == view.agent
    if transfer is not None and ours and transfer.under_way:
        receiver = view.members.get(transfer.record.target)
        if transfer.record.target != target or receiver is None or view.timed_out:
            return FailTransfer(transfer)
        if transfer.record.state is TransferState.ACCEPTED:
            return CompleteTransfer(lease, transfer, receiver.session)
        return None
    if target == view.agent:
        return None
    if target is not None and target in view.members:
        return OfferTransfer(lease, target, transfer)
    # A planned owner that is not (or no longer) a member cannot take it: keep serving until the plan changes.
    return ReleaseLease(lease) if target is None else None
