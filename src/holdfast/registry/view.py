"""View: a registry at one version, and the rules that derive assignments and expired claims from it.

No I/O: a scan and changes go in, answers come out. `RegistryStore` fills it and keeps it up to date; coordinators and engines
decide by it.
"""

from holdfast.contracts.store import Changed, Entry, Scan
from holdfast.registry import keys, records
from holdfast.registry.model import Assignment, ConsumerInfo, Heartbeat, PartitionState


class RegistryView:
    """All partitions, heartbeats and consumers of a namespace as they stood at `version`."""

    def __init__(self, namespace: str, scan: Scan) -> None:
        self.version = scan.version
        self.partitions: dict[int, PartitionState] = {}
        self.heartbeats: dict[int, Heartbeat] = {}
        self.consumers: dict[str, ConsumerInfo] = {}
        self._prefix = keys.namespace_prefix(namespace)
        for entry in scan.entries:
            self._set(entry.key, entry)

    def apply(self, commit: Changed) -> bool:
        """Apply the next commit; True if it changed more than checkpoints. Commits already applied are skipped."""
        if commit.version <= self.version:
            return False
        self.version = commit.version
        changed = [self._set(change.key, change.entry) for change in commit.changes]
        return any(changed)

    def owned_by(self, consumer: str) -> tuple[PartitionState, ...]:
        """The partitions `consumer` owns, by id."""
        return tuple(state for _, state in sorted(self.partitions.items()) if state.owner == consumer)

    def unowned(self) -> tuple[PartitionState, ...]:
        """The partitions without an owner, by id."""
        return tuple(state for _, state in sorted(self.partitions.items()) if state.owner is None)

    def assignments_of(self, consumer: str) -> dict[int, Assignment]:
        """The live claims of the *present* registration of `consumer`.

        A claim older than the registration was made for an earlier process of that name, which may still run: to run it
        again under the same epoch would be to run it twice.
        """
        registered = self.consumers.get(consumer)
        if registered is None:
            return {}
        mine = {}
        for state in self.owned_by(consumer):
            heartbeat = self.heartbeats.get(state.id)
            if heartbeat is not None and heartbeat.epoch == state.epoch and heartbeat.version > registered.version:
                mine[state.id] = Assignment(
                    partition=state.id,
                    consumer=consumer,
                    epoch=state.epoch,
                    checkpoint=state.checkpoint,
                    ttl_ms=heartbeat.ttl_ms,
                )
        return mine

    def expired(self) -> tuple[PartitionState, ...]:
        """Owned by someone who is not registered, or whose heartbeat ended (by the store's clock)."""
        return tuple(
            state
            for _, state in sorted(self.partitions.items())
            if state.owner is not None and (state.owner not in self.consumers or state.id not in self.heartbeats)
        )

    def _set(self, key: str, entry: Entry | None) -> bool:
        kind, _, name = key.removeprefix(self._prefix).partition("/")
        if kind == keys.PARTITIONS:
            return self._set_partition(records.partition_number(key), entry)
        if kind == keys.HEARTBEATS:
            if entry is None:
                self.heartbeats.pop(records.partition_number(key), None)
            else:
                self.heartbeats[records.partition_number(key)] = records.decode_heartbeat(entry)
            return True
        if kind == keys.CONSUMERS:
            if entry is None:
                self.consumers.pop(name, None)
            else:
                self.consumers[name] = records.decode_consumer(entry)
            return True
        return False

    def _set_partition(self, number: int, entry: Entry | None) -> bool:
        before = self.partitions.get(number)
        if entry is None:
            self.partitions.pop(number, None)
            return True
        self.partitions[number] = after = records.decode_partition(entry)
        return before is None or (before.owner, before.epoch) != (after.owner, after.epoch)
