"""The part of the store that programs share with the cluster: keys below `user/`, leases of resources below `user/`.

    user/{key}                     a program's own keys
    lease/holder/user/{resource}   its leases, the kernel's own
    user-session/{id}              {"name"}: a session that was opened through a gateway, under that session

The one rule: nothing outside is read, written, renewed or ended. A session without its record is the cluster's own, or has ended.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final

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
    Session,
    Store,
)
from holdfast.kernel import lease as kernel
from holdfast.kernel.keys import holder_key
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import ExpiredError, HoldfastError, InvalidError
from holdfast.vocabulary.random import Random

SPACE: Final = "user/"
_SESSIONS: Final = "user-session/"
_NAME_CHARS_MAX: Final = 200
_KNOWN_MAX: Final = 10_000


class SessionRecord(msgspec.Struct, frozen=True):
    """The value of `user-session/…`."""

    name: str


class UserSpace:
    """Sessions, leases and keys of programs, in one store. Keeps nothing that another node would need."""

    def __init__(self, store: Store, *, clock: Clock, random: Random) -> None:
        self.store, self._clock, self._random = store, clock, random
        self._known: OrderedDict[str, str] = OrderedDict()  # ids and names: an id is never used again

    # ── sessions ──

    async def open_session(self, name: str, ttl_ms: int) -> Session:
        """A session, and the record that says it is a program's."""
        if not name or len(name) > _NAME_CHARS_MAX or not name.isprintable():
            raise InvalidError("name", name[:80], f"1 to {_NAME_CHARS_MAX} printable characters")
        opened = await self.store.open_session(ttl_ms)
        try:
            record = Put(_SESSIONS + opened.id, msgspec.json.encode(SessionRecord(name)), opened.id)
            outcome = await commit_resolved(self.store, clock=self._clock, random=self._random, apply=[record])
        except BaseException:
            with suppress(HoldfastError):
                await self.store.close_session(opened.id)
            raise
        if isinstance(outcome, Conflict):
            raise _ended(opened.id)
        self._remember(opened.id, name)
        return opened

    async def renew(self, session: str) -> None:
        """Another TTL. `ExpiredError`: it has ended."""
        await self.session_name(session)
        if not await self.store.keep_alive(session):
            self._known.pop(session, None)
            raise _ended(session)

    async def close_session(self, session: str) -> None:
        """End it, if it has not."""
        try:
            await self.session_name(session)
        except ExpiredError:
            return
        await self.store.close_session(session)
        self._known.pop(session, None)

    async def session_name(self, session: str) -> str:
        """The name of a session. `ExpiredError`: there is none, or it is not a program's."""
        if session in self._known:
            self._known.move_to_end(session)
            return self._known[session]
        entry = await self.store.get(_SESSIONS + session) if session and session.isprintable() else None
        if entry is None or entry.session != session:
            raise _ended(session)
        return self._remember(session, msgspec.json.decode(entry.value, type=SessionRecord).name)

    def _remember(self, session: str, name: str) -> str:
        self._known[session] = name
        if len(self._known) > _KNOWN_MAX:
            self._known.popitem(last=False)
        return name

    # ── leases ──

    async def acquire(self, session: str, resource: str) -> kernel.Lease | kernel.Held:
        """The lease, also if the session has it already; or who holds it. `ExpiredError`: the session has ended."""
        if not resource:
            raise InvalidError("resource", resource, "a name")
        holder = await self.session_name(session)
        found = await kernel.acquire(
            self.store, SPACE + resource, holder=holder, session=session, clock=self._clock, random=self._random
        )
        if isinstance(found, kernel.Held) and found.session == session:
            return kernel.Lease(
                resource=found.resource, holder=found.holder, session=session, epoch=found.epoch, version=found.version
            )
        return found

    async def release(self, lease: kernel.Lease) -> bool:
        """Give it up; False: it was no longer held."""
        return bool(await kernel.release(self.store, lease, clock=self._clock, random=self._random))

    # ── keys ──

    async def get(self, key: str) -> Entry | None:
        """A key."""
        return await self.store.get(_own(key))

    async def commit(
        self, lease: kernel.Lease | None, require: Sequence[Requirement], apply: Sequence[Operation]
    ) -> Committed | Conflict:
        """One commit of the store, under the fence of a lease if there is one.

        `FencedError`: somebody newer has the lease. `ExpiredError`: its session, or that of a put, has ended.
        """
        for session in {each.session for each in apply if isinstance(each, Put) and each.session is not None}:
            await self.session_name(session)
        clock, random = self._clock, self._random
        if lease is None:
            outcome = await commit_resolved(self.store, clock=clock, random=random, require=require, apply=apply)
        else:
            held = AtVersion(holder_key(lease.resource), lease.version)
            outcome = await kernel.commit_fenced(
                self.store, lease, clock=clock, random=random, require=(held, *require), apply=apply
            )
            if isinstance(outcome, Conflict):
                holder = outcome.found.get(held.key)
                if holder is None or holder.version != held.version:
                    raise ExpiredError(f"lease on {shown(lease.resource)}", "its session no longer holds it")
        if isinstance(outcome, Conflict) and outcome.dead_session is not None:
            raise _ended(outcome.dead_session)
        return outcome


def requirement(key: str, version: int) -> Requirement:
    """That a key was last written by a version; 0: that it does not exist."""
    return AtVersion(_own(key), version) if version else Absent(_own(key))


def put(key: str, value: bytes, session: str) -> Put:
    """Write a key."""
    return Put(_own(key), value, session or None)


def delete(key: str) -> Delete:
    """Remove a key."""
    return Delete(_own(key))


def space_lease(resource: str, holder: str, epoch: int, version: int) -> kernel.Lease:
    """A lease as its holder names it: the version is what proves it."""
    if not resource or version < 1:
        raise InvalidError("lease", resource, "one that was acquired, with its version")
    return kernel.Lease(resource=SPACE + resource, holder=holder, session="", epoch=epoch, version=version)


def shown(name: str) -> str:
    """A key or a resource without the name of the space."""
    return name.removeprefix(SPACE)


def own_entries(entries: Iterable[Entry | None]) -> Iterable[Entry]:
    """Those that are there, and in the space: leases are not."""
    return (entry for entry in entries if entry is not None and entry.key.startswith(SPACE))


def _own(key: str) -> str:
    if not key:
        raise InvalidError("key", key, "a name")
    return SPACE + key


def _ended(session: str) -> ExpiredError:
    return ExpiredError(f"session {session[:80]!r}", "the store has no such session of a client (any more)")
