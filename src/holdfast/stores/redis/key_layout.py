"""Key layout: the keys of one namespace, the format of entries and log pages, and the scripts.

All keys of a namespace share a hash tag. An entry is `version session value` in plain text (`-`: no session), in a hash beside an
ordered index, so that `HGETALL` shows it in readable form. The log is a stream whose ids are the versions.
"""

import hashlib
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final

from holdfast.contracts.store import Change, Changed, Entry
from holdfast.stores.redis.connection import Argument, pack

FORMAT: Final = "1"


@dataclass(frozen=True, slots=True)
class Script:
    """A Lua script of this package and its digest on the server."""

    name: str
    text: bytes
    digest: str

    def call(self, keys: tuple[str, ...], *arguments: Argument) -> bytes:
        """The packed command that runs it."""
        return pack("EVALSHA", self.digest, len(keys), *keys, *arguments)


def _script(name: str) -> Script:
    text = (files(__package__) / f"{name}.lua").read_bytes()
    return Script(name, text, hashlib.sha1(text, usedforsecurity=False).hexdigest())


BATCH: Final = _script("batch")
CREATE: Final = _script("create")
RESOLVE: Final = _script("resolve")
SCAN: Final = _script("scan")
LOG: Final = _script("log")
PRUNE: Final = _script("prune")
SCRIPTS: Final = (BATCH, CREATE, RESOLVE, SCAN, LOG, PRUNE)
LOAD_SCRIPTS: Final = b"".join(pack("SCRIPT", "LOAD", script.text) for script in SCRIPTS)


class KeyLayout:
    """The names of one namespace's keys and channels."""

    def __init__(self, namespace: str) -> None:
        prefix = f"{{holdfast:{namespace}}}"
        self.meta, self.entries, self.index = f"{prefix}:meta", f"{prefix}:entries", f"{prefix}:index"
        self.owned, self.sessions, self.ttls = f"{prefix}:owned", f"{prefix}:sessions", f"{prefix}:ttls"
        self.log = f"{prefix}:log"
        self.all = (self.meta, self.entries, self.index, self.owned, self.sessions, self.ttls, self.log)
        self.commits_channel = f"{prefix}:bell"  # published after commits, with the head
        # Published when a new session is due before all others, with the milliseconds until then.
        self.due_channel = f"{prefix}:due"


def unpack_entry(key: str, packed: bytes) -> Entry:
    """Parse a packed entry."""
    version, session, value = packed.split(b" ", 2)
    return Entry(key, value, int(version), None if session == b"-" else session.decode())


def unpack_commit(entry: list[Any]) -> Changed:
    """One commit from its log entry: id, then (bytes so far, removed keys) and (key, packed) pairs."""
    version_id, words = entry
    changes = [Change(key, None) for key in words[1].decode().split("\n") if key]
    for at in range(2, len(words), 2):
        key = words[at].decode()
        changes.append(Change(key, unpack_entry(key, words[at + 1])))
    if len(changes) > 1:
        changes.sort(key=lambda change: change.key)
    return Changed(int(version_id.split(b"-")[0]), tuple(changes))
