"""Which agent has which WAL open, so that a partition whose last records are in one is handed to that agent.

The plan does not consider WALs. When it gives a partition to an agent that cannot open it, because the unpublished records are in
the WAL of another that is alive, the lease is sent there in one commit. That agent opens it, publishes, and hands it over as
planned.
"""

import msgspec

from holdfast.contracts.commits import commit_resolved
from holdfast.contracts.store import Committed, Entry, Put, Store
from holdfast.kernel.lease import Lease, transfer_commit
from holdfast.log.keys import wal_agent_key, wal_key
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import ExpiredError, FencedError
from holdfast.vocabulary.random import Random


class WalOwner(msgspec.Struct, frozen=True):
    """What stands under `wal/…` and `wal-agent/…`."""

    agent: str


async def register_wal_owner(
    store: Store, wal_id: str, *, agent: str, session: str, clock: Clock, random: Random, replica: str = ""
) -> None:
    """Record, for the life of the session, that this agent has the WAL open; and for good, that it had it last.

    `replica`: the name under which the WAL is counted as a replica, if that is another one, because it was repaired.
    """
    owner = msgspec.json.encode(WalOwner(agent))
    names = dict.fromkeys((wal_id, replica or wal_id))
    puts = (Put(wal_key(wal_id), owner, session), *(Put(wal_agent_key(name), owner) for name in names))
    if not isinstance(await commit_resolved(store, clock=clock, random=random, apply=puts), Committed):
        raise ExpiredError(f"session {session}", "the store has ended it")


async def last_wal_agent(store: Store, wal_id: str) -> str | None:
    """The agent that had the WAL last, alive or not; None: it was opened by a release that did not record it."""
    entry = await store.get(wal_agent_key(wal_id))
    return None if entry is None else read_wal_agent(entry)


def read_wal_agent(entry: Entry) -> str:
    """The agent in a `wal/…` or `wal-agent/…` entry."""
    return msgspec.json.decode(entry.value, type=WalOwner).agent


async def close_previous_session(store: Store, wal_id: str) -> None:
    """End the session under which this WAL was open before, if it still stands: we have the WAL's lock, so its owner is dead.

    Without this, a process that was killed and started again would wait for its own lease to run out. It only saves
    time: if the former owner were alive after all, its commits would be fenced.
    """
    entry = await store.get(wal_key(wal_id))
    if entry is not None and entry.session is not None:
        await store.close_session(entry.session)


async def hand_over_to_wal_owner(store: Store, lease: Lease, wal_id: str, *, clock: Clock, random: Random) -> None:
    """Hand the lease to the agent that has the WAL open. Returns if none has; `FencedError`: it is handed over (or lost)."""
    entry = await store.get(wal_key(wal_id))
    if entry is None or entry.session is None or entry.session == lease.session:
        return
    given = transfer_commit(lease, to=msgspec.json.decode(entry.value, type=WalOwner).agent, session=entry.session)
    outcome = await commit_resolved(store, clock=clock, random=random, require=given.require, apply=given.apply)
    if isinstance(outcome, Committed):
        raise FencedError(lease.resource, lease.epoch, given.epoch)
