"""What waits to be sent to one peer, and what of it may go now: credit per stream and per partition, bounded memory. Pure.

The one rule: a partition that is out of credit holds up itself alone. Partitions take turns; a partition's messages keep their
order. Control messages have a credit of their own and overtake everything: the protocol allows any order.

A message that does not fit in memory is refused, and a partition that waits for credit too long is lagging: then its messages are
dropped and further ones refused until all that was sent is answered. Its sender finds out by positions where to go on.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.agent.peers.credit import CreditWindow
from holdfast.agent.peers.frames import (
    COUNT_MAX,
    KEY_BYTES_MAX,
    Buffer,
    MessageClass,
    message_cost,
)
from holdfast.vocabulary.errors import InvalidError

OnAnswer = Callable[[memoryview | None], None]
"""Called once: with the answer, or with None if there will be none and nobody knows what became of the message."""

STREAM: Final = b""
"""Stands for all partitions of a stream where a partition's key is expected."""


class Outgoing:
    """A message on its way: queued, then unanswered."""

    __slots__ = ("key", "kind", "on_answer", "parts", "size")

    def __init__(self, key: bytes, kind: MessageClass, parts: Sequence[Buffer], on_answer: OnAnswer) -> None:
        if not 0 < len(key) <= KEY_BYTES_MAX:
            raise InvalidError("partition key", key[:80], f"1 to {KEY_BYTES_MAX} bytes")
        self.key, self.kind, self.parts, self.on_answer = key, kind, parts, on_answer
        self.size = message_cost(len(key), sum(map(len, parts)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Credit:
    """What the peer has granted."""

    stream_bytes: int
    partition_bytes: int
    control_bytes: int
    frame_bytes_max: int


class _Waiting(CreditWindow):
    """A credit and what waits for it. `since_ms`: since when nothing could be sent for lack of it."""

    __slots__ = ("key", "lagging", "queued", "queued_bytes", "ready", "since_ms")

    def __init__(self, key: bytes, limit_bytes: int) -> None:
        super().__init__(limit_bytes)
        self.key, self.ready = key, False  # ready: it has its turn
        self.queued: deque[Outgoing] = deque()
        self.queued_bytes = 0
        self.since_ms: int | None = None
        self.lagging = False

    def has_room(self, size: int) -> bool:
        """Whether `size` more bytes may be held: those of the credit, and as many again that wait for it."""
        return not self.queued_bytes or self.used_bytes + self.queued_bytes + size <= 2 * self.limit_bytes


class SendQueue:
    """The queue of one connection; with a new connection begins a new one."""

    def __init__(self, credit: Credit, *, lag_ms: int) -> None:
        self._credit, self._lag_ms = credit, lag_ms
        self._stream = _Waiting(STREAM, credit.stream_bytes)
        self._control = _Waiting(STREAM, credit.control_bytes)
        self._partitions: dict[bytes, _Waiting] = {}
        self._ready: deque[_Waiting] = (
            deque()
        )  # partitions in the order of their turns; one without messages is skipped
        self._out_of_credit: set[bytes] = set()
        self.credit_waits = 0

    @property
    def unanswered_bytes(self) -> int:
        """Bytes that were sent and not answered."""
        return self._stream.used_bytes + self._control.used_bytes

    @property
    def queued_bytes(self) -> int:
        """Bytes that wait in memory."""
        return self._stream.queued_bytes + self._control.queued_bytes

    @property
    def sendable(self) -> bool:
        """Whether `take` may have something."""
        return bool(self._control.queued) or (self._stream.since_ms is None and self._next_ready() is not None)

    def is_lagging(self, key: bytes = STREAM) -> bool:
        """Whether messages of the partition, or of the whole stream, are refused until those that were sent are answered."""
        partition = self._partitions.get(key)
        return self._stream.lagging or (partition is not None and partition.lagging)

    def offer(self, message: Outgoing) -> bool:
        """Queue a message; False: it is refused. `InvalidError`: it could never be sent."""
        if message.size > self._credit.frame_bytes_max:
            raise InvalidError("message size", message.size, f"at most {self._credit.frame_bytes_max}")
        if message.kind is MessageClass.CONTROL:
            return self._enqueue(self._control, message)
        partition = self._partitions.get(message.key) or _Waiting(message.key, self._credit.partition_bytes)
        if partition.lagging or self._stream.lagging or not self._stream.has_room(message.size):
            return False
        if not self._enqueue(partition, message):
            return False
        self._partitions[message.key] = partition
        self._stream.queued_bytes += message.size
        if message.key not in self._out_of_credit:
            self._give_turn(partition)
        return True

    def take(self, now_ms: int) -> list[Outgoing]:
        """The messages of the next frame; none: nothing waits, or there is no credit for what does."""
        found: list[Outgoing] = []
        room = self._credit.frame_bytes_max
        control = self._control
        while control.queued and len(found) < COUNT_MAX and room >= (size := control.queued[0].size):
            if not control.fits(size):
                break
            found.append(self._send(control))
            room -= size
        while (partition := self._next_ready()) is not None and len(found) < COUNT_MAX:
            size = partition.queued[0].size
            if not self._stream.fits(size):
                self._wait(self._stream, now_ms)
                break
            if not partition.fits(size):
                self._end_turn()
                self._out_of_credit.add(partition.key)
                self._wait(partition, now_ms)
                continue
            if size > room:
                break
            found.append(self._send(partition))
            self._stream.use(size)
            self._stream.queued_bytes -= size
            room -= size
            self._end_turn()
            if partition.queued:
                self._give_turn(partition)  # behind the others
        return found

    def answered(self, message: Outgoing) -> list[bytes]:
        """Give its credit back. Returns what is lagging no more: keys of partitions, `STREAM`."""
        if message.kind is MessageClass.CONTROL:
            self._control.release(message.size)
            return []
        partition = self._partitions[message.key]
        recovered = []
        for window, key in ((partition, message.key), (self._stream, STREAM)):
            window.used_bytes -= message.size
            if window.queued_bytes == 0 or self._fits_next(window):
                window.since_ms = None
            if window.lagging and not window.used_bytes:
                window.lagging = False
                recovered.append(key)
        if partition.since_ms is None:
            self._out_of_credit.discard(message.key)
            if partition.queued:
                self._give_turn(partition)
            elif not partition.used_bytes:
                del self._partitions[message.key]
        return recovered

    def drop_lagging(self, now_ms: int) -> tuple[list[bytes], list[Outgoing]]:
        """Partitions (or `STREAM`) that have been out of credit for `lag_ms`, and their messages, which are dropped."""
        late, dropped = [], []
        if self._is_late(self._stream, now_ms):
            self._stream.lagging = True
            self._stream.since_ms = None
            late.append(STREAM)
            dropped += [each for key in list(self._partitions) for each in self._drop(key)]
        for key in sorted(self._out_of_credit):
            partition = self._partitions[key]
            if self._is_late(partition, now_ms):
                partition.lagging = True
                late.append(key)
                dropped += self._drop(key)
        return late, dropped

    def _enqueue(self, waiting: _Waiting, message: Outgoing) -> bool:
        if not waiting.has_room(message.size):
            return False
        waiting.queued.append(message)
        waiting.queued_bytes += message.size
        return True

    def _send(self, waiting: _Waiting) -> Outgoing:
        message = waiting.queued.popleft()
        waiting.queued_bytes -= message.size
        waiting.used_bytes += message.size
        return message

    def _give_turn(self, partition: _Waiting) -> None:
        if not partition.ready:
            partition.ready = True
            self._ready.append(partition)

    def _end_turn(self) -> None:
        self._ready.popleft().ready = False

    def _next_ready(self) -> _Waiting | None:
        """Whose turn it is."""
        while self._ready and not self._ready[0].queued:
            self._end_turn()  # what it had was dropped
        return self._ready[0] if self._ready else None

    def _wait(self, waiting: _Waiting, now_ms: int) -> None:
        if waiting.since_ms is None:
            waiting.since_ms = now_ms
            self.credit_waits += 1

    def _fits_next(self, window: _Waiting) -> bool:
        if window is self._stream:
            following = self._next_ready()
            return following is None or window.fits(following.queued[0].size)
        return bool(window.queued) and window.fits(window.queued[0].size)

    def _is_late(self, waiting: _Waiting, now_ms: int) -> bool:
        return waiting.since_ms is not None and now_ms - waiting.since_ms >= self._lag_ms

    def _drop(self, key: bytes) -> list[Outgoing]:
        partition = self._partitions[key]
        dropped = list(partition.queued)
        partition.queued.clear()
        self._stream.queued_bytes -= partition.queued_bytes
        partition.queued_bytes = 0
        partition.since_ms = None
        self._out_of_credit.discard(key)
        if not partition.used_bytes and not partition.lagging:
            del self._partitions[key]
        return dropped

    def clear(self) -> list[Outgoing]:
        """Everything that was never sent, dropped: the connection has ended."""
        dropped = list(self._control.queued)
        self._control.queued.clear()
        self._control.queued_bytes = 0
        return dropped + [each for key in list(self._partitions) for each in self._drop(key)]
