"""Whoever changes messages that others have enqueued: gives them another priority, or withdraws them."""

from random import Random  # noqa: TID251 (seeded, for each client)
from typing import Final

from tests.chaos.heaps.calls import Calls, Ending
from tests.chaos.heaps.producers import PRIORITIES

from holdfast import heaps
from holdfast.vocabulary.clock import RealClock

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
