"""Delivery: the messages a handler gets, and the types of sources and handlers.

A handler is `async def handle(delivery: Delivery)`, run in a task per partition, or `def handle(delivery: ThreadDelivery)`,
run in a thread per partition. Returning moves the checkpoint. Raising means another attempt (`EngineSettings`).
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from holdfast.registry.model import Message


class MessageSource(Protocol):
    """Where an engine reads. One cursor, the offset, covers old and new messages alike, so that none is read twice."""

    async def next(self, partition: int, offset: int) -> Message:
        """The first message at or after `offset`; waits until there is one. May be cancelled and called again."""
        ...


class ActiveClaim(Protocol):
    """The running claim a delivery belongs to."""

    @property
    def stopped(self) -> bool:
        """Whether the partition was revoked or lost."""
        ...

    async def heartbeat(self) -> bool:
        """Renew the claim."""
        ...


@dataclass(frozen=True, slots=True)
class Delivery:
    """One message for an async handler, under `epoch`; `attempt` counts from 1."""

    message: Message
    epoch: int
    attempt: int
    claim: ActiveClaim

    @property
    def stopped(self) -> bool:
        """The partition was revoked: another consumer may be processing the same message."""
        return self.claim.stopped

    async def heartbeat(self) -> bool:
        """Renew the claim; call it within each TTL of work on one message. False: the partition is lost, stop."""
        return await self.claim.heartbeat()


@dataclass(frozen=True, slots=True)
class ThreadDelivery:
    """One message for a handler that runs in a thread."""

    message: Message
    epoch: int
    attempt: int
    claim: ActiveClaim
    loop: asyncio.AbstractEventLoop

    @property
    def stopped(self) -> bool:
        """The partition was revoked: another consumer may be processing the same message."""
        return self.claim.stopped

    def heartbeat(self) -> bool:
        """Renew the claim; call it within each TTL of work on one message. False: the partition is lost, stop."""
        if self.claim.stopped:
            return False
        return asyncio.run_coroutine_threadsafe(self.claim.heartbeat(), self.loop).result()


AsyncHandler = Callable[[Delivery], Awaitable[None]]
ThreadHandler = Callable[[ThreadDelivery], None]
Handler = AsyncHandler | ThreadHandler
