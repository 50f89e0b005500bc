"""Transaction: what a batch does to the database between BEGIN IMMEDIATE and COMMIT. Runs on the writer's thread.

It owns the meaning of every write: versions, the change log, sessions and their expiry, commit ids. It neither begins nor ends
the SQL transaction, and it changes nothing for a write that fails its requirements, so a conflict affects no other write.
"""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.contracts.store import (
    AtVersion,
    Change,
    Changed,
    Committed,
    Conflict,
    Entry,
    NotCommitted,
    Operation,
    Put,
    Requirement,
)
from holdfast.stores.sqlite import errors

_LOG: Final = "INSERT INTO changes VALUES (?, ?, ?, ?, ?)"


@dataclass(frozen=True, slots=True)
class Head:
    """The store's version, next session deadline, identity, and the end of what the log has pruned."""

    version: int
    due_ms: int | None
    incarnation: str
    boot_id: str
    gone_until: int


def read_head(connection: sqlite3.Connection) -> Head:
    """The head, as the connection's transaction sees it."""
    row = connection.execute(
        "SELECT coalesce((SELECT max(version) FROM changes), 0), (SELECT min(deadline_ms) FROM sessions), "
        "incarnation, boot_id, gone_until FROM head"
    ).fetchone()
    if row is None:
        raise errors.corrupt("the row of table head is missing")
    return Head(*row)


class Transaction:
    """The store at one moment, with the write lock held. `now_ms` is the host's boot clock, read after the lock was taken."""

    def __init__(self, connection: sqlite3.Connection, *, now_ms: int, collect: bool = False) -> None:
        self._execute = connection.execute
        self.now_ms, self._collect = now_ms, collect
        self.head = read_head(connection)
        self.version = self.head.version
        self.changed: list[Changed] = []  # what was committed, if it was to be collected
        self.opened_session = False

    def reap(self) -> None:
        """End every overdue session, each in a commit of its own."""
        if self.head.due_ms is None or self.head.due_ms > self.now_ms:
            return
        overdue = "SELECT id FROM sessions WHERE deadline_ms <= ? ORDER BY deadline_ms, id"
        for (session_id,) in self._execute(overdue, (self.now_ms,)).fetchall():
            self.close_session(session_id)

    def end_former_boot(self, boot_id: str) -> None:
        """End every session of a former boot: its clock is gone, so no session can be shown to be alive."""
        for (session_id,) in self._execute("SELECT id FROM sessions ORDER BY id").fetchall():
            self.close_session(session_id)
        # Ages of commit ids restart too, which keeps them longer than promised, never shorter.
        self._execute("UPDATE commits SET at_ms = ?", (self.now_ms,))
        self._execute("UPDATE head SET boot_id = ?", (boot_id,))

    @property
    def committed(self) -> bool:
        """Whether any commit was made."""
        return self.version > self.head.version

    def commit(
        self, commit_id: str, require: Sequence[Requirement], apply: Sequence[Operation]
    ) -> Committed | Conflict:
        """Check and apply one commit."""
        for requirement in require:
            row = self._execute("SELECT version FROM entries WHERE key = ?", (requirement.key,)).fetchone()
            wanted = requirement.version if type(requirement) is AtVersion else 0
            if (row[0] if row is not None else 0) != wanted:
                return Conflict(self._found(require))
        for operation in apply:
            if type(operation) is Put and operation.session is not None and not self._is_alive(operation.session):
                return Conflict(self._found(require), operation.session)
        if apply:
            self._apply(commit_id, apply)
        return Committed(self.version)

    def resolve(self, commit_id: str) -> Committed | NotCommitted:
        """The outcome of a commit whose answer was lost.

        It cannot arrive later: it was lost with the write lock held, which this transaction holds now. But a failed COMMIT may
        have left its pages in the write-ahead log, where crash recovery would find them, until the next commit overwrites them.
        So this transaction writes.
        """
        self._execute(
            "INSERT INTO commits VALUES (?1, (SELECT version FROM changes WHERE commit_id = ?1), ?2) "
            "ON CONFLICT DO UPDATE SET at_ms = excluded.at_ms",
            (commit_id, self.now_ms),
        )
        (version,) = self._execute("SELECT version FROM commits WHERE id = ?", (commit_id,)).fetchone()
        return NotCommitted() if version is None else Committed(version)

    def open_session(self, session_id: str, ttl_ms: int) -> None:
        self._execute("INSERT INTO sessions VALUES (?, ?, ?)", (session_id, ttl_ms, self.now_ms + ttl_ms))
        self.opened_session = True

    def keep_alive(self, session_id: str) -> bool:
        """Overdue sessions are removed before any write of the batch, so a session in the table is alive."""
        renew = "UPDATE sessions SET deadline_ms = ? + ttl_ms WHERE id = ?"
        return bool(self._execute(renew, (self.now_ms, session_id)).rowcount)

    def close_session(self, session_id: str) -> None:
        if not self._execute("DELETE FROM sessions WHERE id = ?", (session_id,)).rowcount:
            return
        keys = self._execute("SELECT key FROM entries WHERE session = ? ORDER BY key", (session_id,)).fetchall()
        if not keys:
            return  # no visible change, so no version
        self.version += 1
        self._execute(
            "INSERT INTO changes (version, key) SELECT ?, key FROM entries WHERE session = ?",
            (self.version, session_id),
        )
        self._execute("DELETE FROM entries WHERE session = ?", (session_id,))
        if self._collect:
            self.changed.append(Changed(self.version, tuple(Change(key, None) for (key,) in keys)))

    def prune(self, *, commits_kept: int, ids_kept_ms: int) -> None:
        """Prune the change log, in steps, and expired commit ids. Bounded: no commit pays for a long backlog."""
        step = _prune_step(commits_kept)
        until = min(self.version - commits_kept, self.head.gone_until + 4 * step)
        if until > self.head.gone_until:
            self._execute(
                "INSERT INTO commits SELECT commit_id, version, ? FROM changes WHERE version <= ? AND commit_id IS NOT NULL "
                "ON CONFLICT DO NOTHING",
                (self.now_ms, until),
            )
            self._execute("DELETE FROM changes WHERE version <= ?", (until,))
            self._execute("UPDATE head SET gone_until = ?", (until,))
        self._execute(
            "DELETE FROM commits WHERE rowid IN (SELECT rowid FROM commits ORDER BY rowid LIMIT ?) AND at_ms < ?",
            (8 * step, self.now_ms - ids_kept_ms),
        )

    def is_long(self, commits_kept: int) -> bool:
        """Whether the change log is long enough to prune."""
        return self.version - self.head.gone_until >= commits_kept + _prune_step(commits_kept)

    def _apply(self, commit_id: str, apply: Sequence[Operation]) -> None:
        self.version = version = self.version + 1
        unlogged_id: str | None = commit_id
        changes = []
        for operation in apply:
            key = operation.key
            if type(operation) is Put:
                text, session = operation.value.decode(), operation.session
                self._execute(
                    "INSERT INTO entries VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE "
                    "SET value = excluded.value, version = excluded.version, session = excluded.session",
                    (key, text, version, session),
                )
                self._execute(_LOG, (version, key, text, session, unlogged_id))
                if self._collect:
                    changes.append(Change(key, Entry(key, operation.value, version, session)))
            elif self._execute("DELETE FROM entries WHERE key = ?", (key,)).rowcount:
                self._execute(_LOG, (version, key, None, None, unlogged_id))
                changes.append(Change(key, None))
            else:
                continue
            unlogged_id = None
        if unlogged_id is not None:
            self._execute(_LOG, (version, "", None, None, unlogged_id))
        if self._collect:
            self.changed.append(Changed(version, tuple(sorted(changes, key=lambda change: change.key))))

    def _is_alive(self, session_id: str) -> bool:
        return self._execute("SELECT 1 FROM sessions WHERE id = ?", (session_id,)).fetchone() is not None

    def _found(self, require: Sequence[Requirement]) -> dict[str, Entry | None]:
        found: dict[str, Entry | None] = {}
        for each in require:
            row = self._execute("SELECT value, version, session FROM entries WHERE key = ?", (each.key,)).fetchone()
            found[each.key] = Entry(each.key, row[0].encode(), row[1], row[2]) if row is not None else None
        return found


def _prune_step(commits_kept: int) -> int:
    return max(1, min(1_000, commits_kept // 10))
