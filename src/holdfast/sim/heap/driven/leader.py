"""A leader of a partition: one leadership, and the views of the heap that are opened under it.

The one rule: as `heap.local_heaps`, a view that has ended while the partition is still led is read from the log again.
"""

from collections.abc import Callable
from typing import Final

from holdfast.heap.decisions import HeapRules
from holdfast.heap.partition import HeapPartition
from holdfast.heap.partition_state import HeapState
from holdfast.heap.payloads import PayloadCache
from holdfast.heap.replay import replay
from holdfast.heap.settings import HeapSettings
from holdfast.log.errors import NotLeaderError
from holdfast.sim.heap.driven.log import SimOwnedPartition
from holdfast.sim.heap.driven.network import SimNetwork
from holdfast.sim.heap.driven.variant import DrivenVariant
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import HoldfastError, UnavailableError
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.tasks import LoopTurns

_REOPEN_MS: Final = 100


class DrivenLeader:
    """One leadership on a host. `view`: None while there is none."""

    def __init__(
        self,
        host: int,
        log: SimOwnedPartition,
        rules: HeapRules,
        *,
        variant: DrivenVariant,
        settings: HeapSettings,
        payloads: PayloadCache,
        network: SimNetwork,
        clock: Clock,
        random: Random,
        knock: Callable[[int], None],
    ) -> None:
        self.host, self.log, self.number = host, log, log.partition_id.number
        self.view: HeapPartition | None = None
        self.is_dead = False
        self._rules, self._variant, self._settings, self._payloads = rules, variant, settings, payloads
        self._network, self._clock, self._random, self._knock = network, clock, random, knock
        self._tasks = [
            network.start(self._serve(), f"p{self.number}.{log.epoch}"),
            network.start(self._tell_spine(), f"p{self.number}.{log.epoch}"),
        ]

    def open_view(self) -> HeapPartition:
        """The view. `HoldfastError`: it is not served here now."""
        if self.is_dead:
            raise UnavailableError(f"host {self.host}", "it is gone")
        if self.view is None:
            raise NotLeaderError("t", self.number, reason="it is being recovered")
        return self.view

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

    def _end(self, view: HeapPartition) -> None:
        self.view = None
        view.end(NotLeaderError("t", self.number, reason="leadership has ended"))

    async def _serve(self) -> None:
        while self.log.closed is None:
            try:
                state = HeapState(self._rules.config.mode)
                await replay(self.log, state, LoopTurns())
                self.view = view = self._variant.partition(
                    self.log,
                    state,
                    self._rules,
                    payloads=self._payloads,
                    settings=self._settings,
                    clock=self._clock,
                    random=self._random,
                )
                view.log_rules()
                try:
                    await view.run()
                finally:
                    self._end(view)
            except HoldfastError:
                pass
            await self._network.sleep_ms(_REOPEN_MS)

    async def _tell_spine(self) -> None:
        while self.log.closed is None:
            await self._network.sleep_ms(self._settings.tell_spine_ms)
            if self.view is not None and self.view.spine is not None and not self.view.spine.tell():
                self._knock(self.number)
