"""View: the whole registry at one version, and the rules that say who may run what, who is dead, what to plan.

No I/O: entries and changes go in, answers come out. The store class fills it from a scan and moves it along with a watch;
coordinators and engines decide by it.
"""

from collections.abc import Iterable

from holdfast.contracts.store import Changed, Entry
from holdfast.registry import keys, records
from holdfast.registry.model import Assignment, ConsumerInfo, Heartbeat, PartitionState


class RegistryView:
    """All partitions, heartbeats and consumers of a namespace as they stood at `version`."""

    def __init__(self, namespace: str, version: int, entries: Iterable[Entry]) -> None:
        self.version = version
        self.partitions: dict[int, PartitionState] = {}
        self.heartbeats: dict[int, Heartbeat] = {}
        self.consumers: dict[str, ConsumerInfo] = {}
        self._root = keys.root(namespace)
        for entry in entries:
            self._set(entry.key, entry)

    def apply(self, commit: Changed) -> bool:
        """Take in the next commit; True if it changed more than checkpoints. Commits already seen are skipped."""
        if commit.version <= self.version:
            return False
        self.version = commit.version
        told = [self._set(change.key, change.entry) for change in commit.changes]
        return any(told)

    def owned_by(self, consumer: str) -> tuple[PartitionState, ...]:
        """What `consumer` owns, by id."""
        return tuple(state for _, state in sorted(self.partitions.items()) if state.owner == consumer)

    def unowned(self) -> tuple[PartitionState, ...]:
        """What nobody owns, by id."""
        return tuple(state for _, state in sorted(self.partitions.items()) if state.owner is None)

    def assignments_of(self, consumer: str) -> dict[int, Assignment]:
        """The living claims of the *present* registration of `consumer`.

        A claim older than the registration was made for a former process of that name, which may not know that it was
        replaced; to run it again under the same epoch would be to run it twice.
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
        kind, _, name = key.removeprefix(self._root).partition("/")
        if kind == "partitions":
            return self._set_partition(records.partition_number(key), entry)
        if kind == "beats":
            if entry is None:
                self.heartbeats.pop(records.partition_number(key), None)
            else:
                self.heartbeats[records.partition_number(key)] = records.decode_heartbeat(entry)
            return True
        if kind == "consumers":
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
