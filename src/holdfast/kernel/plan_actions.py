"""Plan actions: what an agent does about the plan. Pure decisions; `plan_executor` carries them out.

The one rule: an agent acts on the plan alone. It acquires what is planned for it and free, offers what it holds and is planned
elsewhere, adopts what was transferred to it, and drops at once what it has lost.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from holdfast.kernel.keys import partition_resource
from holdfast.kernel.lease import Held, Lease
from holdfast.kernel.placement import PlacementPlan
from holdfast.kernel.transfer import Transfer, TransferState
from holdfast.vocabulary.types import Member, TopicPartition


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
class AgentView:
    """All an agent decides by: the mirrored store, and its own leases.

    `timed_out` are resources whose transfer took too long; `unconfirmed` those whose last action the mirrors do not show yet.
    """

    agent: str
    session: str
    plan: PlacementPlan
    holders: Mapping[str, Held]
    transfers: Mapping[str, Transfer]
    members: Mapping[str, Member]
    owned: Mapping[str, Lease]
    timed_out: frozenset[str] = frozenset()
    unconfirmed: frozenset[str] = frozenset()


def planned_owners(plan: PlacementPlan) -> dict[str, str]:
    """Resource → planned owner, for every partition that has one."""
    return {
        resource: placement[0]
        for topic, placements in plan.items()
        for resource, placement in zip(_resources(topic, len(placements)), placements, strict=True)
        if placement
    }


@lru_cache(maxsize=10_000)
def _resources(topic: str, count: int) -> tuple[str, ...]:
    """The resources of a topic's partitions, which every decision needs."""
    return tuple(partition_resource(TopicPartition(topic, number)) for number in range(count))


def decide(view: AgentView) -> list[PlanAction]:
    """Everything to do now, at most one action per resource, in resource order."""
    owners = planned_owners(view.plan)
    mine = {resource for resource, owner in owners.items() if owner == view.agent}
    offered = {
        resource
        for resource, transfer in view.transfers.items()
        if transfer.record.target == view.agent and transfer.record.state is TransferState.PENDING
    }
    actions = []
    for resource in sorted({*mine, *view.owned, *offered, *_leases_under_our_session(view)} - view.unconfirmed):
        lease = view.owned.get(resource)
        action = _decide_not_owned(view, resource, owners) if lease is None else _decide_owned(view, lease, owners)
        if action is not None:
            actions.append(action)
    return actions


def _leases_under_our_session(view: AgentView) -> set[str]:
    return {held.resource for held in view.holders.values() if held.session == view.session}


def _decide_not_owned(view: AgentView, resource: str, owners: Mapping[str, str]) -> PlanAction | None:
    """For a resource we do not serve."""
    held = view.holders.get(resource)
    if held is None:
        return AcquireLease(resource) if owners.get(resource) == view.agent else None
    if held.session == view.session:
        return AdoptLease(held)
    transfer = view.transfers.get(resource)
    if transfer is not None and transfer.record.target == view.agent and transfer.record.state is TransferState.PENDING:
        return AnswerTransfer(transfer, accepted=owners.get(resource) == view.agent)
    return None  # its holder will offer it, or its session will end


def _decide_owned(view: AgentView, lease: Lease, owners: Mapping[str, str]) -> PlanAction | None:
    """For a resource we serve."""
    held = view.holders.get(lease.resource)
    if held is None or held.version != lease.version:
        return DropLease(lease)
    transfer = view.transfers.get(lease.resource)
    ours = transfer is not None and transfer.record.epoch == lease.epoch and transfer.record.source == view.agent
    target = owners.get(lease.resource)
    if transfer is not None and ours and transfer.under_way:
        receiver = view.members.get(transfer.record.target)
        if transfer.record.target != target or receiver is None or lease.resource in view.timed_out:
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
