"""What an agent does about the plan: pure decisions. `follower` carries them out.

An agent follows the plan alone; it never guesses. It takes what is planned for it and free, offers what it holds and is planned
elsewhere, adopts what was handed to it, and gives up at once what it has lost.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from holdfast.kernel.keys import partition_resource
from holdfast.kernel.lease import Held, Lease
from holdfast.kernel.plan import Plan
from holdfast.kernel.transfer import State, Transfer
from holdfast.vocabulary.nouns import Member, Partition


@dataclass(frozen=True, slots=True)
class Take:
    """Acquire a free lease that is planned for us."""

    resource: str


@dataclass(frozen=True, slots=True)
class Adopt:
    """A transfer has put this lease under our session: open it."""

    held: Held

    @property
    def resource(self) -> str:
        return self.held.resource


@dataclass(frozen=True, slots=True)
class Offer:
    """Begin a transfer to the planned owner."""

    lease: Lease
    target: str
    latest: Transfer | None

    @property
    def resource(self) -> str:
        return self.lease.resource


@dataclass(frozen=True, slots=True)
class Accept:
    """Answer an offer made to us: accept if the plan agrees, reject otherwise."""

    transfer: Transfer
    agreed: bool

    @property
    def resource(self) -> str:
        return self.transfer.resource


@dataclass(frozen=True, slots=True)
class Complete:
    """Drain and hand over: the target has accepted."""

    lease: Lease
    transfer: Transfer
    target_session: str

    @property
    def resource(self) -> str:
        return self.lease.resource


@dataclass(frozen=True, slots=True)
class Abandon:
    """Fail a transfer of ours that has become pointless or has taken too long. We stay the owner."""

    transfer: Transfer

    @property
    def resource(self) -> str:
        return self.transfer.resource


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Drain and release: nobody is planned to own this (a deleted topic, or no other agent is there)."""

    lease: Lease

    @property
    def resource(self) -> str:
        return self.lease.resource


@dataclass(frozen=True, slots=True)
class Lost:
    """Somebody else holds it, or nobody: stop serving at once."""

    lease: Lease

    @property
    def resource(self) -> str:
        return self.lease.resource


Action = Take | Adopt | Offer | Accept | Complete | Abandon | GiveUp | Lost


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The world as an agent sees it: the store's (mirrored) and its own.

    `late` are transfers past their time; `resting` are resources whose last action the mirrors do not show yet.
    """

    me: str
    session: str
    plan: Plan
    holders: Mapping[str, Held]
    transfers: Mapping[str, Transfer]
    members: Mapping[str, Member]
    owned: Mapping[str, Lease]
    late: frozenset[str] = frozenset()
    resting: frozenset[str] = frozenset()


def planned_owners(plan: Plan) -> dict[str, str]:
    """Resource → planned owner, for every partition that has one."""
    return {
        resource: placement[0]
        for topic, placements in plan.items()
        for resource, placement in zip(_resources(topic, len(placements)), placements, strict=True)
        if placement
    }


@lru_cache(maxsize=10_000)
def _resources(topic: str, count: int) -> tuple[str, ...]:
    """The names of a topic's partitions, which are asked for at every look."""
    return tuple(partition_resource(Partition(topic, number)) for number in range(count))


def decide(view: View) -> list[Action]:
    """Everything to do now, at most one action per resource, in resource order."""
    owners = planned_owners(view.plan)
    mine = {resource for resource, owner in owners.items() if owner == view.me}
    offered = {
        resource
        for resource, transfer in view.transfers.items()
        if transfer.record.target == view.me and transfer.record.state is State.PENDING
    }
    actions = []
    for resource in sorted({*mine, *view.owned, *offered, *_handed_to_us(view)} - view.resting):
        lease = view.owned.get(resource)
        action = _as_stranger(view, resource, owners) if lease is None else _as_owner(view, lease, owners)
        if action is not None:
            actions.append(action)
    return actions


def _handed_to_us(view: View) -> set[str]:
    return {held.resource for held in view.holders.values() if held.session == view.session}


def _as_stranger(view: View, resource: str, owners: Mapping[str, str]) -> Action | None:
    """For a resource we do not serve."""
    held = view.holders.get(resource)
    if held is None:
        return Take(resource) if owners.get(resource) == view.me else None
    if held.session == view.session:
        return Adopt(held)
    transfer = view.transfers.get(resource)
    if transfer is not None and transfer.record.target == view.me and transfer.record.state is State.PENDING:
        return Accept(transfer, agreed=owners.get(resource) == view.me)
    return None  # its holder will offer it, or die


def _as_owner(view: View, lease: Lease, owners: Mapping[str, str]) -> Action | None:
    """For a resource we serve."""
    held = view.holders.get(lease.resource)
    if held is None or held.version != lease.version:
        return Lost(lease)
    transfer = view.transfers.get(lease.resource)
    ours = transfer is not None and transfer.record.epoch == lease.epoch and transfer.record.source == view.me
    target = owners.get(lease.resource)
    if transfer is not None and ours and transfer.under_way:
        receiver = view.members.get(transfer.record.target)
        if transfer.record.target != target or receiver is None or lease.resource in view.late:
            return Abandon(transfer)
        if transfer.record.state is State.ACCEPTED:
            return Complete(lease, transfer, receiver.session)
        return None
    if target == view.me:
        return None
    if target is not None and target in view.members:
        return Offer(lease, target, transfer)
    # A planned owner that is not there yet (or not any more) cannot take it: keep serving until the plan knows.
    return GiveUp(lease) if target is None else None
