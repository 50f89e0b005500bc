"""The slots of one worker: taken as leases under its session, chosen to be given back, released when nothing is left at them.

Without leases there is one slot per started pipeline, and it is nobody else's business.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import Final

from holdfast.contracts.store import Store
from holdfast.kernel.lease import Held, Lease, acquire, release
from holdfast.kernel.session import HeldSession
from holdfast.pipeline.model.definition import slot_resource
from holdfast.pipeline.workers.cluster_view import ClusterView
from holdfast.pipeline.workers.settings import WorkerSettings
from holdfast.pipeline.workers.slot_assignment import AssignmentInputs, SlotId, WorkerPeer, decide_slots
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.random import Random

_log: Final = logging.getLogger(__name__)


class HeldSlots:
    """What one worker holds under one session. `leaving`: those it is about to release."""

    def __init__(
        self,
        store: Store,
        *,
        worker_id: str,
        session: HeldSession,
        outlook: ClusterView,
        settings: WorkerSettings,
        clock: Clock,
        random: Random,
    ) -> None:
        self._store, self._id, self._session = store, worker_id, session
        self._outlook, self._settings = outlook, settings
        self._clock, self._random = clock, random
        self.held: dict[SlotId, Lease | None] = {}
        self.leaving: set[SlotId] = set()
        self._released: dict[
            SlotId, int
        ] = {}  # versions of leases given back: a mirror that lags must not bring one back
        self._last_held_ms: dict[SlotId, int] = {}
        self._there: tuple[tuple[str, bool], ...] = ()
        self._there_since_ms = clock.boot_ms()
        self._unplaced: tuple[SlotId, ...] = ()
        self.expecting = False
        """Whether there is, or will soon be, something to do here: time to start Spark."""

    @property
    def staying(self) -> dict[SlotId, Lease | None]:
        """Those that are to be worked for."""
        return {slot: lease for slot, lease in self.held.items() if slot not in self.leaving}

    def label(self, slot: SlotId) -> str:
        """What a slot is called."""
        return str(slot.number) if self._settings.leases else f"~{self._id}"

    async def place(self, wanted: Mapping[str, int], *, able: bool) -> None:
        """Take slots, and choose those to give back."""
        if not self._settings.leases:
            mine = {SlotId(each, 0) for each in wanted}
            self.held.update(dict.fromkeys(mine - self.held.keys()))
            self.leaving |= self.held.keys() - mine
            self.expecting = bool(self.held)
            return
        self._adopt()
        decision = decide_slots(self._situation(wanted, able=able))
        self.expecting = decision.expecting or bool(self.held)
        self._note_unplaced(decision.unplaced)
        self.leaving.update(decision.give_back)
        for slot in decision.take:
            await self._take(slot)

    async def _take(self, slot: SlotId) -> None:
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
            _log.info("slot %d of pipeline %s is ours, epoch %d", slot.number, slot.pipeline_id, won.epoch)

    async def release(self, busy: Iterable[SlotId]) -> None:
        """Release the slots that leave and that nothing is at any more."""
        for slot in sorted(self.leaving - set(busy)):
            lease = self.held.get(slot)
            if lease is not None:
                await release(self._store, lease, clock=self._clock, random=self._random)
                self._released[slot] = lease.version
                _log.info("slot %d of pipeline %s is given back", slot.number, slot.pipeline_id)
            self.held.pop(slot, None)
            self.leaving.discard(slot)

    def elsewhere(self) -> dict[SlotId, str]:
        """Who else holds slots. What this worker gave back is not there, even if the mirrors still show it."""
        return {
            slot: held.holder
            for slot, held in self._outlook.holders().items()
            if held.version > self._gone(slot) and held.session != self._session.id
        }

    def passing(self, slot: SlotId) -> bool:
        """Whether a slot is on its way to another worker: about to be given back here, or held by somebody a moment ago."""
        recently_ms = self._clock.boot_ms() - self._settings.settle_ms
        return slot in self.leaving or self._last_held_ms.get(slot, recently_ms) > recently_ms

    def _adopt(self) -> None:
        """What the mirrors say of our own leases: one whose answer was lost is ours, one that another has is not."""
        holders = self._outlook.holders()
        for slot, held in holders.items():
            if held.session == self._session.id and slot not in self.held and held.version > self._gone(slot):
                self.held[slot] = _lease_of(held)
        for slot, lease in self.held.items():
            seen = holders.get(slot)
            if lease is not None and seen is not None and seen.version > lease.version:
                self.leaving.add(slot)

    def _gone(self, slot: SlotId) -> int:
        return self._released.get(slot, 0)

    def _situation(self, wanted: Mapping[str, int], *, able: bool) -> AssignmentInputs:
        now_ms = self._clock.boot_ms()
        peers = self._seen_peers(able=able)
        if (there := tuple((peer.id, peer.able) for peer in peers)) != self._there:
            self._there, self._there_since_ms = there, now_ms
        # A former life of ours holds nothing any more: its leases went with its name, which this one had to wait for.
        holders = {**self.elsewhere(), **dict.fromkeys(self.held, self._id)}
        self._last_held_ms.update(dict.fromkeys(holders, now_ms))
        return AssignmentInputs(
            me=self._id,
            wanted=wanted,
            peers=peers,
            holders=holders,
            leaving=frozenset(self.leaving),
            settled=now_ms - self._there_since_ms >= self._settings.settle_ms,
        )

    def _seen_peers(self, *, able: bool) -> tuple[WorkerPeer, ...]:
        others = [
            WorkerPeer(
                id=worker.id,
                slots_per_pipeline_max=worker.slots_per_pipeline_max,
                able=worker.able,
                ready=worker.driver == "ready",
            )
            for worker in self._outlook.workers().values()
            if worker.mode == "leases" and worker.id != self._id
        ]
        me = WorkerPeer(id=self._id, slots_per_pipeline_max=self._settings.slots_per_pipeline_max, able=able)
        return tuple(sorted([*others, me], key=lambda peer: peer.id))

    def _note_unplaced(self, unplaced: tuple[SlotId, ...]) -> None:
        if unplaced != self._unplaced:
            self._unplaced = unplaced
            for slot in unplaced:
                _log.warning("slot %d of pipeline %s finds no worker with room for it", slot.number, slot.pipeline_id)


def _lease_of(held: Held) -> Lease:
    return Lease(
        resource=held.resource,
        holder=held.holder,
        session=held.session or "",
        epoch=held.epoch,
        version=held.version,
    )
