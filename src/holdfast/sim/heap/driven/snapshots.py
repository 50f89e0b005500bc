"""Where snapshots of driven heaps are: the keys that list them, and objects that arrive late, or are damaged.

The one rule: the list is `OwnedSnapshots` as it ships, and its commits require an epoch that the next leadership has changed.
"""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import msgspec

from holdfast.contracts.objects import Buffer, Missing, Stored
from holdfast.contracts.store import Absent, AtVersion, Committed, Conflict, Entry, Operation, Put, Requirement
from holdfast.kernel.keys import epoch_key
from holdfast.kernel.lease import Lease
from holdfast.log.keys import snapshots_key
from holdfast.log.maintenance.settings import MaintenanceContext
from holdfast.log.model import PartitionId
from holdfast.log.owned_snapshots import OwnedSnapshots
from holdfast.log.partition_snapshots import read_snapshot_list
from holdfast.sim.heap.driven.network import SimNetwork
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import UnavailableError
from holdfast.vocabulary.random import Random

_DAY_MS = 86_400_000


class SnapshotSpace:
    """The store's keys and the bucket, of all partitions."""

    def __init__(self, network: SimNetwork, random: Random) -> None:
        self._network, self._random = network, random
        self._entries: dict[str, Entry] = {}
        self._bodies: dict[str, bytes] = {}
        self._version = 0

    def open(
        self, which: PartitionId, epoch: int, kind: type[OwnedSnapshots], clock: Clock, listed: Callable[[int], None]
    ) -> OwnedSnapshots:
        """Those of a new leadership. `listed` is told of each, by its offset, when it is in the list."""
        resource = str(which)
        version = self._apply([Put(epoch_key(resource), msgspec.json.encode({"epoch": epoch}))])
        lease = Lease(resource=resource, holder="leader", session="s", epoch=epoch, version=version)
        led = SimpleNamespace(partition_id=which, epoch=epoch, lease=lease)
        space = _Listening(self, snapshots_key(which.topic_id, which.number), listed)
        context = SimpleNamespace(
            store=space,
            objects=self,
            owner=SimpleNamespace(prefix="c/"),
            clock=clock,
            random=self._random,
            due_ms=lambda: clock.now_ms() + _DAY_MS,
        )
        return kind(cast(Any, led), cast(MaintenanceContext, context))

    def damage(self, which: PartitionId, cut: Callable[[int], int]) -> None:
        """The newest object of a partition loses its end."""
        keys = sorted(key for key in self._bodies if f"/{which.topic_id}/{which.number}/" in key)
        if keys:
            self._bodies[keys[-1]] = self._bodies[keys[-1]][: cut(len(self._bodies[keys[-1]]))]

    # ── the store ──

    async def get_entry(self, key: str) -> Entry | None:
        """A key, as it is when the request arrives."""
        await self._network.pause()
        return self._entries.get(key)

    async def commit(self, require: Sequence[Requirement], apply: Sequence[Operation]) -> Committed | Conflict:
        """All or nothing, when the request arrives; some do not. `UnavailableError`."""
        await self._network.pause()
        if self._network.is_lost():
            raise UnavailableError("store", "it cannot be reached")
        found: dict[str, Entry | None] = {}
        for each in require:
            entry = self._entries.get(each.key)
            held = entry is None if isinstance(each, Absent) else entry is not None and _is_at(each, entry)
            if not held:
                found[each.key] = entry
        if found:
            return Conflict(found)
        return Committed(self._apply(apply))

    def _apply(self, operations: Sequence[Operation]) -> int:
        self._version += 1
        for each in operations:
            if isinstance(each, Put):
                self._entries[each.key] = Entry(each.key, each.value, self._version)
        return self._version

    # ── the bucket ──

    async def put(self, key: str, body: Sequence[Buffer]) -> Stored:
        """An object, a while later."""
        await self._network.pause()
        await self._network.pause()
        self._bodies[key] = b"".join(body)
        return cast(Stored, None)

    async def get(self, key: str) -> Buffer | Missing:
        """An object."""
        await self._network.pause()
        self._network.check_readable(key)
        return self._bodies.get(key, Missing(key))


class _Listening:
    """The store, as one leadership uses it."""

    def __init__(self, space: SnapshotSpace, key: str, listed: Callable[[int], None]) -> None:
        self._space, self._key, self._listed = space, key, listed

    async def get(self, key: str) -> Entry | None:
        return await self._space.get_entry(key)

    async def commit(
        self, *, require: Sequence[Requirement] = (), apply: Sequence[Operation] = ()
    ) -> Committed | Conflict:
        outcome = await self._space.commit(require, apply)
        if isinstance(outcome, Committed):
            for each in apply:
                if isinstance(each, Put) and each.key == self._key:
                    self._listed(_newest(each.value))
        return outcome


def _is_at(requirement: Requirement, entry: Entry) -> bool:
    return isinstance(requirement, AtVersion) and requirement.version == entry.version


def _newest(value: bytes) -> int:
    return read_snapshot_list(value).newest_offset
