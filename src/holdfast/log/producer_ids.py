"""Ids of idempotent producers: 64-bit numbers, each given once.

    counter/producer   {"next"}   the first id of the next block

The one rule: a block of ids belongs to the process whose commit took it. What a process has not handed out when it ends is left out
for ever, and so is a block whose commit was lost on the way: gaps are harmless, an id given twice loses records.
"""

import asyncio
from typing import Final

import msgspec

from holdfast.contracts.compare_and_swap import Swap, compare_and_swap
from holdfast.contracts.store import Entry, Put, Store
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.random import Random

PRODUCER_COUNTER: Final = "counter/producer"
BLOCK_IDS: Final = 1_000


class _ProducerIdCounter(msgspec.Struct, frozen=True):
    next: int


class ProducerIds:
    """The ids one process hands out. Safe for many tasks: one commit per block, shared by all that wait for it."""

    def __init__(self, store: Store, *, clock: Clock, random: Random) -> None:
        self._store, self._clock, self._random = store, clock, random
        self._block = range(0)
        self._taking = asyncio.Lock()

    async def next(self) -> int:
        """An id that was never given out before. `UnavailableError`, `OutcomeUnknownError`: ask again, nothing is harmed."""
        if not self._block:
            async with self._taking:
                if not self._block:  # the task that held the lock may have taken one
                    self._block = await self._take()
                return self._first()
        return self._first()

    async def was_given(self, producer_id: int) -> bool:
        """Whether this id was given, or may have been."""
        return 1 <= producer_id < _next_block(await self._store.get(PRODUCER_COUNTER))

    def _first(self) -> int:
        """The first id of the block. No await: no other task gets it."""
        first, self._block = self._block[0], self._block[1:]
        return first

    async def _take(self) -> range:
        async def take(entry: Entry | None) -> Swap[range]:
            block = range(start := _next_block(entry), start + BLOCK_IDS)
            return Swap(block, [Put(PRODUCER_COUNTER, msgspec.json.encode(_ProducerIdCounter(block.stop)))])

        block, _ = await compare_and_swap(self._store, PRODUCER_COUNTER, take, clock=self._clock, random=self._random)
        return block


def _next_block(entry: Entry | None) -> int:
    """The first id of the next block."""
    return 1 if entry is None else msgspec.json.decode(entry.value, type=_ProducerIdCounter).next
