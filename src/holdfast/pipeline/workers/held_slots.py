"""The slots of one worker: leases under its session, released when their last run has ended.

Without leases there is one slot per started pipeline, and the store has no record of it.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import Final

from holdfast.contracts.store import Store
from holdfast.kernel.lease import Held, Lease, acquire, release
from holdfast.kernel.session import HeldSession
from holdfast.pipeline.model.definition import slot_resource
from holdfast.pipeline.workers.cluster_view import WorkerClusterView
from holdfast.pipeline.workers.settings import WorkerSettings
from holdfast.pipeline.workers.slot_assignment import AssignmentInputs, SlotId, WorkerPeer, decide_slots
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.random import Random

_log: Final = logging.getLogger(__name__)


class HeldSlots:
    """The slots that one worker holds under one session."""

    def __init__(
        self,
        store: Store,
        *,
        worker_id: str,
        session: HeldSession,
        view: WorkerClusterView,
        settings: WorkerSettings,
        clock: Clock,
        random: Random,
    ) -> None:
        self._store, self._id, self._session = store, worker_id, session
        self._view, self._settings = view, settings
        self._clock, self._random = clock, random
        self.held: dict[SlotId, Lease | None] = {}
        self.leaving: dict[SlotId, str] = {}
        """Slots about to be released, and why."""
        # Versions of released leases: a mirror that lags must not bring one back.
        self._released: dict[SlotId, int] = {}
        self._last_held_ms: dict[SlotId, int] = {}
        self._peers: tuple[tuple[str, bool], ...] = ()
        self._peers_since_ms = clock.boot_ms()
        self._unplaced: tuple[SlotId, ...] = ()
        self.needs_driver = False
        """Whether this worker has slots or will soon: Spark should be started."""

    @property
    def staying(self) -> dict[SlotId, Lease | None]:
        """The slots that are not about to be released."""
        return {slot: lease for slot, lease in self.held.items() if slot not in self.leaving}

    def label(self, slot: SlotId) -> str:
        """A slot in keys and names."""
        return str(slot.number) if self._settings.leases else f"~{self._id}"

    def leave(self, slot: SlotId, reason: str) -> None:
        """Release a slot once its runs have ended."""
        self.leaving.setdefault(slot, reason)

    async def assign(self, desired: Mapping[str, int], *, able: bool, stopping: bool = False) -> None:
        """Acquire free slots, and choose those to release."""
        if not self._settings.leases:
            mine = {SlotId(each, 0) for each in desired}
            self.held.update(dict.fromkeys(mine - self.held.keys()))
            for slot in self.held.keys() - mine:
                self.leave(slot, _unwanted_reason(slot, desired, stopping=stopping))
            self.needs_driver = bool(self.held)
            return
        self._adopt()
        decision = decide_slots(self._inputs(desired, able=able))
        self.needs_driver = decision.needs_driver or bool(self.held)
        self._log_unplaced(decision.unplaced)
        for slot in decision.unwanted:
            self.leave(slot, _unwanted_reason(slot, desired, stopping=stopping))
        for slot in decision.rebalanced:
            self.leave(slot, "rebalanced to another worker" if able else "the Spark driver of this worker fails")
        for slot in decision.take:
            await self._acquire(slot)

    async def _acquire(self, slot: SlotId) -> None:
        won = await acquire(
            self._store,
            slot_resource(*slot),
            holder=self._id,
            session=self._session.id,
            clock=self._clock,
            random=self._random,
        )
        if isinstance(won, Lease):
            self.held[slot] = won
            self._last_held_ms[slot] = self._clock.boot_ms()
            _log.info("acquired slot %d of pipeline %s, epoch %d", slot.number, self._name(slot), won.epoch)

    async def release(self, busy: Iterable[SlotId]) -> None:
        """Release the leaving slots that have no runs."""
        for slot in sorted(self.leaving.keys() - set(busy)):
            lease = self.held.get(slot)
            if lease is not None:
                await release(self._store, lease, clock=self._clock, random=self._random)
                self._released[slot] = lease.version
                _log.info("released slot %d of pipeline %s: %s", slot.number, self._name(slot), self.leaving[slot])
            self.held.pop(slot, None)
            self.leaving.pop(slot, None)

    def held_by_others(self) -> dict[SlotId, str]:
        """Slots of other workers. One that this worker released is not among them, even if the mirrors still show it."""
        return {
            slot: held.holder
            for slot, held in self._view.holders().items()
            if held.version > self._released.get(slot, 0) and held.session != self._session.id
        }

    def is_moving(self, slot: SlotId) -> bool:
        """Whether a slot is moving to another worker: about to be released here, or held by one a moment ago."""
        recently_ms = self._clock.boot_ms() - self._settings.settle_ms
        return slot in self.leaving or self._last_held_ms.get(slot, recently_ms) > recently_ms

    def _adopt(self) -> None:
        """Reconcile our leases with the mirrors: one whose response was lost is ours, one that another worker has is not."""
        holders = self._view.holders()
        for slot, held in holders.items():
            if (
                held.session == self._session.id
                and slot not in self.held
                and held.version > self._released.get(slot, 0)
            ):
                self.held[slot] = _lease_of(held)
        for slot, lease in self.held.items():
            seen = holders.get(slot)
            if lease is not None and seen is not None and seen.version > lease.version:
                self.leave(slot, "its lease has another holder")

    def _inputs(self, desired: Mapping[str, int], *, able: bool) -> AssignmentInputs:
        now_ms = self._clock.boot_ms()
        peers = self._seen_peers(able=able)
        if (seen := tuple((peer.id, peer.able) for peer in peers)) != self._peers:
            self._peers, self._peers_since_ms = seen, now_ms
        # An earlier process of this worker holds nothing: its leases expired with its name, which this one had to wait for.
        holders = {**self.held_by_others(), **dict.fromkeys(self.held, self._id)}
        self._last_held_ms.update(dict.fromkeys(holders, now_ms))
        return AssignmentInputs(
            me=self._id,
            desired=desired,
            peers=peers,
            holders=holders,
            leaving=frozenset(self.leaving),
            settled=now_ms - self._peers_since_ms >= self._settings.settle_ms,
        )

    def _seen_peers(self, *, able: bool) -> tuple[WorkerPeer, ...]:
        others = [
            WorkerPeer(
                id=worker.id,
                slots_per_pipeline_max=worker.slots_per_pipeline_max,
                able=worker.able,
                ready=worker.driver == "ready",
            )
            for worker in self._view.workers().values()
            if worker.mode == "leases" and worker.id != self._id
        ]
        me = WorkerPeer(id=self._id, slots_per_pipeline_max=self._settings.slots_per_pipeline_max, able=able)
        return tuple(sorted([*others, me], key=lambda peer: peer.id))

    def _log_unplaced(self, unplaced: tuple[SlotId, ...]) -> None:
        if unplaced != self._unplaced:
            self._unplaced = unplaced
            for slot in unplaced:
                _log.warning("slot %d of pipeline %s: no worker has room for it", slot.number, self._name(slot))

    def _name(self, slot: SlotId) -> str:
        return self._view.name_of(slot.pipeline_id)


def _unwanted_reason(slot: SlotId, desired: Mapping[str, int], *, stopping: bool) -> str:
    if stopping:
        return "the worker stops"
    return "fewer replicas" if slot.pipeline_id in desired else "the pipeline was stopped"


def _lease_of(held: Held) -> Lease:
    return Lease(
        resource=held.resource,
        holder=held.holder,
        session=held.session or "",
        epoch=held.epoch,
        version=held.version,
    )
