"""Leases: the right to act on a resource, fenced by an epoch.

Holder and epoch are two keys written by one commit, so one version stands for both. The holder key vanishes with the holder's
session; the epoch key outlives it, so epochs never repeat. An epoch whose resource is gone for good may be deleted, by a commit
that lifts `lease/epoch-floor` to it: a lease without an epoch key begins above the floor. Only the session is renewed: ten thousand
leases cost one keep-alive. Every effect goes through `commit_fenced`, which the store refuses once somebody has acquired after us.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from sys import intern

import msgspec

from holdfast.contracts.commits import commit_resolved
from holdfast.contracts.store import (
    Absent,
    AtVersion,
    Committed,
    Conflict,
    Delete,
    Entry,
    Operation,
    Put,
    Requirement,
    Store,
)
from holdfast.kernel.keys import EPOCH_FLOOR, HOLDERS, epoch_key, holder_key, rotation_key, transfer_key
from holdfast.kernel.session import HeldSession
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import ExpiredError, FencedError, HoldfastError
from holdfast.vocabulary.random import Random


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right to act on `resource` while `session` lives, fenced by `epoch`, won in commit `version`."""

    resource: str
    holder: str
    session: str
    epoch: int
    version: int

    def fence(self) -> Requirement:
        """The requirement that nobody has acquired the resource since."""
        return AtVersion(epoch_key(self.resource), self.version)


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """The resource has a holder; perhaps an earlier process of ours."""

    resource: str
    holder: str
    session: str | None
    epoch: int
    version: int


class HolderRecord(msgspec.Struct, frozen=True):
    """The value of `lease/holder/…`."""

    holder: str
    epoch: int


class EpochRecord(msgspec.Struct, frozen=True):
    """The value of `lease/epoch/…`."""

    epoch: int


def read_holder(entry: Entry) -> Held:
    """The holder in a store entry."""
    record = msgspec.json.decode(entry.value, type=HolderRecord)
    # Interned: a process has several mirrors of ten thousand holders, and most name the same few agents.
    return Held(
        resource=intern(entry.key.removeprefix(HOLDERS)),
        holder=intern(record.holder),
        session=None if entry.session is None else intern(entry.session),
        epoch=record.epoch,
        version=entry.version,
    )


def read_epoch(entry: Entry | None) -> int:
    """The epoch in a store entry; a resource never held is at epoch 0."""
    return 0 if entry is None else msgspec.json.decode(entry.value, type=EpochRecord).epoch


@dataclass(frozen=True, slots=True)
class LeaseCommit:
    """A commit about a lease: if it wins, the lease, or the floor, is at `epoch`."""

    epoch: int
    require: tuple[Requirement, ...]
    apply: tuple[Operation, ...]


def acquire_commit(
    resource: str, holder: str, session: str, epoch_entry: Entry | None, floor_entry: Entry | None = None
) -> LeaseCommit:
    """The commit that acquires a resource whose epoch key and floor are as given and whose holder is gone."""
    known: tuple[Requirement, ...]
    if epoch_entry is not None:
        epoch = read_epoch(epoch_entry) + 1
        known = (AtVersion(epoch_entry.key, epoch_entry.version),)
    else:
        epoch = read_epoch(floor_entry) + 1
        # The floor too: it rises in the commit that deletes an epoch.
        known = (Absent(epoch_key(resource)), _unchanged(EPOCH_FLOOR, floor_entry))
    return LeaseCommit(
        epoch, (Absent(holder_key(resource)), *known), _lease_operations(resource, holder, session, epoch)
    )


def forget_commit(resources: Mapping[str, Entry], floor_entry: Entry | None) -> LeaseCommit:
    """The commit that deletes the epochs (as given) of resources that nobody holds, and lifts the floor to the highest of them."""
    epoch = max(read_epoch(floor_entry), *(read_epoch(entry) for entry in resources.values()))
    require: list[Requirement] = [_unchanged(EPOCH_FLOOR, floor_entry)]
    apply: list[Operation] = [Put(EPOCH_FLOOR, msgspec.json.encode(EpochRecord(epoch)))]
    for resource, entry in resources.items():
        require += [AtVersion(entry.key, entry.version), Absent(holder_key(resource))]
        apply += [Delete(entry.key), Delete(transfer_key(resource)), Delete(rotation_key(resource))]
    return LeaseCommit(epoch, tuple(require), tuple(apply))


def _unchanged(key: str, entry: Entry | None) -> Requirement:
    return Absent(key) if entry is None else AtVersion(key, entry.version)


def _lease_operations(resource: str, holder: str, session: str, epoch: int) -> tuple[Operation, ...]:
    return (
        Put(holder_key(resource), msgspec.json.encode(HolderRecord(holder, epoch)), session),
        Put(epoch_key(resource), msgspec.json.encode(EpochRecord(epoch))),
    )


def transfer_commit(lease: Lease, *, to: str, session: str) -> LeaseCommit:
    """The commit by which the present holder moves the lease to another session, with no gap in between."""
    require = (lease.fence(), AtVersion(holder_key(lease.resource), lease.version))
    return LeaseCommit(lease.epoch + 1, require, _lease_operations(lease.resource, to, session, lease.epoch + 1))


async def acquire(
    store: Store, resource: str, *, holder: str, session: str, clock: Clock, random: Random, seen: Entry | None = None
) -> Lease | Held:
    """Take the lease if it is free; `Held` names its holder. `ExpiredError`: our own session is dead.

    `seen`: its epoch, if it was read; without it the first attempt assumes that nobody ever held it.

    `OutcomeUnknownError`: it may be ours. Adopt it from the holder key (as `PlanExecutor` does) or end the session; otherwise it
    stays held until the session ends.
    """
    floor: Entry | None = None
    while True:
        offer = acquire_commit(resource, holder, session, seen, floor)
        outcome = await commit_resolved(store, clock=clock, random=random, require=offer.require, apply=offer.apply)
        if isinstance(outcome, Committed):
            return Lease(resource=resource, holder=holder, session=session, epoch=offer.epoch, version=outcome.version)
        present = outcome.found.get(holder_key(resource))
        if present is not None:
            return read_holder(present)
        if outcome.dead_session is not None:
            raise ExpiredError(f"session {session}", "the store has ended it")
        seen = outcome.found.get(epoch_key(resource))  # an earlier holder has left its epoch
        floor = outcome.found.get(EPOCH_FLOOR)


async def release(store: Store, lease: Lease, *, clock: Clock, random: Random) -> int:
    """Give the lease up; the version of that commit. 0: it was no longer ours, and nothing was changed."""
    key = holder_key(lease.resource)
    outcome = await commit_resolved(
        store, clock=clock, random=random, require=(AtVersion(key, lease.version), lease.fence()), apply=(Delete(key),)
    )
    return outcome.version if isinstance(outcome, Committed) else 0


async def commit_fenced(
    store: Store,
    lease: Lease,
    *,
    clock: Clock,
    random: Random,
    require: Sequence[Requirement] = (),
    apply: Sequence[Operation] = (),
) -> Committed | Conflict:
    """Commit an effect of this lease. `FencedError` if a newer epoch exists; `Conflict` if another requirement failed."""
    outcome = await commit_resolved(store, clock=clock, random=random, require=(lease.fence(), *require), apply=apply)
    if isinstance(outcome, Conflict):
        current = outcome.found.get(epoch_key(lease.resource))
        if current is None or current.version != lease.version:
            raise FencedError(lease.resource, lease.epoch, read_epoch(current))
    return outcome


async def retake(store: Store, lease: Lease, *, clock: Clock, random: Random) -> Lease | None:
    """Take a lease of our own again, at the next epoch, with no gap in between. None: it is no longer ours."""
    move = transfer_commit(lease, to=lease.holder, session=lease.session)
    outcome = await commit_resolved(store, clock=clock, random=random, require=move.require, apply=move.apply)
    if isinstance(outcome, Committed):
        return replace(lease, epoch=move.epoch, version=outcome.version)
    if outcome.dead_session is not None:
        raise ExpiredError(f"session {lease.session}", "the store has ended it")
    return None


async def _retake_held(store: Store, held: Held, *, clock: Clock, random: Random) -> Lease | Held:
    """Take a lease of our own session again; as it was, if it has changed meanwhile."""
    session = held.session or ""
    mine = Lease(resource=held.resource, holder=held.holder, session=session, epoch=held.epoch, version=held.version)
    return await retake(store, mine, clock=clock, random=random) or held


@asynccontextmanager
async def hold_lease(
    store: Store, resource: str, *, holder: str, session: HeldSession, clock: Clock, random: Random
) -> AsyncIterator[Lease | Held]:
    """Hold a lease for the body if it is free; leaving releases it. The session notices when it is lost.

    One body at a time per resource and session: what the session holds already is left from a body whose answer was lost, and is
    taken again at the next epoch, which refuses whatever that body may still have on its way.
    """
    lease = await acquire(store, resource, holder=holder, session=session.id, clock=clock, random=random)
    if isinstance(lease, Held) and lease.session == session.id:
        lease = await _retake_held(store, lease, clock=clock, random=random)
    try:
        yield lease
    finally:
        if isinstance(lease, Lease) and session.alive():
            with suppress(HoldfastError):  # the end of the session releases what we could not
                await release(store, lease, clock=clock, random=random)
