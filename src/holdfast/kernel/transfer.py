"""Transfers: a lease moves to another agent with no gap in between.

    pending ──accept──▶ accepted ──complete──▶ completed
       │                   │
       ├─reject─▶ rejected └─fail─▶ failed
       └─fail──▶ failed

The source offers (pending); the target answers that it is ready (accepted) or not (rejected); the source drains, flushes, and
completes in one commit that moves the lease to the target's live session at the next epoch. Until that commit the source is the
owner, whatever goes wrong: a failed transfer costs only time.

The one rule: a transfer is one record per resource, the latest, and every step requires the record it saw.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import msgspec

from holdfast.contracts.commits import commit_resolved
from holdfast.contracts.store import Absent, AtVersion, Committed, Conflict, Entry, Put, Requirement, Store
from holdfast.kernel.keys import transfer_key
from holdfast.kernel.lease import Lease, commit_fenced, transfer_commit
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.random import Random


class TransferState(StrEnum):
    """Where a transfer stands."""

    PENDING = "pending"
    ACCEPTED = "accepted"
    COMPLETED = "completed"
    REJECTED = "rejected"
    FAILED = "failed"


class TransferStep(StrEnum):
    """A step of a transfer. Accept and reject are the target's; complete and fail the source's."""

    ACCEPT = "accept"
    REJECT = "reject"
    COMPLETE = "complete"
    FAIL = "fail"


_TRANSITIONS: Final = {
    (TransferState.PENDING, TransferStep.ACCEPT): TransferState.ACCEPTED,
    (TransferState.PENDING, TransferStep.REJECT): TransferState.REJECTED,
    (TransferState.PENDING, TransferStep.FAIL): TransferState.FAILED,
    (TransferState.ACCEPTED, TransferStep.COMPLETE): TransferState.COMPLETED,
    (TransferState.ACCEPTED, TransferStep.FAIL): TransferState.FAILED,
}


class TransferRecord(msgspec.Struct, frozen=True):
    """The value of `transfer/…`. `epoch` is the source's; `since_ms` is wall time, for people."""

    state: TransferState
    source: str
    target: str
    epoch: int
    since_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """A transfer as the store holds it; `version` is what the next step requires."""

    resource: str
    record: TransferRecord
    version: int

    @property
    def under_way(self) -> bool:
        """Whether any step can follow."""
        return self.record.state in (TransferState.PENDING, TransferState.ACCEPTED)


def next_state(state: TransferState, step: TransferStep) -> TransferState:
    """The table above, as a function."""
    following = _TRANSITIONS.get((state, step))
    if following is None:
        allowed = ", ".join(each for at, each in _TRANSITIONS if at is state) or "none, for it has ended"
        raise InvalidError(f"step of a {state} transfer", str(step), allowed)
    return following


def read_transfer(entry: Entry) -> Transfer:
    """The transfer in a store entry."""
    record = msgspec.json.decode(entry.value, type=TransferRecord)
    return Transfer(resource=entry.key.removeprefix(transfer_key("")), record=record, version=entry.version)


async def offer_transfer(
    store: Store, lease: Lease, *, target: str, latest: Transfer | None, clock: Clock, random: Random
) -> Transfer | None:
    """Offer the lease to `target`. None: another transfer was written meanwhile. Fenced by the lease."""
    key = transfer_key(lease.resource)
    record = TransferRecord(TransferState.PENDING, lease.holder, target, lease.epoch, clock.now_ms())
    unmoved: Requirement = Absent(key) if latest is None else AtVersion(key, latest.version)
    outcome = await commit_fenced(
        store, lease, clock=clock, random=random, require=(unmoved,), apply=(Put(key, msgspec.json.encode(record)),)
    )
    return _transfer_if_committed(lease.resource, record, outcome)


async def answer_transfer(
    store: Store, transfer: Transfer, step: TransferStep, *, clock: Clock, random: Random
) -> Transfer | None:
    """Accept, reject or fail. None: the transfer has moved on meanwhile."""
    if step is TransferStep.COMPLETE:
        raise InvalidError("step", str(step), "accept, reject or fail; `complete_transfer` completes")
    record = msgspec.structs.replace(transfer.record, state=next_state(transfer.record.state, step))
    key = transfer_key(transfer.resource)
    outcome = await commit_resolved(
        store,
        clock=clock,
        random=random,
        require=(AtVersion(key, transfer.version),),
        apply=(Put(key, msgspec.json.encode(record)),),
    )
    return _transfer_if_committed(transfer.resource, record, outcome)


async def complete_transfer(
    store: Store, lease: Lease, transfer: Transfer, *, target_session: str, clock: Clock, random: Random
) -> Lease | None:
    """Move the lease, drained and flushed, to the target's session: the new lease, which is the target's.

    None: the target's session has died or the transfer has moved on; the source still owns the lease. `FencedError`: it does not.
    """
    state = next_state(transfer.record.state, TransferStep.COMPLETE)
    record = msgspec.structs.replace(transfer.record, state=state)
    key = transfer_key(transfer.resource)
    move = transfer_commit(lease, to=transfer.record.target, session=target_session)
    outcome = await commit_fenced(
        store,
        lease,
        clock=clock,
        random=random,
        require=(*move.require[1:], AtVersion(key, transfer.version)),
        apply=(*move.apply, Put(key, msgspec.json.encode(record))),
    )
    if isinstance(outcome, Conflict):
        return None
    return Lease(
        resource=lease.resource,
        holder=transfer.record.target,
        session=target_session,
        epoch=move.epoch,
        version=outcome.version,
    )


def _transfer_if_committed(resource: str, record: TransferRecord, outcome: Committed | Conflict) -> Transfer | None:
    if isinstance(outcome, Conflict):
        return None
    return Transfer(resource=resource, record=record, version=outcome.version)
