"""Producers and readers of one life. They know the log as a `Log` alone: put together (`leading.py`), or an agent's (`whole.py`).

Producers are idempotent, have a few batches in flight, and send again what was not acknowledged, in this life or an earlier one.
Readers say what they saw and how far they were let.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from tests.support.log_crash.history import History
from tests.support.log_crash.kill_points import Steps
from tests.support.log_crash.workload import Sequences, name_in, producers_of

from holdfast.log.batches import Record, RecordBatchLimits, decode, split_batches
from holdfast.log.errors import NotLeaderError, ProducerRefusedError
from holdfast.log.reader import FetchedBatches
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import ClosedError, ExpiredError, FencedError, OutcomeUnknownError, UnavailableError
from holdfast.vocabulary.random import Random

IN_FLIGHT_MAX: Final = 5
AGAIN: Final = (UnavailableError, OutcomeUnknownError)
OVER: Final = (NotLeaderError, FencedError, ExpiredError, ClosedError)


class Log(Protocol):
    """Some partitions. `UnavailableError`: try again; those in `OVER`: never again."""

    @property
    def numbers(self) -> Sequence[int]:
        """Which partitions there are."""
        ...

    async def append(self, number: int, payload: bytes) -> tuple[int, int]:
        """The offsets [base, end) of the batch."""
        ...

    async def fetch(self, number: int, offset: int, *, wait_ms: float) -> FetchedBatches:
        """Batches from the offset on."""
        ...


@dataclass(slots=True, kw_only=True)
class Clients:
    """Everybody who uses the log in one life. `quota`: batches each producer sends; 0: no end."""

    agent: str
    quota: int
    log: Log
    say: Callable[[str], None]
    steps: Steps
    history: History
    clock: Clock
    random: Random
    _next: dict[int, int] = field(default_factory=dict)  # producer → the batch it sends next

    async def produce(self) -> None:
        """Every producer sends its quota."""
        await asyncio.gather(
            *(self._produce(number, producer) for number in self.log.numbers for producer in producers_of(number))
        )

    async def _produce(self, number: int, producer: int) -> None:
        sequences = Sequences(producer)
        at = self._next.setdefault(producer, self.history.next_batch(number, producer))
        end = at + self.quota if self.quota else 1 << 60
        while at < end:
            batches = range(at, min(end, at + IN_FLIGHT_MAX))
            answers = await asyncio.gather(
                *(self._send(number, producer, each, sequences) for each in batches), return_exceptions=True
            )
            for batch, answer in zip(batches, answers, strict=True):
                if isinstance(answer, AGAIN):
                    self._say("again", number, producer, batch)
                    await self.clock.sleep_ms(20)
                    break  # and everything after it, in order
                if isinstance(answer, OVER):
                    self._say("late", number, producer, batch, type(answer).__name__)
                    return
                if isinstance(answer, ProducerRefusedError):
                    self._say("refused", number, producer, batch, answer.refusal.replace(" ", "-"))
                    return
                if answer is not None:
                    raise answer
                at = self._next[producer] = batch + 1
            await self.clock.sleep_ms(self.random.jitter(4, share=0.9))

    async def _send(self, number: int, producer: int, batch: int, sequences: Sequences) -> None:
        base, end = await self.log.append(number, sequences.payload(batch))
        self.steps("before acknowledging")
        self._say("acked", number, producer, batch, base, end)
        self.steps("acknowledged")

    def readers(self) -> list[Coroutine[Any, Any, None]]:
        """A reader for each partition, from the first offset on."""
        return [self._follow(number) for number in self.log.numbers]

    async def _follow(self, number: int) -> None:
        offset, said = 0, -1
        while True:
            try:
                fetched = await self.log.fetch(number, offset, wait_ms=60_000)
            except AGAIN:
                await self.clock.sleep_ms(20)
                continue
            except OVER:
                return
            if fetched.high_watermark != said:
                said = fetched.high_watermark
                self._say("watermark", number, said)
            offset = self._read(number, offset, fetched, "seen")

    async def read_everything(self) -> None:
        """Say everything that can be read, and where it ends."""
        self.say(f"reading {self.agent}")
        for number in self.log.numbers:
            offset = 0
            while True:
                fetched = await self.log.fetch(number, offset, wait_ms=0)
                if not fetched.batches:
                    break
                offset = self._read(number, offset, fetched, "found")
            self._say("ended", number, fetched.high_watermark)

    def _read(self, number: int, offset: int, fetched: FetchedBatches, kind: str) -> int:
        """Say each record from the offset on; the answer is where to go on."""
        for each in fetched.batches:
            for header, data in split_batches(each, limits=RecordBatchLimits(), stored=True):
                for record in decode(data):
                    if record.offset >= offset:
                        self._say_record(number, record, kind)
                offset = max(offset, header.last_offset + 1)
        return offset

    def _say_record(self, number: int, record: Record, kind: str) -> None:
        name = name_in(record.value)
        self._say(kind if name is not None else "wrong", number, record.offset, name or "")

    def _say(self, kind: str, number: int, *words: object) -> None:
        self.say(" ".join(map(str, (kind, self.agent, number, *words))))
