"""Delivery: what a handler gets, where messages come from, and what a handler is.

A handler is `async def handle(delivery: Delivery)`, run in a task per partition, or `def handle(delivery: ThreadDelivery)`,
run in a thread per partition. Returning means done: the checkpoint moves. Raising means: try again (`EngineSettings`).
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from holdfast.registry.model import Message


class MessageSource(Protocol):
    """Where an engine reads. One cursor, the offset, covers old and new messages alike, so that none is read twice."""

    async def next(self, partition: int, offset: int) -> Message:
        """The first message at or after `offset`; waits until there is one. May be cancelled and asked again."""
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
    """One message in the hands of an async handler, under `epoch`, for the `attempt`-th time (from 1) in a row."""

    message: Message
    epoch: int
    attempt: int
    claim: ActiveClaim

    @property
    def stopped(self) -> bool:
        """The partition was taken away: what this handler does now, another consumer may do as well."""
        return self.claim.stopped

    async def heartbeat(self) -> bool:
        """Say "slow, but alive" within each TTL of work on one message. False: the partition is lost, stop."""
        return await self.claim.heartbeat()


@dataclass(frozen=True, slots=True)
class ThreadDelivery:
    """One message in the hands of a handler that runs in a thread."""

    message: Message
    epoch: int
    attempt: int
    claim: ActiveClaim
    loop: asyncio.AbstractEventLoop

    @property
    def stopped(self) -> bool:
        """The partition was taken away: what this handler does now, another consumer may do as well."""
        return self.claim.stopped

    def heartbeat(self) -> bool:
        """Say "slow, but alive" within each TTL of work on one message. False: the partition is lost, stop."""
        if self.claim.stopped:
            return False
        return asyncio.run_coroutine_threadsafe(self.claim.heartbeat(), self.loop).result()


AsyncHandler = Callable[[Delivery], Awaitable[None]]
ThreadHandler = Callable[[ThreadDelivery], None]
Handler = AsyncHandler | ThreadHandler
