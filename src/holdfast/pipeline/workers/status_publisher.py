"""The published records of a worker: its own, and one per run, written when they change, at a limited rate.

The one rule: every record is under the worker's session and, for a slot, fenced by its lease: a former holder cannot write it.
"""

from typing import Final

import msgspec

from holdfast.contracts.commits import commit_resolved
from holdfast.contracts.store import Absent, AtVersion, Committed, Conflict, Delete, Put, Requirement, Store
from holdfast.kernel.cluster_move import MOVED_KEY, ClusterMovedError, decode_moved
from holdfast.pipeline.catalog.worker_status import SlotStatus, WorkerRecord, status_key, worker_key
from holdfast.pipeline.workers.slot_run import SlotRun
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import ExpiredError
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.settings import KIB

_encode: Final = msgspec.json.Encoder().encode
_STATUS_BYTES_MAX: Final = 256 * KIB


class StatusPublisher:
    """Writes the records of one worker under one session."""

    def __init__(self, store: Store, session: str, *, clock: Clock, random: Random) -> None:
        self._store, self._session = store, session
        self._clock, self._random = clock, random
        self._worker: WorkerRecord | None = None
        self._worker_version = 0
        self._worker_at_ms = 0
        self._written: dict[str, SlotStatus] = {}
        self._written_at_ms: dict[str, int] = {}

    async def announce(self, record: WorkerRecord) -> str | None:
        """Register the worker's name. None: it is ours; otherwise the session of the worker that has it.

        `ClusterMovedError`: the cluster has left this store.
        """
        key = worker_key(record.id)
        outcome = await self._commit([Absent(key), Absent(MOVED_KEY)], [Put(key, _encode(record), self._session)])
        if isinstance(outcome, Committed):
            self._worker, self._worker_version, self._worker_at_ms = record, outcome.version, self._clock.boot_ms()
            return None
        if (moved := outcome.found.get(MOVED_KEY)) is not None:
            raise ClusterMovedError(moved=decode_moved(moved), migration=None)
        found = outcome.found.get(key)
        if found is None:
            raise self._expired()
        return found.session or "none"

    async def worker(self, record: WorkerRecord, *, every_ms: int) -> None:
        """Write the worker's record: at once if more changed than the expiry of its leases, else once in a while."""
        before = self._worker
        if before == record:
            return
        same = before is not None and msgspec.structs.replace(before, lease_until_ms=record.lease_until_ms) == record
        if same and self._clock.boot_ms() - self._worker_at_ms < every_ms:
            return
        key = worker_key(record.id)
        outcome = await self._commit([AtVersion(key, self._worker_version)], [Put(key, _encode(record), self._session)])
        if isinstance(outcome, Conflict):
            raise self._expired()
        self._worker, self._worker_version, self._worker_at_ms = record, outcome.version, self._clock.boot_ms()

    async def run(self, run: SlotRun, warnings: tuple[str, ...], *, every_ms: int) -> bool:
        """Write a run's status if it is due. False: the slot's lease has another holder."""
        status = run.status(now_ms=self._clock.now_ms(), warnings=warnings)
        before = self._written.get(run.name)
        if before is not None:
            if msgspec.structs.replace(status, updated_at_ms=before.updated_at_ms) == before:
                return True
            soon = self._clock.boot_ms() - self._written_at_ms[run.name] < every_ms
            if soon and (before.state, before.reason) == (status.state, status.reason):
                return True
        key = status_key(run.slot.pipeline_id, run.generation, run.label)
        outcome = await self._commit(_fence(run), [Put(key, _encode_status(status), self._session)])
        if isinstance(outcome, Conflict):
            if outcome.dead_session is not None:
                raise self._expired()
            return False
        self._written[run.name], self._written_at_ms[run.name] = status, self._clock.boot_ms()
        return True

    async def forget(self, run: SlotRun) -> None:
        """Delete the status of a run that has ended, unless another worker has its slot."""
        if self._written.pop(run.name, None) is not None:
            key = status_key(run.slot.pipeline_id, run.generation, run.label)
            await self._commit(_fence(run), [Delete(key)])

    async def _commit(self, require: list[Requirement], apply: list[Put | Delete]) -> Committed | Conflict:
        return await commit_resolved(self._store, clock=self._clock, random=self._random, require=require, apply=apply)

    def _expired(self) -> ExpiredError:
        return ExpiredError(f"session {self._session}", "it expired in the store")


def _encode_status(status: SlotStatus) -> bytes:
    """Encode a status; without its partitions if they would exceed the size of a store's value."""
    value = _encode(status)
    if len(value) <= _STATUS_BYTES_MAX:
        return value
    warning = f"{len(status.epochs)} partitions are too many to list"
    short = msgspec.structs.replace(status, partitions={}, epochs={}, warnings=(*status.warnings[:20], warning))
    return _encode(short)


def _fence(run: SlotRun) -> list[Requirement]:
    return [] if run.lease is None else [run.lease.fence()]
