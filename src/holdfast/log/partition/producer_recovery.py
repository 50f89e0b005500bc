"""Producers after a takeover: from the newest footer, then what the tail adds. Read when the first of them writes, not before.

So a partition is opened without object storage: what is in the tail is read, and appends of clients that are not idempotent go on.
Only what needs the footer waits for it: idempotent appends, in the order in which they came, and the next publication. The one
rule: until it is read, no batch of an idempotent producer is appended, and nothing is published.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager

from holdfast.contracts.objects import Missing, Objects
from holdfast.log.batches import BatchHeader
from holdfast.log.partition.append_place import AppendOrder
from holdfast.log.partition.producer_state import ProducerStates
from holdfast.log.partition.tail import Tail
from holdfast.log.producer_snapshots import read_section, read_snapshot
from holdfast.log.segment_list import SegmentList
from holdfast.log.segments import ProducerSection, ProducerSnapshot
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import CorruptError, UnavailableError


class ProducerRecovery:
    """What is not known yet of the producers of one partition. Needed until `done` and nobody waits."""

    __slots__ = ("_clock", "_gate", "_objects", "_producers", "_segments", "_tail", "_waiting", "done")

    def __init__(
        self, producers: ProducerStates, segments: SegmentList, tail: Tail, *, objects: Objects, clock: Clock
    ) -> None:
        self._producers, self._segments, self._tail = producers, segments, tail
        self._objects, self._clock = objects, clock
        self._gate: AppendOrder | None = None
        self._waiting = 0
        self.done = False

    def finish_now(self) -> bool:
        """Whether it is done and nobody waits; without segments it is done here."""
        if not self.done and not self._segments.recent and not self._waiting:
            self._apply()
        return self.done and not self._waiting

    async def finish(self) -> None:
        """Read what is missing. `UnavailableError`: object storage is away."""
        if self.finish_now() or self.done:
            return
        async with self._gate_lock():
            await self._read()

    @asynccontextmanager
    async def before_append(self, headers: Iterable[BatchHeader], within_ms: int) -> AsyncIterator[None]:
        """The body appends batches with these headers, after all others that wait for this."""
        if self.finish_now() or not any(header.producer_id >= 0 for header in headers):
            yield
            return
        self._waiting += 1
        gate, entered = self._gate_lock(), False
        try:
            try:
                async with asyncio.timeout(within_ms / 1000):
                    await gate.acquire()
                    entered = True
                    await self._read()
            except TimeoutError:
                raise UnavailableError(
                    "object storage", f"what the producers sent before was not read within {within_ms} ms"
                ) from None
            yield
        finally:
            self._waiting -= 1
            if entered:
                gate.release()

    async def _read(self) -> None:
        while not self.done:
            recent = list(self._segments.recent)
            if not recent:
                self._apply()
                return
            section = await read_section(recent[-1], self._objects)
            snapshot: tuple[ProducerSnapshot, ...] | Missing = ()
            if not isinstance(section, Missing) and not section.is_snapshot:
                snapshot = await read_snapshot(section, recent, self._objects)
            if not isinstance(section, Missing) and not isinstance(snapshot, Missing):
                self._apply(section, snapshot, end_offset=recent[-1].end_offset)
            elif recent == self._segments.recent:
                raise CorruptError(f"object {recent[-1].object}", "it, or its snapshot of producers, is missing")
            # Otherwise retention or merging has put others in their place meanwhile.

    def _apply(
        self, section: ProducerSection | None = None, snapshot: Sequence[ProducerSnapshot] = (), end_offset: int = 0
    ) -> None:
        if section is not None:
            delta = not section.is_snapshot
            self._producers.load(
                section.onto(snapshot),
                since=section.since if delta else end_offset,
                changed=(*section.gone, *(each.producer_id for each in section.producers)) if delta else (),
            )
        now_ms = self._clock.now_ms()
        for batch in self._tail.between(self._tail.start, self._tail.end):
            # Seen now, not at the timestamp of its records: a producer may write any time into them.
            self._producers.replay(batch.header, batch.base_offset, now_ms)
        self._producers.settle(self._tail.end)
        self.done = True

    def _gate_lock(self) -> AppendOrder:
        if self._gate is None:
            self._gate = AppendOrder()
        return self._gate
