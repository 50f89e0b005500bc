"""Transaction: what a batch does to the database between BEGIN IMMEDIATE and COMMIT. Runs on the writer's thread.

It owns the meaning of every write: versions, the change log, sessions and their expiry, commit ids. It neither begins nor ends
the SQL transaction, and it changes nothing for a write that fails its requirements, so one write's conflict harms no other.
"""

import sqlite3
from collections.abc import Sequence
from pathlib import Path

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
from holdfast.stores.sqlite.faults import database
from holdfast.vocabulary.errors import CorruptError


class Transaction:
    """The store at one moment, with the write lock held. `now_ms` is the host's boot clock, read after the lock was taken."""

    def __init__(self, connection: sqlite3.Connection, path: Path, *, now_ms: int, collect: bool = False) -> None:
        self._execute = connection.execute
        self.now_ms, self._collect = now_ms, collect
        row = self._execute(
            "SELECT version, gone_until, incarnation, boot_id, (SELECT min(deadline_ms) FROM sessions) FROM head"
        ).fetchone()
        if row is None:
            raise CorruptError(database(path), "its head is gone")
        self.version, self._gone_until, self.incarnation, self.boot_id, self._due_ms = row
        self._began_at = self.version
        self.changed: list[Changed] = []  # what was committed, if it was to be collected
        self.opened_session = False

    def reap(self) -> None:
        """End every overdue session, each in a commit of its own."""
        if self._due_ms is None or self._due_ms > self.now_ms:
            return
        overdue = "SELECT id FROM sessions WHERE deadline_ms <= ? ORDER BY deadline_ms, id"
        for (session_id,) in self._execute(overdue, (self.now_ms,)).fetchall():
            self.close_session(session_id)

    def end_former_boot(self, boot_id: str) -> None:
        """End every session of a former boot: its clock is gone, so nobody can say that they are alive."""
        for (session_id,) in self._execute("SELECT id FROM sessions ORDER BY id").fetchall():
            self.close_session(session_id)
        # Ages of commit ids begin anew too, which keeps them longer than promised, never shorter.
        self._execute("UPDATE commits SET at_ms = ?", (self.now_ms,))
        self._execute("UPDATE head SET boot_id = ?", (boot_id,))
        self.boot_id = boot_id

    def commit(
        self, commit_id: str, require: Sequence[Requirement], apply: Sequence[Operation]
    ) -> Committed | Conflict | NotCommitted:
        """Judge and apply one commit. `NotCommitted`: its id was resolved before it came."""
        for requirement in require:
            row = self._execute("SELECT version FROM entries WHERE key = ?", (requirement.key,)).fetchone()
            wanted = requirement.version if type(requirement) is AtVersion else 0
            if (row[0] if row is not None else 0) != wanted:
                return Conflict(self._found(require))
        for operation in apply:
            if type(operation) is Put and operation.session is not None and not self._lives(operation.session):
                return Conflict(self._found(require), operation.session)
        if not apply:
            return Committed(self.version)
        remember = "INSERT INTO commits (id, version, at_ms) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
        if not self._execute(remember, (commit_id, self.version + 1, self.now_ms)).rowcount:
            return NotCommitted()
        self._apply(apply)
        return Committed(self.version)

    def resolve(self, commit_id: str) -> Committed | NotCommitted:
        """What became of a commit. An id that is not there is marked, so that the commit is refused should it still come."""
        # Written even if nothing changes: a COMMIT that failed may have left its pages in the write-ahead log, where a crash
        # would find them; only the next commit writes over them.
        remember = "INSERT INTO commits (id, version, at_ms) VALUES (?, NULL, ?) ON CONFLICT DO UPDATE SET at_ms = ?"
        self._execute(remember, (commit_id, self.now_ms, self.now_ms))
        (version,) = self._execute("SELECT version FROM commits WHERE id = ?", (commit_id,)).fetchone()
        return NotCommitted() if version is None else Committed(version)

    def open_session(self, session_id: str, ttl_ms: int) -> None:
        self._execute("INSERT INTO sessions VALUES (?, ?, ?)", (session_id, ttl_ms, self.now_ms + ttl_ms))
        self.opened_session = True

    def keep_alive(self, session_id: str) -> bool:
        """Overdue sessions are gone before any write of the batch is done, so one that is there is alive."""
        renew = "UPDATE sessions SET deadline_ms = ? + ttl_ms WHERE id = ?"
        return bool(self._execute(renew, (self.now_ms, session_id)).rowcount)

    def close_session(self, session_id: str) -> None:
        if not self._execute("DELETE FROM sessions WHERE id = ?", (session_id,)).rowcount:
            return
        keys = self._execute("SELECT key FROM entries WHERE session = ? ORDER BY key", (session_id,)).fetchall()
        if not keys:
            return  # nothing that anybody could have seen: no version
        self.version += 1
        self._execute(
            "INSERT INTO changes (version, key) SELECT ?, key FROM entries WHERE session = ?",
            (self.version, session_id),
        )
        self._execute("DELETE FROM entries WHERE session = ?", (session_id,))
        if self._collect:
            self.changed.append(Changed(self.version, tuple(Change(key, None) for (key,) in keys)))

    def forget(self, after: str, until: str, lost: Sequence[str]) -> None:
        """Drop the commit ids in (after, until], except for those whose callers may still ask."""
        spared = ", ".join("?" * len(lost))
        self._execute(f"DELETE FROM commits WHERE id > ? AND id <= ? AND id NOT IN ({spared})", (after, until, *lost))  # noqa: S608

    def forget_before(self, at_ms: int) -> None:
        """Drop the ids of commits nobody asked about in time."""
        self._execute("DELETE FROM commits WHERE at_ms < ?", (at_ms,))

    def finish(self, *, commits_kept: int) -> bool:
        """Write the head and shorten the change log. False: nothing was committed."""
        if self.version == self._began_at:
            return False
        # In steps, so that most commits do not pay for it, and bounded, so that none pays for a long backlog.
        step = max(1, min(1_000, commits_kept // 10))
        if self.version - self._gone_until >= commits_kept + step:
            self._gone_until = min(self.version - commits_kept, self._gone_until + 4 * step)
            self._execute("DELETE FROM changes WHERE version <= ?", (self._gone_until,))
        self._execute("UPDATE head SET version = ?, gone_until = ?", (self.version, self._gone_until))
        return True

    def _apply(self, apply: Sequence[Operation]) -> None:
        self.version = version = self.version + 1
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
                self._execute("INSERT INTO changes VALUES (?, ?, ?, ?)", (version, key, text, session))
                if self._collect:
                    changes.append(Change(key, Entry(key, operation.value, version, session)))
            elif self._execute("DELETE FROM entries WHERE key = ?", (key,)).rowcount:
                self._execute("INSERT INTO changes (version, key) VALUES (?, ?)", (version, key))
                changes.append(Change(key, None))
        if self._collect:
            self.changed.append(Changed(version, tuple(sorted(changes, key=lambda change: change.key))))

    def _lives(self, session_id: str) -> bool:
        return self._execute("SELECT 1 FROM sessions WHERE id = ?", (session_id,)).fetchone() is not None

    def _found(self, require: Sequence[Requirement]) -> dict[str, Entry | None]:
        found: dict[str, Entry | None] = {}
        for each in require:
            row = self._execute("SELECT value, version, session FROM entries WHERE key = ?", (each.key,)).fetchone()
            found[each.key] = Entry(each.key, row[0].encode(), row[1], row[2]) if row is not None else None
        return found
