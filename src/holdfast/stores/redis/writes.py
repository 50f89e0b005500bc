"""Writes: what goes into a batch, packed as it travels, and how its answer is read. No I/O and no judgement here."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.contracts.store import AtVersion, Committed, Conflict, Operation, Put, Requirement
from holdfast.stores.redis.layout import unpack_entry
from holdfast.stores.redis.link import Argument, pack_arguments

Outcome = Committed | Conflict | bool


@dataclass(slots=True, eq=False)
class Write:
    """One write of a batch. `id` is set when it is sent: until then it surely did not happen."""

    packed: bytes
    arguments: int
    read: Callable[[Any], Outcome]
    id: str = ""


def commit_write(require: Sequence[Requirement], apply: Sequence[Operation]) -> Write:
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

    def read(reply: Any) -> Committed | Conflict:
        if isinstance(reply, int):
            return Committed(reply)
        dead, *packed = reply
        found = {
            requirement.key: None if each is None else unpack_entry(requirement.key, each)
            for requirement, each in zip(require, packed, strict=True)
        }
        return Conflict(found, dead[1:].decode("utf-8", "surrogatepass") if dead else None)

    return Write(pack_arguments(words), len(words), read)


def open_write(session_id: str, ttl_ms: int) -> Write:
    """The start of a session. Sending it twice starts it once."""
    return Write(pack_arguments((b"o", session_id, ttl_ms)), 3, bool)


def keep_alive_write(session_id: str) -> Write:
    """The renewal of a session, False when it is dead."""
    return Write(pack_arguments((b"k", session_id)), 2, bool)


def close_write(session_id: str) -> Write:
    """The end of a session."""
    return Write(pack_arguments((b"x", session_id)), 2, bool)


def reap_write() -> Write:
    """Nothing by itself: every batch ends overdue sessions first."""
    return Write(pack_arguments((b"r",)), 1, bool)
