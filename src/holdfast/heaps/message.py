"""A message that this client has leased."""

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING

from holdfast.heap.errors import LeaseLostError
from holdfast.heap.model import PoppedMessage
from holdfast.heap.wire import LostLease, NackRequest, ReleaseRequest

if TYPE_CHECKING:
    from holdfast.heaps.leases import Leases


class Message:
    """A message, leased to this client until it is settled, and renewed until then.

    As a context manager it is acknowledged at the end of the body, and negatively if the body raises; unless it was settled there.
    `lost` is set when the lease was lost: somebody else may have the message now, and settling it raises `LeaseLostError`.
    `rank_bound`: it was among so many of the best that were ready, of a heap of several partitions.
    """

    __slots__ = (
        *("id", "topic", "partition", "payload", "priority", "headers", "attempts", "max_retries", "enqueued_ms"),
        *("partition_key", "fairness_key", "rank_bound", "lease_token", "lease_deadline_ms", "visibility_ms"),
        "on_lost",
        *("_lost", "_why", "_leases", "_settled", "__weakref__"),
    )

    def __init__(self, popped: PoppedMessage, visibility_ms: int, leases: "Leases") -> None:
        self.id, self.topic, self.partition, self.payload, self.priority, self.enqueued_ms = popped[:6]
        self.lease_token, self.lease_deadline_ms, self.attempts, self.max_retries = popped[6:10]
        self.partition_key, self.headers, self.rank_bound, self.fairness_key = popped[11:15]
        self.visibility_ms = visibility_ms
        self._lost: asyncio.Event | None = None  # made when somebody asks for it
        self.on_lost: Callable[[Message], None] | None = None
        self._why: LostLease | None = None
        self._leases = leases
        self._settled = False

    def __repr__(self) -> str:
        return f"<Message {self.id} of {self.topic}, priority {self.priority}, {len(self.payload)} bytes>"

    @property
    def lost(self) -> asyncio.Event:
        """Set when the lease was lost."""
        if self._lost is None:
            self._lost = asyncio.Event()
            if self._why is not None:
                self._lost.set()
        return self._lost

    @property
    def is_lost(self) -> bool:
        """Whether the lease was lost."""
        return self._why is not None

    @property
    def settled(self) -> bool:
        """Whether it was acknowledged, given back or refused."""
        return self._settled

    async def ack(self) -> None:
        """The work is done: the message is gone. Returns when that is durable. `LeaseLostError`."""
        self.begin_settling()
        await self._settle(self._leases.ack(self))

    async def nack(self, *, backoff: float | None = None, reason: str = "") -> None:
        """The work failed: it is tried again after `backoff` seconds, or the heap's own pause, or becomes a dead letter."""
        self.begin_settling()
        backoff_ms = None if backoff is None else round(backoff * 1000)
        request = NackRequest(
            topic=self.topic,
            partition=self.partition,
            tokens=[self.lease_token],
            backoff_ms=backoff_ms,
            reason=reason,
        )
        await self._settle(self._leases.settle(request))

    async def release(self) -> None:
        """It was not worked on: it waits again at once, and no attempt is counted."""
        self.begin_settling()
        request = ReleaseRequest(topic=self.topic, partition=self.partition, tokens=[self.lease_token])
        await self._settle(self._leases.settle(request))

    async def move_to_dead_letters(self, reason: str = "") -> None:
        """The work cannot be done: it becomes a dead letter now, or is gone where there are none."""
        self.begin_settling()
        await self._settle(self._leases.move(self, reason))

    def resume(self) -> None:
        """Hold the lease further, after an ack, nack or release that failed for another reason than a lost lease."""
        if self._why is None:
            self._settled = False
            self._leases.keep((self,))

    @property
    def lost_reason(self) -> str:
        """Why the lease was lost; "" while it was not."""
        return "" if self._why is None else self._why.reason

    def mark_lost(self, why: LostLease) -> None:
        """The lease is somebody else's, or nobody's."""
        self._why = why
        if self._lost is not None:
            self._lost.set()
        if self.on_lost is not None:
            self.on_lost(self)

    def begin_settling(self) -> None:
        """It is settled once. `LeaseLostError`: it is lost, or was settled before."""
        if self._why is not None:
            self._settled = True
            raise self._why.error(self.topic)
        if self._settled:
            raise LeaseLostError(self.topic, self.id, "it was settled before")
        self._settled = True

    async def _settle(self, answer: Awaitable[LostLease | int | None]) -> None:
        try:
            found = await answer
        finally:
            self._leases.forget((self,))
        if isinstance(found, LostLease):
            self.mark_lost(found)
            raise found.error(self.topic)

    async def __aenter__(self) -> "Message":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._settled:
            return
        if error is None:
            await self.ack()
        elif isinstance(error, asyncio.CancelledError):
            await asyncio.shield(self._given_back())
        elif self._why is None:
            await self.nack(reason=f"{type(error).__name__}: {error}"[:500])

    async def _given_back(self) -> None:
        if self._why is None:
            await self.release()
