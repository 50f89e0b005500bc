"""Whoever changes messages that others have enqueued, gives them another priority, or withdraws them; and the heap's partitions."""

from collections.abc import Sequence
from random import Random  # noqa: TID251 (seeded, for each client)
from typing import Final

from tests.chaos.heaps.calls import Calls, Ending
from tests.chaos.heaps.producers import PRIORITIES

from holdfast import heaps
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import HoldfastError

CALL_S: Final = 4.0
PAUSE_MS: Final = (50, 400)
CANCELS: Final = 0.2


class HeapOperator:
    """One of them."""

    def __init__(self, calls: Calls, bootstrap: str, topic: str, random: Random) -> None:
        self._calls, self._bootstrap, self._topic, self._random = calls, bootstrap, topic, random
        self._clock = RealClock()

    async def run(self, ending: Ending) -> None:
        """Until it ends."""
        async with heaps.connect(self._bootstrap, name=self._calls.name, timeout=CALL_S) as client:
            while not ending():
                await self._clock.sleep_ms(self._random.uniform(*PAUSE_MS))
                chosen = self._calls.backlog.chosen(self._random)
                if chosen is not None:
                    await self._change(client, *chosen)

    async def _change(self, client: heaps.HeapClient, value: str, message_id: str) -> None:
        place = self._calls.place(self._topic, message_id)
        if self._random.random() < CANCELS:
            await self._calls.change("cancel", value, place, client.cancel(self._topic, message_id))
            return
        priority = self._random.randrange(PRIORITIES)
        changing = client.reprioritise(self._topic, message_id, priority)
        await self._calls.change("reprioritise", value, place, changing, priority=priority)


class HeapGrower:
    """Gives a heap more partitions, one count after the other, spread over the time of the faults."""

    def __init__(self, bootstrap: str, topic: str, counts: Sequence[int], seconds: float) -> None:
        self._bootstrap, self._topic, self._counts, self._seconds = bootstrap, topic, counts, seconds
        self._clock = RealClock()

    async def run(self, ending: Ending) -> None:
        """Until there are as many as there shall be."""
        pause_ms = self._seconds * 1000 / (len(self._counts) + 1)
        async with heaps.connect(self._bootstrap, name="grower", timeout=CALL_S) as client:
            for count in self._counts:
                if not ending():
                    await self._clock.sleep_ms(pause_ms)
                await self._grow(client, count)

    async def _grow(self, client: heaps.HeapClient, count: int) -> None:
        while True:
            try:
                await client.update(self._topic, partitions=count)
                return
            except HoldfastError:
                await self._clock.sleep_ms(PAUSE_MS[0])
