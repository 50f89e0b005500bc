"""Store: versioned keys, atomic commits, sessions judged by the store's own clock, and watches without gaps.

The one rule: `commit` is the only write, and losing a race is an answer, not an error. All coordination in Holdfast is
written against this page and runs on every engine; `holdfast.testing.store_contract` holds each engine to it.

Time. A session is dead once a *commit* has ended it: a reaper's, or that of a contender that finds it overdue. Until
then every reader sees its keys; afterwards they never come back, whatever any clock does.

Order. Versions grow store-wide in commit order. A reader at version v has seen every commit up to v.

Values are JSON text (UTF-8), so that people can read them with the engine's own tools.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Entry:
    """A key as one commit left it. `version` is that commit's; the key is removed when `session` ends."""

    key: str
    value: bytes
    version: int
    session: str | None = None


@dataclass(frozen=True, slots=True)
class AtVersion:
    """Requires that `key` exists and was last written by commit `version`."""

    key: str
    version: int


@dataclass(frozen=True, slots=True)
class Absent:
    """Requires that `key` does not exist."""

    key: str


@dataclass(frozen=True, slots=True)
class Put:
    """Writes `key`. Under a `session`, the key vanishes when the session ends; without one, it stays."""

    key: str
    value: bytes
    session: str | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    """Removes `key`; removing an absent key changes nothing."""

    key: str


Requirement = AtVersion | Absent
Operation = Put | Delete


@dataclass(frozen=True, slots=True)
class Committed:
    """All operations were applied, durably, as commit `version`."""

    version: int


@dataclass(frozen=True, slots=True)
class Conflict:
    """Nothing was applied. `found` is what the required keys held; `dead_session` is the ended session of a put, if any."""

    found: Mapping[str, Entry | None] = field(default_factory=dict)
    dead_session: str | None = None


@dataclass(frozen=True, slots=True)
class NotCommitted:
    """The commit in question was not applied, and now never will be."""


@dataclass(frozen=True, slots=True)
class Scan:
    """Entries of a range as they stood, all together, at `version`. `more`: the limit left some out."""

    version: int
    entries: tuple[Entry, ...]
    more: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """What a commit did to one key: `entry` is its new state, None if it is gone."""

    key: str
    entry: Entry | None


@dataclass(frozen=True, slots=True)
class Changed:
    """All changes of one commit below the watched prefix, in key order."""

    version: int
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class Resync:
    """History up to `version` is no longer kept: scan again. Changes after `version` follow."""

    version: int


@dataclass(frozen=True, slots=True)
class Session:
    """A session and the TTL the engine really granted (etcd grants whole seconds, two at least)."""

    id: str
    ttl_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFacts:
    """An engine's properties as checked at open, for `holdfast store check` and for the log."""

    engine: str
    server: str
    durability: str
    incarnation: str
    notes: tuple[str, ...] = ()


class Store(Protocol):
    """Versioned keys on some engine. Safe for many tasks of one event loop; each process opens its own.

    Any method may raise `UnavailableError` (nothing happened; retry), `ClosedError`, or `CorruptError` once the engine
    was caught going backwards (version or incarnation): from then on every call does, so that every holder stops.
    """

    @property
    def facts(self) -> StoreFacts:
        """The properties checked at open."""
        ...

    async def get(self, key: str) -> Entry | None:
        """The key as the latest commit left it."""
        ...

    async def scan(self, start: str, end: str, *, limit: int | None = None, reverse: bool = False) -> Scan:
        """Keys in [start, end) in code point order, at one version however many there are.

        `reverse` with `limit=1` is the floor look-up: the last key below `end`.
        """
        ...

    async def commit(
        self, *, require: Sequence[Requirement] = (), apply: Sequence[Operation] = ()
    ) -> Committed | Conflict:
        """Apply all operations if all requirements hold, atomically and durably.

        Lost race: `Conflict`. Unknown: `OutcomeUnknownError`, resolved by `resolve`. Without operations it is a consistent
        check of the requirements, and the version is the store's current one. No key is written twice in one commit.
        """
        ...

    async def resolve(self, commit_id: str) -> Committed | NotCommitted:
        """The outcome of the commit in an `OutcomeUnknownError`. The answer is final: a commit still in flight is refused.

        Call it within an hour of the loss; idempotent.
        """
        ...

    async def open_session(self, ttl_ms: int) -> Session:
        """Start a session that lives for its TTL after each keep-alive."""
        ...

    async def keep_alive(self, session_id: str) -> bool:
        """Renew for another TTL. False: the session is dead, which is final."""
        ...

    async def close_session(self, session_id: str) -> None:
        """End the session and remove its keys in one commit. Ending a dead session does nothing."""
        ...

    def watch(self, prefix: str, *, from_version: int) -> AbstractAsyncContextManager[AsyncIterator[Changed | Resync]]:
        """Push every commit after `from_version` that changes a key below `prefix`, in order, none missing.

        Broken connections are re-established inside; the iterator continues where it was. It ends only when left, with
        `ClosedError` when the store is closed, or with `CorruptError`.
        """
        ...
