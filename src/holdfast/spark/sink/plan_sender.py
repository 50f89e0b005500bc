"""Sends a plan's batches, or the part of a plan that one task has, in any process and any number of times.

The one rule: what is sent follows from the plan alone. A partition's batches go out one after the other, under the numbers that the
plan gives them; so a repeated, a parallel and a late sender append nothing that is there already, and nothing out of order.

Brokers forget an idle producer after a day, and accept anything from an unknown one. So whoever did not write the plan first reads
what the partitions already hold of it; and a sender stops for good after a while without progress, counted from before it wrote the
plan, read the partitions, or sent the last acknowledged batch.
"""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import suppress
from itertools import accumulate, pairwise
from typing import Final

from holdfast.client.producer import IdempotentProducer, SequencedBatch, TargetPartition
from holdfast.contracts.objects import Buffer, Missing, Objects
from holdfast.spark.sink.pieces import PieceContent, StagedPiece, StagedPieceList, unpack
from holdfast.spark.sink.query_state import PublishPlan, QueryState, decode_piece_list, record_counts
from holdfast.spark.sink.sequences import SequenceAssigner
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import CorruptError, HoldfastError
from holdfast.vocabulary.failpoints import reached_async

PUBLISH_MS_MAX: Final = 12 * 3_600_000

Parts = list[tuple[PieceContent, bytes]]


class StagedObjectMissingError(HoldfastError):
    """A staged object is missing: another process has executed the plan, or the object was lost."""

    def __str__(self) -> str:
        return f"object {self.args[0]} does not exist"


class StallDeadline:
    """When to stop: a while after the last progress, and at the latest after half the time brokers remember a producer."""

    def __init__(self, now_ms: int, stall_ms: int) -> None:
        self._stall_ms, self._last_ms = stall_ms, now_ms + PUBLISH_MS_MAX
        self.at_ms = min(now_ms + stall_ms, self._last_ms)

    def extend(self, sent_at_ms: int) -> None:
        """What was sent then was acknowledged."""
        self.at_ms = min(sent_at_ms + self._stall_ms, self._last_ms)


async def read_piece_list(objects: Objects, plan: PublishPlan) -> StagedPieceList:
    """The pieces of a plan. `StagedObjectMissingError`."""
    return decode_piece_list(plan.listed) if plan.listed else unpack(bytes(await _read(objects, plan.list_key)))


class PlanSender:
    """Sends plans through one producer."""

    def __init__(self, *, objects: Objects, producer: IdempotentProducer, clock: Clock) -> None:
        self._objects, self._producer, self._clock = objects, producer, clock

    async def send(
        self,
        state: QueryState,
        pieces: StagedPieceList,
        *,
        deadline: StallDeadline,
        targets: Collection[TargetPartition] | None = None,
        own: bool = False,
    ) -> None:
        """Send what these partitions (None: all) are to get, until it is durable. `own`: this process wrote the plan just now.

        `OutOfSequenceError`, `StagedObjectMissingError`: another process got further, or something was lost.
        """
        assert state.plan is not None
        chosen = set(planned_bytes(pieces) if targets is None else targets)
        appended = {} if own else await self._appended_records(state, state.plan, pieces, chosen)
        sequences = SequenceAssigner(
            producer_id=state.producer_id, producer_epoch=state.producer_epoch, sequences=state.sequences
        )
        async for parts in self._parts(pieces, chosen):
            queues: dict[TargetPartition, list[SequencedBatch]] = {}
            for content, data in parts:
                target = TargetPartition(pieces.targets[content.target], content.partition)
                for batch in sequences.assign(target, content, data):
                    if batch.ordinal + batch.count > appended.get(target, 0):
                        queues.setdefault(target, []).append(batch)
            await self._send_queues(queues, deadline)

    async def _send_queues(self, queues: dict[TargetPartition, list[SequencedBatch]], deadline: StallDeadline) -> None:
        """The batches of a partition one after the other, partitions in parallel."""
        for round_number in range(max(map(len, queues.values()), default=0)):
            batches = [queue[round_number] for queue in queues.values() if round_number < len(queue)]
            sent_at_ms = self._clock.boot_ms()
            await self._producer.send(batches, deadline_ms=deadline.at_ms)
            deadline.extend(sent_at_ms)
            await reached_async("spark-sink.round-sent")

    async def _appended_records(
        self, state: QueryState, plan: PublishPlan, pieces: StagedPieceList, chosen: set[TargetPartition]
    ) -> dict[TargetPartition, int]:
        """How many records of the plan each partition already has."""
        found = {}
        for topic, counts in record_counts(pieces).items():
            partitions = [number for number in sorted(counts) if TargetPartition(topic, number) in chosen]
            if not partitions:
                continue
            ends = await self._producer.end_offsets(topic, partitions)  # refuses a recreated topic
            for number in partitions:
                start = plan.starts[topic.id][number]
                if ends[number] == start:
                    continue  # nothing was appended since the plan was written
                target = TargetPartition(topic, number)
                found[target] = await self._producer.appended_records(
                    target,
                    start=start,
                    producer=(state.producer_id, state.producer_epoch),
                    sequence=state.sequences.get(topic.id, {}).get(number, 0),
                )
        return found

    async def _parts(self, pieces: StagedPieceList, chosen: set[TargetPartition]) -> AsyncIterator[Parts]:
        """Of each piece what is for the chosen partitions. The next piece is read while this one is sent."""
        wanted = [piece for piece in pieces.pieces if any(_is_for(pieces, each, chosen) for each in piece.contents)]
        reading: asyncio.Task[Parts] | None = None
        try:
            for piece, following in pairwise((*wanted, None)):
                assert piece is not None
                parts = await (reading or self._read_parts(pieces, piece, chosen))
                reading = None
                if following is not None:
                    reading = asyncio.ensure_future(self._read_parts(pieces, following, chosen))
                yield parts
        finally:
            if reading is not None:
                reading.cancel()
                with suppress(asyncio.CancelledError, HoldfastError):
                    await reading

    async def _read_parts(self, pieces: StagedPieceList, piece: StagedPiece, chosen: set[TargetPartition]) -> Parts:
        edges = [0, *accumulate(sum(content.sizes) for content in piece.contents)]
        wanted = [
            (content, start)
            for content, start in zip(piece.contents, edges, strict=False)
            if _is_for(pieces, content, chosen)
        ]
        if not piece.key:
            return [(content, _slice(piece, content, piece.body, start)) for content, start in wanted]
        runs = _adjacent(wanted)
        bodies = await asyncio.gather(
            *(_read(self._objects, piece.key, run[0][1], run[-1][1] + sum(run[-1][0].sizes)) for run in runs)
        )
        return [
            (content, _slice(piece, content, body, start - run[0][1]))
            for run, body in zip(runs, bodies, strict=True)
            for content, start in run
        ]


def planned_bytes(pieces: StagedPieceList) -> dict[TargetPartition, int]:
    """How much each partition is to get."""
    found: dict[TargetPartition, int] = {}
    for piece in pieces.pieces:
        for content in piece.contents:
            target = TargetPartition(pieces.targets[content.target], content.partition)
            found[target] = found.get(target, 0) + sum(content.sizes)
    return found


def _is_for(pieces: StagedPieceList, content: PieceContent, chosen: set[TargetPartition]) -> bool:
    return TargetPartition(pieces.targets[content.target], content.partition) in chosen


def _adjacent(wanted: list[tuple[PieceContent, int]]) -> list[list[tuple[PieceContent, int]]]:
    """Contents and where they start, those that follow each other together: one request each."""
    runs: list[list[tuple[PieceContent, int]]] = []
    end = -1
    for content, start in wanted:
        if start != end:
            runs.append([])
        runs[-1].append((content, start))
        end = start + sum(content.sizes)
    return runs


def _slice(piece: StagedPiece, content: PieceContent, body: Buffer, start: int) -> bytes:
    size = sum(content.sizes)
    found = bytes(body[start : start + size])
    if len(found) != size:
        raise CorruptError(
            f"staged piece {piece.key or 'in the plan'}", f"{size - len(found)} of its bytes are missing"
        )
    return found


async def _read(objects: Objects, key: str, start: int = 0, end: int | None = None) -> Buffer:
    body = await objects.get(key, start=start, end=end)
    if isinstance(body, Missing):
        raise StagedObjectMissingError(key)
    return body
