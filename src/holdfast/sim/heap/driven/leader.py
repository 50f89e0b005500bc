"""A leader of a partition: one leadership, and the views of the heap that are opened under it.

The one rule: as `heap.local_heaps`, a view that has ended while the partition is still led is read from the log again.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from holdfast.heap.canonical_state import encode_state
from holdfast.heap.growth.growing_partition import EarlierPartitions, GrowingPartition
from holdfast.heap.moves import Deliver
from holdfast.heap.partition_state import HeapState
from holdfast.heap.payloads import PayloadCache
from holdfast.heap.recovery import recover
from holdfast.heap.replay import replay
from holdfast.heap.settings import HeapSettings
from holdfast.log.errors import NotLeaderError
from holdfast.sim.heap.driven.log import SimOwnedPartition
from holdfast.sim.heap.driven.network import SimNetwork
from holdfast.sim.heap.driven.topic import SimTopic
from holdfast.sim.heap.driven.variant import DrivenVariant
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import HoldfastError, UnavailableError
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.tasks import LoopTurns, background_tasks, task_group

_REOPEN_MS: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderParts:
    """What every leader of a world works with. `deliver`: where messages that move go, None: none does."""

    variant: DrivenVariant
    settings: HeapSettings
    network: SimNetwork
    random: Random
    knock: Callable[[int], None]
    earlier: EarlierPartitions
    deliver: Deliver | None
    snapshots: bool


class DrivenLeader:
    """One leadership on a host. `view`: None while there is none. `recovered`: told of a new view's offset, that of its snapshot,
    and whether the log says the same."""

    def __init__(
        self,
        host: int,
        place: int,
        log: SimOwnedPartition,
        topic: SimTopic,
        *,
        parts: LeaderParts,
        payloads: PayloadCache,
        clock: Clock,
        recovered: Callable[[int, int, bool], None],
    ) -> None:
        self.host, self.place, self.log, self.number = host, place, log, log.partition_id.number
        self.view: GrowingPartition | None = None
        self.is_dead = False
        self.topic = topic
        self._parts, self._payloads, self._clock, self._recovered = parts, payloads, clock, recovered
        name = f"p{place}.{log.epoch}"
        self._tasks = [parts.network.start(self._serve(), name), parts.network.start(self._tell_spine(), name)]

    def open_view(self) -> GrowingPartition:
        """The view. `HoldfastError`: it is not served here now."""
        if self.is_dead:
            raise UnavailableError(f"host {self.host}", "it is gone")
        if self.view is None:
            raise NotLeaderError(self.topic.name, self.number, reason="it is being recovered")
        return self.view

    def topic_changed(self, topic: SimTopic) -> None:
        """The heap has grown, as its record says."""
        self.topic = topic
        if self.view is not None:
            self.view.rules = topic.rules(self.place)
            self.view.grow(topic.sets)

    def close(self) -> None:
        """The leadership is over, and it knows."""
        self.log.close()
        if self.view is not None:
            self._end(self.view)

    def die(self) -> None:
        """Its process is gone: nothing that it says is heard."""
        self.is_dead = True
        self.close()
        for task in self._tasks:
            task.cancel()

    def _end(self, view: GrowingPartition) -> None:
        self.view = None
        view.end(NotLeaderError(self.topic.name, self.number, reason="leadership has ended"))

    async def _serve(self) -> None:
        while self.log.closed is None:
            try:
                state = await self._read()
                self.view = view = self._parts.variant.partition(
                    self.log,
                    state,
                    self.topic.rules(self.place),
                    sets=self.topic.sets,
                    earlier=self._parts.earlier,
                    payloads=self._payloads,
                    settings=self._parts.settings,
                    clock=self._clock,
                    random=self._parts.random,
                )
                view.log_rules()
                view.log_partitions()
                try:
                    await self._run(view)
                finally:
                    self._end(view)
            except HoldfastError:
                pass
            await self._parts.network.sleep_ms(_REOPEN_MS)

    async def _read(self) -> HeapState:
        mode = self.topic.config.mode
        if not self._parts.snapshots:
            state = HeapState(mode)
            await replay(self.log, state, LoopTurns())
            return state
        state = await recover(self.log, mode, LoopTurns())
        as_logged = encode_state(state) == encode_state(self.log.replayed(mode, state.next_offset))
        self._recovered(state.next_offset, self.log.snapshots.list.newest_offset, as_logged)
        return state

    async def _run(self, view: GrowingPartition) -> None:
        """As `local_heaps`: timers, snapshots, and messages that move."""
        parts, settings = self._parts, self._parts.settings
        if parts.deliver is None and not parts.snapshots:
            await view.run()
            return
        async with task_group() as group:
            if parts.deliver is not None:
                mover = parts.variant.mover(view, parts.deliver, clock=self._clock, retry_ms=settings.move_retry_ms)
                group.create_task(mover.run())
            if not parts.snapshots:
                await view.run()
                return
            view.snapshots = parts.variant.keeper(
                view, settings, turn=asyncio.Lock(), clock=self._clock, random=parts.random
            )
            async with background_tasks(view.snapshots.run()):
                await view.run()

    async def _tell_spine(self) -> None:
        while self.log.closed is None:
            await self._parts.network.sleep_ms(self._parts.settings.tell_spine_ms)
            if self.view is None:
                continue
            self.view.log_partitions()
            if self.view.spine is not None and not self.view.spine.tell():
                self._parts.knock(self.place)
