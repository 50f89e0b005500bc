"""Producers of a heap: with sequence numbers of their own, sent again until the outcome is known, or with those of the SDK.

Some messages are delayed, some become dead letters when they fail once or twice, some are sent again after their acknowledgement.
"""

import asyncio
from random import Random  # noqa: TID251 (seeded, for each client)
from typing import Final

from tests.chaos.heaps.calls import Calls, Ending

from holdfast import heaps
from holdfast.vocabulary.clock import RealClock

PRIORITIES: Final = 12
DELAYED: Final = 0.15
TWICE: Final = 0.1
FEW_RETRIES: Final = 0.05
IN_FLIGHT_MAX: Final = 40
CALL_S: Final = 4.0


class HeapProducer:
    """One producer, with two clients: the second one sends again what the first one is not sure of."""

    def __init__(
        self, calls: Calls, bootstrap: str, topic: str, random: Random, *, per_s: float, backlog_max: int, sure: bool
    ) -> None:
        self._calls, self._bootstrap, self._topic, self._random = calls, bootstrap, topic, random
        self._per_s, self._backlog_max, self._sure = per_s, backlog_max, sure
        self._clock = RealClock()
        self.outstanding = 0

    async def run(self, ending: Ending) -> None:
        """Until it ends and every message has an outcome."""
        name = self._calls.name
        async with (
            heaps.connect(self._bootstrap, name=name, timeout=CALL_S) as first,
            heaps.connect(self._bootstrap, name=f"{name}-again", timeout=CALL_S) as second,
            asyncio.TaskGroup() as sending,
        ):
            number = 0
            while not ending():
                await self._clock.sleep_ms(self._random.expovariate(self._per_s) * 1000)
                if self.outstanding < IN_FLIGHT_MAX and len(self._calls.backlog.ids) < self._backlog_max:
                    sending.create_task(self._send((first, second), number))
                    number += 1

    async def _send(self, clients: tuple[heaps.HeapClient, heaps.HeapClient], number: int) -> None:
        self.outstanding += 1
        try:
            value, priority = f"{self._calls.name}/{number}", self._random.randrange(PRIORITIES)
            delay_ms = self._random.randrange(50, 2_000) if self._random.random() < DELAYED else 0
            retries = self._random.randrange(2) if self._random.random() < FEW_RETRIES else None
            twice, attempt = self._random.random() < TWICE, 0
            while True:
                client = clients[attempt % 2 if self._sure else 0]
                made = client.enqueue(
                    self._topic,
                    value.encode(),
                    priority=priority,
                    delay=delay_ms / 1000,
                    max_retries=retries,
                    producer=(self._calls.name, 0, number) if self._sure else None,
                )
                is_made = await self._calls.enqueue(value, priority, delay_ms, made, self._topic)
                attempt += 1
                if not self._sure or (is_made and not twice):
                    return
                twice = twice and not is_made
        finally:
            self.outstanding -= 1
