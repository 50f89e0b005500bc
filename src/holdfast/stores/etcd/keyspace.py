"""Keyspace: the keys below the prefix, and the contract's types in etcd.

`{prefix}/k/…` holds the keys of the contract, `{prefix}/c/{writer}/{slot}` the slots of writers, `{prefix}/incarnation` the
record that identifies the store. Sessions are leases, written in hexadecimal as etcdctl shows them.
"""

import re
from collections.abc import Iterable
from typing import Final

from holdfast.contracts.store import Change, Changed, Entry
from holdfast.contracts.validation import prefix_end
from holdfast.stores.etcd import etcd_pb2 as pb

_SESSION: Final = re.compile(r"[0-9a-f]{1,16}")
_NO_LEASE: Final = -1  # etcd's ids are positive, so there is no such lease


class Keyspace:
    """Names below one prefix."""

    def __init__(self, prefix: str) -> None:
        root = prefix.strip("/").encode()
        self.incarnation = root + b"/incarnation"
        self._data = root + b"/k/"
        self._slots = root + b"/c/"
        self._cut = len(self._data)

    def key(self, key: str) -> bytes:
        """A key of the contract in etcd. UTF-8 bytes sort as code points do."""
        return self._data + key.encode("utf-8", "surrogatepass")

    def below(self, prefix: str) -> tuple[bytes, bytes]:
        """The range of all keys that start with `prefix`."""
        return self.key(prefix), self.key(prefix_end(prefix)) if prefix else self._data[:-1] + b"0"  # "0" follows "/"

    def slot(self, lease: int, number: int) -> bytes:
        """The slot key of a writer."""
        return b"%s%x/%d" % (self._slots, lease, number)

    def entry(self, pair: pb.KeyValue) -> Entry:
        """An entry of the contract."""
        return Entry(pair.key[self._cut :].decode(), pair.value, pair.mod_revision, session_of(pair.lease))

    def changed(self, revision: int, events: Iterable[pb.Event]) -> Changed:
        """The events of one revision as one commit."""
        changes = []
        for event in events:
            entry = None if event.type == pb.Event.DELETE else self.entry(event.kv)
            changes.append(Change(event.kv.key[self._cut :].decode(), entry))
        changes.sort(key=lambda change: change.key)
        return Changed(revision, tuple(changes))


def lease_of(session: str) -> int:
    """The lease of a session id; an invalid id gives a lease that never existed."""
    lease = int(session, 16) if _SESSION.fullmatch(session) else 0
    return lease if 0 < lease < 1 << 63 else _NO_LEASE


def session_of(lease: int) -> str | None:
    """The session id of a lease; None for no lease."""
    return f"{lease:x}" if lease else None
