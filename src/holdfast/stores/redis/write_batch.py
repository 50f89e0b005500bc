"""Writes of a batch in the wire format, and the reply of `batch.lua` as outcomes. No I/O."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.contracts.store import AtVersion, Committed, Conflict, Operation, Put, Requirement
from holdfast.stores.redis.connection import Argument, pack_arguments
from holdfast.stores.redis.key_layout import BATCH, KeyLayout, unpack_entry
from holdfast.stores.redis.settings import RedisSettings

Outcome = Committed | Conflict | bool


@dataclass(slots=True, eq=False)
class RedisWrite:
    """One write of a batch. `id` is set when it is sent: without one it was not done. `outcome` is set by the reply."""

    packed: bytes
    arguments: int
    require: Sequence[Requirement] | None = None  # of a commit; None for session calls
    id: str = ""
    outcome: Outcome | None = None


class BatchCall:
    """The command that runs a batch; what never changes is packed once."""

    def __init__(self, layout: KeyLayout, settings: RedisSettings, incarnation: str) -> None:
        fixed: tuple[Argument, ...] = (
            *("EVALSHA", BATCH.digest, len(layout.all), *layout.all),
            *(incarnation, settings.commits_kept, settings.log_bytes_max, layout.commits_channel, layout.due_channel),
        )
        self._fixed, self._count = pack_arguments(fixed), len(fixed)

    def pack(self, lane: str, batch: int, version_seen: int, writes: Sequence[RedisWrite]) -> bytes:
        """The command for these writes."""
        count = self._count + 3 + sum(write.arguments for write in writes)
        varying = pack_arguments((lane, batch, version_seen))
        return b"".join((b"*%d\r\n" % count, self._fixed, varying, *(write.packed for write in writes)))

    def read(
        self, writes: Sequence[RedisWrite], words: Sequence[bytes], conflicts: Iterable[list[Any]]
    ) -> list[Outcome]:
        """The outcome of each write from its word, and from the next list if the word marks a conflict."""
        next_conflicts = iter(conflicts)
        outcomes: list[Outcome] = []
        for write, word in zip(writes, words, strict=True):
            if write.require is None:
                write.outcome = word == b"1"
            elif word == b"!":
                write.outcome = _read_conflict(write.require, next(next_conflicts))
            else:
                write.outcome = Committed(int(word))
            outcomes.append(write.outcome)
        return outcomes


def _read_conflict(require: Sequence[Requirement], reply: list[Any]) -> Conflict:
    dead, *packed = reply
    found = {
        requirement.key: None if each is None else unpack_entry(requirement.key, each)
        for requirement, each in zip(require, packed, strict=True)
    }
    return Conflict(found, dead[1:].decode("utf-8", "surrogatepass") if dead else None)


def commit_write(require: Sequence[Requirement], apply: Sequence[Operation]) -> RedisWrite:
    """A commit."""
    words: list[Argument] = [b"c", len(require), len(apply)]
    for requirement in require:
        words += (requirement.key, requirement.version if type(requirement) is AtVersion else b"")
    for operation in apply:
        if type(operation) is Put:
            session = b"" if operation.session is None else "=" + operation.session
            words += (b"p", operation.key, session, bytes(operation.value))
        else:
            words += (b"d", operation.key)
    return RedisWrite(pack_arguments(words), len(words), tuple(require))


def open_write(session_id: str, ttl_ms: int) -> RedisWrite:
    """The start of a session. Idempotent."""
    return RedisWrite(pack_arguments((b"o", session_id, ttl_ms)), 3)


def keep_alive_write(session_id: str) -> RedisWrite:
    """The renewal of a session; False if it is dead."""
    return RedisWrite(pack_arguments((b"k", session_id)), 2)


def close_write(session_id: str) -> RedisWrite:
    """The end of a session."""
    return RedisWrite(pack_arguments((b"x", session_id)), 2)


def reap_write() -> RedisWrite:
    """No change of its own: every batch ends overdue sessions first."""
    return RedisWrite(pack_arguments((b"r",)), 1)
