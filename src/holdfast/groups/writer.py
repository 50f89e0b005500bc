"""The only writer of a shard: changes that arrive during a commit go together into the next.

Every commit is fenced by the shard's lease and requires that the records of its groups are as this writer last wrote them. Changes
are written in the order of their arrival, so that a member's commit is durable before a later generation begins. A commit whose
outcome stays unknown breaks the writer: the shard has to be loaded again, once the outcome is resolved.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from holdfast.contracts.store import Conflict, Delete, Operation, Put, Requirement, Store
from holdfast.contracts.validation import StoreLimits
from holdfast.groups.committed_state import CommittedState, OffsetChanges
from holdfast.groups.errors import LimitReached
from holdfast.groups.group import Group
from holdfast.groups.keys import PARTITIONS_PER_KEY, group_key, offsets_key
from holdfast.groups.limit_warnings import LimitWarnings
from holdfast.groups.model import CommittedOffset
from holdfast.groups.records import GroupRecord, encode_group, encode_large_group, group_record, is_large, write_offsets
from holdfast.groups.settings import GroupCounters, GroupSettings
from holdfast.kernel.lease import Lease, commit_fenced
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import CorruptError, FencedError, HoldfastError, OutcomeUnknownError, UnavailableError
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.types import TopicPartition

_log: Final = logging.getLogger(__name__)

_OPS_MAX: Final = StoreLimits().ops_max


@dataclass(slots=True, eq=False)
class _OffsetsWrite:
    """Changes of partitions that share a key."""

    group_id: str
    changes: dict[TopicPartition, CommittedOffset | None]
    merged: dict[TopicPartition, CommittedOffset] = field(default_factory=dict)
    done: asyncio.Event = field(default_factory=asyncio.Event)
    error: HoldfastError | None = None


@dataclass(slots=True, eq=False)
class _GroupWrite:
    """A group's record, encoded when its commit is built; None: delete it."""

    group_id: str
    group: Group | None
    change: int = 0
    done: asyncio.Event = field(default_factory=asyncio.Event)
    error: HoldfastError | None = None


_PendingWrite = _OffsetsWrite | _GroupWrite


@dataclass(frozen=True, slots=True)
class Deletion:
    """A group's offsets and record are being deleted."""

    units: list[_PendingWrite]

    @property
    def done(self) -> bool:
        """Whether nothing of it is queued or in flight."""
        return all(unit.done.is_set() for unit in self.units)

    @property
    def error(self) -> HoldfastError | None:
        """Why the group may still exist, once it is done."""
        return next((unit.error for unit in self.units if unit.error is not None), None)

    async def wait(self) -> None:
        """Return once it is done."""
        for unit in self.units:
            await unit.done.wait()


@dataclass(slots=True)
class _CommitBatch:
    units: list[_PendingWrite] = field(default_factory=list)
    require: dict[str, Requirement] = field(default_factory=dict)
    apply: list[Operation] = field(default_factory=list)
    size_bytes: int = 0
    large: GroupRecord | None = None  # to be compressed; nothing else is in this commit


class ShardWriter:
    """Writes groups and offsets of one shard under one lease.

    `on_settled` is called when a group's record was saved, or not; `on_written` when writes of a group are done or failed, before
    their callers continue; `on_broken` when no more can be written, because of `broken`.
    """

    def __init__(
        self,
        lease: Lease,
        committed: CommittedState,
        *,
        store: Store,
        clock: Clock,
        random: Random,
        settings: GroupSettings,
        counters: GroupCounters,
        warnings: LimitWarnings,
        on_settled: Callable[[Group], None],
        on_written: Callable[[str], None],
        on_broken: Callable[[], None],
    ) -> None:
        self._lease, self._committed, self._store, self._clock, self._random = lease, committed, store, clock, random
        self._settings, self._counters, self._warnings = settings, counters, warnings
        self._on_settled, self._on_written, self._on_broken = on_settled, on_written, on_broken
        self._queue: dict[str, _PendingWrite] = {}
        self._batch = _CommitBatch()  # in flight, or the last one
        self._task: asyncio.Task[None] | None = None
        self.broken: HoldfastError | None = None

    async def commit(self, group_id: str, changes: OffsetChanges) -> Mapping[TopicPartition, HoldfastError | None]:
        """Write offsets; returns once all are durable, with an error for each that may not be."""
        units = self.put_offsets(group_id, changes)
        for unit in units:
            await unit.done.wait()
        errors = {unit: unit.error for unit in units}
        if not any(errors.values()):
            return dict.fromkeys(changes)
        return {each: error for unit, error in errors.items() for each in unit.changes if each in changes}

    def put_offsets(self, group_id: str, changes: OffsetChanges) -> list[_OffsetsWrite]:
        """Queue offsets to be written."""
        units: dict[tuple[str, int], _OffsetsWrite] = {}
        for partition, offset in changes.items():
            place = partition.topic, partition.number // PARTITIONS_PER_KEY
            unit = units.get(place)
            if unit is None:
                unit = units[place] = self._offsets_unit(group_id, partition)
            unit.changes.pop(partition, None)  # the last change comes last
            unit.changes[partition] = offset
        return list(units.values())

    def save(self, group: Group) -> None:
        """Queue a group's record to be written, as it is when its commit is built."""
        self._put_record(group.id, group)

    def delete(self, group_id: str) -> Deletion:
        """Queue a group's offsets to be deleted, then its record."""
        return Deletion([*self.put_offsets(group_id, self._all_gone(group_id)), self._put_record(group_id, None)])

    @property
    def writing(self) -> bool:
        """Whether a commit is in flight."""
        return self._task is not None

    def changing(self) -> set[str]:
        """The groups with queued or unfinished writes."""
        return {unit.group_id for unit in self._unfinished()}

    async def flush(self) -> None:
        """Return once nothing is queued."""
        while (task := self._task) is not None:
            await asyncio.wait([task])
            if self._task is task:  # cancelled before its first step, so it could not reset itself
                self._task = None

    async def close(self, error: HoldfastError) -> None:
        """Write nothing more; waiting calls get `error`."""
        self.broken = self.broken or error
        if self._task is not None:
            self._task.cancel()
            await self.flush()
        self._fail(list(self._queue.values()), error)
        self._queue.clear()

    def _offsets_unit(self, group_id: str, partition: TopicPartition) -> _OffsetsWrite:
        key = offsets_key(self._committed.shard, group_id, partition.topic, partition.number)
        unit = self._queue.get(key)
        if not isinstance(unit, _OffsetsWrite):
            unit = _OffsetsWrite(group_id, {})
            self._enqueue(key, unit)
        return unit

    def _put_record(self, group_id: str, group: Group | None) -> _PendingWrite:
        key = group_key(self._committed.shard, group_id)
        unit = self._queue.get(key)
        if isinstance(unit, _GroupWrite):
            unit.group = group
        else:
            unit = _GroupWrite(group_id, group)
            self._enqueue(key, unit)
        return unit

    def _all_gone(self, group_id: str) -> dict[TopicPartition, None]:
        """Every offset the group has, or will have once what was accepted is written."""
        pending = (unit for unit in self._unfinished() if isinstance(unit, _OffsetsWrite) and unit.group_id == group_id)
        return dict.fromkeys([*self._committed.offsets(group_id), *(each for unit in pending for each in unit.changes)])

    def _unfinished(self) -> Iterator[_PendingWrite]:
        return (unit for unit in (*self._batch.units, *self._queue.values()) if not unit.done.is_set())

    def _enqueue(self, key: str, unit: _PendingWrite) -> None:
        if self.broken is not None:
            raise UnavailableError("group coordinator", str(self.broken))
        self._queue[key] = unit
        if self._task is None:
            self._task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        try:
            while self._queue and self.broken is None:
                self._take()
                await self._add_large(self._batch)
                await self._write(self._batch)
        except asyncio.CancelledError:
            self._fail(self._batch.units, self.broken or UnavailableError("group coordinator", "stopped"))
            raise
        except Exception as error:  # waiting calls must end, whatever went wrong
            _log.exception("writing to %s failed", self._lease.resource)
            self._break(UnavailableError("group coordinator", repr(error)), self._batch)
        finally:
            self._task = None

    def _take(self) -> None:
        """Begin the next batch: the oldest changes, as many as fit."""
        batch = self._batch = _CommitBatch()
        for key, unit in list(self._queue.items()):
            record = self._record(unit)
            if record is not None and is_large(record):
                if not batch.apply:
                    batch.large = record
                    batch.require[unit.group_id] = self._committed.unchanged_requirement(unit.group_id)
                    self._move(key, unit, batch)
                return
            operation = self._operation(key, unit, record)
            if operation is not None:
                size_bytes = 2 * len(key.encode()) + (len(operation.value) if isinstance(operation, Put) else 0)
                fence_and_this = 2 + (unit.group_id not in batch.require)
                operations = len(batch.require) + len(batch.apply) + fence_and_this
                if batch.apply and (
                    operations > _OPS_MAX or batch.size_bytes + size_bytes > self._settings.commit_bytes_max
                ):
                    return
                batch.apply.append(operation)
                batch.require[unit.group_id] = self._committed.unchanged_requirement(unit.group_id)
                batch.size_bytes += size_bytes
            self._move(key, unit, batch)

    def _move(self, key: str, unit: _PendingWrite, batch: _CommitBatch) -> None:
        del self._queue[key]
        batch.units.append(unit)

    def _record(self, unit: _PendingWrite) -> GroupRecord | None:
        """The record that a unit writes, as its group is now."""
        if not isinstance(unit, _GroupWrite) or unit.group is None:
            return None
        record = group_record(unit.group)
        unit.change = 0 if record is None else unit.group.changes
        return record

    def _operation(self, key: str, unit: _PendingWrite, record: GroupRecord | None) -> Operation | None:
        """The store operation of a unit; None: nothing to write."""
        if isinstance(unit, _OffsetsWrite):
            unit.merged = self._committed.merged(unit.group_id, unit.changes)
            topic = next(iter(unit.changes)).topic
            return Put(key, write_offsets(unit.group_id, topic, unit.merged)) if unit.merged else Delete(key)
        if unit.group is None:
            return Delete(key)
        return None if record is None else Put(key, encode_group(record))

    async def _add_large(self, batch: _CommitBatch) -> None:
        """Compress a large record on a thread. One that is too large even so is stored without its members."""
        record = batch.large
        if record is None:
            return
        bytes_max = self._settings.record_bytes_max
        value, size_bytes = await asyncio.to_thread(encode_large_group, record, bytes_max)
        if size_bytes > bytes_max:
            limit = LimitReached("record_bytes_max", bytes_max, size_bytes)
            self._warnings.warn(
                record.group, limit, "too large to be stored: a new coordinator starts with a rebalance"
            )
        batch.apply.append(Put(group_key(self._committed.shard, record.group), value))

    async def _write(self, batch: _CommitBatch) -> None:
        if not batch.apply:
            self._finish(batch.units)
            return
        try:
            outcome = await commit_fenced(
                self._store,
                self._lease,
                clock=self._clock,
                random=self._random,
                require=tuple(batch.require.values()),
                apply=batch.apply,
            )
        except (FencedError, OutcomeUnknownError, CorruptError) as error:
            self._break(error, batch)
        except HoldfastError as error:
            _log.warning("writing %d changes to %s failed: %s", len(batch.units), self._lease.resource, error)
            self._fail(batch.units, error)
        else:
            if isinstance(outcome, Conflict):
                self._break(
                    UnavailableError(self._lease.resource, "its records were changed by another process"), batch
                )
                return
            self._counters.store_commits += 1
            self._applied(batch, outcome.version)

    def _applied(self, batch: _CommitBatch, version: int) -> None:
        for unit in batch.units:
            if isinstance(unit, _OffsetsWrite):
                self._committed.replace(unit.group_id, unit.changes, unit.merged)
            elif unit.group is None:
                self._committed.versions.pop(unit.group_id, None)
            elif unit.change:  # it had a record to write
                self._committed.versions[unit.group_id] = version
                unit.group.saved(unit.change, self._clock.boot_ms())
                self._on_settled(unit.group)
        self._finish(batch.units)

    def _break(self, error: HoldfastError, batch: _CommitBatch) -> None:
        """The store is not in the expected state, or the lease is lost."""
        _log.warning("writes to %s stopped: %s", self._lease.resource, error)
        self.broken = error
        self._fail(batch.units, error)
        self._fail(list(self._queue.values()), UnavailableError("group coordinator", str(error)))
        self._queue.clear()
        self._on_broken()

    def _fail(self, units: list[_PendingWrite], error: HoldfastError) -> None:
        for unit in units:
            unit.error = error
            if isinstance(unit, _GroupWrite) and unit.group is not None:
                unit.group.not_saved(error, self._clock.boot_ms())
                self._on_settled(unit.group)
        self._finish(units)

    def _finish(self, units: list[_PendingWrite]) -> None:
        for unit in units:
            unit.done.set()
        for group_id in {unit.group_id for unit in units}:
            self._on_written(group_id)
