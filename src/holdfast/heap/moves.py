"""Messages on their way to another heap: dead letters, and dead letters that are replayed.

The decision is the MOVE record in the source's log; from then on the message is in the outbox and nowhere else. It is enqueued at
the destination under a producer of ours whose sequence is the offset of that record, in order, so that the destination knows a
repeated one for ever; then MOVED clears the outbox. A death in between repeats the enqueue, which is a duplicate.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from holdfast.heap.dedup import INTERNAL
from holdfast.heap.message_id import id_bytes
from holdfast.heap.model import NewMessage, StoredMessage
from holdfast.heap.partition import HeapPartition
from holdfast.heap.partition_state import OutgoingMessage
from holdfast.heap.records import NO_RETRIES_OF_ITS_OWN, Origin, ProducerSequence
from holdfast.vocabulary import failpoints
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import HoldfastError, InvalidError

_log: Final = logging.getLogger(__name__)

_TOGETHER: Final = 500
_BYTES_TOGETHER: Final = 4 << 20

Deliver = Callable[[str, int, Sequence[NewMessage]], Awaitable[object]]
"""Enqueue messages in a partition of another heap, all or none: topic, partition, messages."""


class Mover:
    """Empties the outbox of one partition."""

    def __init__(self, partition: HeapPartition, deliver: Deliver, *, clock: Clock, retry_ms: int) -> None:
        self._partition, self._deliver, self._clock, self._retry_ms = partition, deliver, clock, retry_ms

    async def run(self) -> None:
        """Until the partition's view has ended."""
        while self._partition.ended is None:
            if not self._partition.state.outbox:
                await self._partition.outbox_changed.wait()
            elif not await self.step():
                await self._clock.sleep_ms(self._retry_ms)

    async def step(self) -> bool:
        """Send some to each destination; False: it is to be tried again after a pause. One that fails holds up no other."""
        is_well = True
        for destination, moves in self._next().items():
            try:
                await self._send(*destination, moves)
            except HoldfastError as error:
                is_well = False
                if self._partition.ended is not None:
                    return False
                _log.warning("messages of %s are not moved yet: %s", self._partition.log.partition_id, error)
        return is_well

    def _next(self) -> dict[tuple[str, int], list[tuple[int, OutgoingMessage]]]:
        """The oldest moves of each destination, in order."""
        found: dict[tuple[str, int], list[tuple[int, OutgoingMessage]]] = {}
        for at, move in self._partition.state.outbox.items():
            moves = found.setdefault((move.topic, move.partition), [])
            if len(moves) < _TOGETHER:
                moves.append((at, move))
        return found

    async def _send(self, topic: str, number: int, moves: Sequence[tuple[int, OutgoingMessage]]) -> None:
        stored = await self._partition.stored([move.offset for _, move in moves], _BYTES_TOGETHER)
        chosen = list(zip(moves, stored, strict=False))
        failpoints.reached("heap.move-decided")
        try:
            await self._deliver(topic, number, [self._message(*move, message) for move, message in chosen])
        except InvalidError:  # together they may be more than an append takes
            if len(chosen) == 1:
                raise
            await self._send(topic, number, moves[: len(chosen) // 2])
            return
        failpoints.reached("heap.move-delivered")
        await self._partition.moved([at for (at, _), _ in chosen])

    def _message(self, at: int, move: OutgoingMessage, stored: StoredMessage) -> NewMessage:
        which, enqueue = self._partition.log.partition_id, stored.enqueue
        back = enqueue.origin is not None and enqueue.origin.topic == move.topic
        origin = Origin(
            which.topic,
            which.number,
            id_bytes(bytes.fromhex(which.topic_id), which.number, move.offset, stored.enqueued_ms),
            move.attempts,
            move.reason,
        )
        own = enqueue.max_retries
        return NewMessage(
            payload=enqueue.payload,
            priority=move.priority,
            max_retries=None if own == NO_RETRIES_OF_ITS_OWN else own,
            partition_key=enqueue.partition_key,
            producer=ProducerSequence(f"{INTERNAL}move/{which.topic_id}/{which.number}", 0, at),
            headers=enqueue.headers,
            origin=None if back else origin,
            fairness_key=enqueue.fairness_key,
        )
