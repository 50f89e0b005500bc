"""The batches of a partition that nobody has ended: after a death, a takeover, or a message that was lost.

The one rule: whoever prepared asks the store, epochs first, then the decision (`participant.outcome_of`). Only where both epochs
still are what they were, the coordinator is asked: what it does not remember at that epoch, it will never commit.
"""

import logging
from typing import Final

from holdfast.heap.batch.coordinator import BatchCoordinator
from holdfast.heap.batch.local_batches import LocalBatches
from holdfast.heap.batch.model import Prepared, Resolved, decision_key
from holdfast.heap.batch.participant import BatchOutcome, outcome_of
from holdfast.heap.partition import HeapPartition
from holdfast.kernel.keys import epoch_key, placed_resource
from holdfast.kernel.lease import read_epoch
from holdfast.vocabulary.errors import HoldfastError
from holdfast.vocabulary.tasks import gather_or_cancel

_log: Final = logging.getLogger(__name__)

_TOGETHER: Final = 100  # looked at side by side; one whose coordinator does not answer holds up no other


class BatchResolver:
    """Ends the batches of one leadership of a partition."""

    def __init__(self, view: HeapPartition, batches: LocalBatches) -> None:
        self._view, self._batches = view, batches
        self._which = view.log.partition_id
        self._seen_ms: dict[str, float] = {}

    async def run(self) -> None:
        """Until the partition's view has ended."""
        reserved, pause_ms = self._view.state.reserved, self._batches.settings.batch_resolve_ms
        while self._view.ended is None:
            if not reserved.prepared and not reserved.to_forget:
                await self._view.batches_changed.wait()
            elif not await self.step():
                await self._batches.clock.sleep_ms(pause_ms)

    async def step(self) -> bool:
        """Look at what has waited for a while, or is of an earlier leadership; whether anything has come to its end."""
        reserved, now_ms = self._view.state.reserved, self._batches.clock.boot_ms()
        self._seen_ms = {batch: self._seen_ms.get(batch, now_ms) for batch in reserved.prepared}
        before_ms = now_ms - self._batches.settings.batch_resolve_ms
        waiting = [
            each
            for each in reserved.prepared.values()
            if each.epoch != self._view.log.epoch or self._seen_ms[each.batch] <= before_ms
        ]
        ends = [each for each in reserved.to_forget.values() if not self._batches.is_coordinating(each.batch)]
        work = [*map(self._look, waiting[:_TOGETHER]), *map(self._finish, ends[:_TOGETHER])]
        return any(await gather_or_cancel(*work))

    async def _look(self, prepared: Prepared) -> bool:
        try:
            outcome = await self._outcome(prepared)
            if outcome is BatchOutcome.UNDECIDED:
                return False
            await self._view.resolve(Resolved(prepared.batch, outcome is BatchOutcome.COMMITTED))
        except HoldfastError as error:
            _log.debug("batch %s of %s is not resolved yet: %s", prepared.batch, self._which, error)
            return False
        return True

    async def _outcome(self, prepared: Prepared) -> BatchOutcome:
        coordinator, own_epoch = prepared.coordinator, self._view.log.epoch
        if coordinator == self._which.number:
            coordinator_epoch = own_epoch
        else:
            resource = placed_resource(self._which.topic, coordinator)
            coordinator_epoch = read_epoch(await self._batches.store.get(epoch_key(resource)))
        outcome = outcome_of(
            prepared,
            own_epoch=own_epoch,
            coordinator_epoch=coordinator_epoch,
            is_decided=await self._is_decided(prepared),
        )
        if outcome is not BatchOutcome.UNDECIDED or await self._may_be_committed(prepared):
            return outcome
        return BatchOutcome.COMMITTED if await self._is_decided(prepared) else BatchOutcome.ABORTED

    async def _may_be_committed(self, prepared: Prepared) -> bool:
        """Whether the coordinator remembers the batch."""
        if prepared.coordinator == self._which.number:
            return self._batches.is_coordinating(prepared.batch)
        return await self._batches.peers.is_deciding(
            self._which.topic, prepared.coordinator, prepared.batch, prepared.coordinator_epoch
        )

    async def _is_decided(self, prepared: Prepared) -> bool:
        key = decision_key(self._which.topic_id, prepared.coordinator, prepared.batch)
        return await self._batches.store.get(key) is not None

    async def _finish(self, prepared: Prepared) -> bool:
        """A committed batch of an earlier coordinator."""
        batch = BatchCoordinator.recovered(self._which.topic_id, prepared.batch, prepared.partitions)
        try:
            await self._batches.resolve(self._view, batch)
            return await self._batches.forget(self._view, batch)
        except HoldfastError as error:
            _log.debug("batch %s of %s is not at its end yet: %s", prepared.batch, self._which, error)
            return False
