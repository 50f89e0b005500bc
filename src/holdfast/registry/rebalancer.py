"""Rebalancer: who should own what, and the commits that bring it about.

The one rule: a plan is made from one view of the store, and each of its steps names the epoch it saw. Several rebalancers may
plan at once: the store lets one of two racing steps through, the other returns False, and equal views give equal
plans. It calls no consumer: that is `ConsumerCoordinator`.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from holdfast.kernel.fair_share import FairShares, contiguous, sticky
from holdfast.registry.model import PartitionMove, PartitionState
from holdfast.registry.store import RegistryStore
from holdfast.registry.view import RegistryView
from holdfast.vocabulary.tasks import gather_limited

_CONCURRENT_MAX: Final = 64  # engines put commits that come together into one batch; more than this only queue


class Rebalancer:
    """Fair share over the registered consumers, and reclamation of what dead ones own."""

    def __init__(self, registry: RegistryStore) -> None:
        self.registry = registry

    def fair_share(
        self, consumers: Iterable[str], *, view: RegistryView | None = None, reclaimed: Iterable[PartitionState] = ()
    ) -> FairShares:
        """Who should own what under the registry's plan; `reclaimed` are partitions whose owners just failed at them."""
        count = self.registry.settings.partitions
        ids = sorted(set(consumers))
        if self.registry.settings.plan == "contiguous":
            return contiguous(ids, count)
        owned = {each: [state.id for state in view.owned_by(each)] for each in ids} if view is not None else {}
        avoid = {state.id: state.owner for state in reclaimed if state.owner is not None}
        return sticky(owned, ids, count, avoid=avoid)

    async def reclaim_expired(self) -> tuple[PartitionState, ...]:
        """Release partitions of dead consumers and expired claims; the partitions as they were before."""
        expired = await self.registry.expired()

        async def reclaim(state: PartitionState) -> bool:
            return state.owner is not None and await self.registry.release(state.id, state.owner, state.epoch)

        reclaimed = await gather_limited(reclaim, expired, _CONCURRENT_MAX)
        return tuple(state for state, done in zip(expired, reclaimed, strict=True) if done)

    def plan(self, view: RegistryView, *, reclaimed: Iterable[PartitionState] = ()) -> tuple[PartitionMove, ...]:
        """The moves from the present owners to the planned ones; none without consumers."""
        target = {
            number: consumer
            for consumer, numbers in self.fair_share(view.consumers, view=view, reclaimed=reclaimed).items()
            for number in numbers
        }
        return tuple(
            PartitionMove(partition=number, epoch=state.epoch, source=state.owner, target=target[number])
            for number, state in sorted(view.partitions.items())
            if number in target and target[number] != state.owner
        )

    async def carry_out(self, moves: Sequence[PartitionMove]) -> tuple[PartitionMove, ...]:
        """Release, then claim, each by the epoch the plan saw; the moves that won their races."""

        async def carry(move: PartitionMove) -> bool:
            epoch = move.epoch
            if move.source is not None:
                if not await self.registry.release(move.partition, move.source, epoch):
                    return False
                epoch += 1
            return await self.registry.claim(move.partition, move.target, epoch)

        won = await gather_limited(carry, moves, _CONCURRENT_MAX)
        return tuple(move for move, done in zip(moves, won, strict=True) if done)

    async def rebalance(self, *, reclaimed: Iterable[PartitionState] = ()) -> tuple[PartitionMove, ...]:
        """Plan from the present view and carry it out."""
        return await self.carry_out(self.plan(await self.registry.snapshot(), reclaimed=reclaimed))
