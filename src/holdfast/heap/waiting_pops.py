"""Pops that wait for messages, first come, first served."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from holdfast.heap.decisions import HeapRules, decide_grant
from holdfast.heap.errors import ResourceExhaustedError
from holdfast.heap.partition_state import HeapState
from holdfast.heap.records import Grant
from holdfast.vocabulary.errors import HoldfastError
from holdfast.vocabulary.settings import MIB

POP_BYTES_MAX: Final = 32 * MIB  # payloads of one answer, however many messages were asked for


class WaitingPop:
    """One pop: what it asks for, and what it was granted, with the offset of the GRANT."""

    __slots__ = ("consumer", "count", "done", "grant", "granted_at", "visibility_ms")

    def __init__(self, count: int, consumer: str, visibility_ms: int) -> None:
        self.count, self.consumer, self.visibility_ms = count, consumer, visibility_ms
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()  # granted, not yet durable
        self.grant: Grant | None = None
        self.granted_at = -1


class WaitingPops:
    """The pops of one partition. `add` appends a GRANT and returns its offset."""

    def __init__(self, state: HeapState, *, epoch: int, now_ms: Callable[[], int], add: Callable[[Grant], int]) -> None:
        self._state, self._epoch, self._now_ms, self._add = state, epoch, now_ms, add
        self._waiting: deque[WaitingPop] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, pop: WaitingPop) -> None:
        """Wait behind the others."""
        self._waiting.append(pop)

    def remove(self, pop: WaitingPop) -> None:
        """Wait no longer."""
        if not pop.done.done():
            self._waiting.remove(pop)

    def serve(self, rules: HeapRules) -> None:
        """Grant what there is to those who wait, in their order, until there is nothing left, or no room in flight."""
        while self._waiting:
            pop = self._waiting[0]
            refusal = self.grant(pop, rules)
            if refusal is None and pop.grant is None:
                return
            self._waiting.popleft()
            if refusal is not None:
                _fail(pop, refusal)
            else:
                pop.done.set_result(None)

    def grant(self, pop: WaitingPop, rules: HeapRules) -> ResourceExhaustedError | None:
        """Grant what there is to one pop, which need not wait here; why not, if its consumer may have nothing."""
        try:
            grant = decide_grant(
                self._state,
                rules,
                count=pop.count,
                consumer=pop.consumer,
                visibility_ms=pop.visibility_ms,
                epoch=self._epoch,
                now_ms=self._now_ms(),
            )
        except ResourceExhaustedError as error:
            return error
        if grant is not None:
            pop.grant, pop.granted_at = grant, self._add(grant)
        return None

    def fail(self, error: HoldfastError) -> None:
        """Nobody is served here any more."""
        waiting, self._waiting = self._waiting, deque()
        for pop in waiting:
            _fail(pop, error)


def _fail(pop: WaitingPop, error: HoldfastError) -> None:
    pop.done.set_exception(error)
    pop.done.exception()  # whoever waited may be gone
