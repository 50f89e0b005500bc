"""Lease handlers by kind: what an agent needs from each kind of lease it serves, and routing a lease to its handler.

A new kind is a new entry in the agent's mapping. While the agent retires, `close` is a no-op: `retire` releases the leases.
"""

import asyncio
from collections.abc import Collection, Mapping
from typing import Protocol

from holdfast.kernel.keys import LeaseKind, parse_placed_resource
from holdfast.kernel.lease import Lease
from holdfast.kernel.plan_executor import LeaseHandler
from holdfast.kernel.session import HeldSession
from holdfast.vocabulary.errors import InvalidError


class SessionLeaseHandler(LeaseHandler, Protocol):
    """Serves the leases of one kind during one session."""

    @property
    def leases(self) -> Collection[Lease]:
        """The leases it was given and has not closed."""
        ...

    async def run(self) -> None:
        """Do the background work, until cancelled."""
        ...

    async def retire(self, within_ms: int) -> None:
        """Graceful shutdown, after `run` was cancelled: flush everything and release every lease."""
        ...


class LeaseHandlerFactory(Protocol):
    """Serves the leases of one kind, session after session."""

    async def prepare(self) -> None:
        """Called before a session is opened."""
        ...

    async def start(self, session: HeldSession) -> SessionLeaseHandler:
        """A handler for a new session."""
        ...

    def stop(self) -> None:
        """The session has ended: serve nothing more under it."""
        ...

    def topics_changed(self) -> None:
        """Some topic was created, altered or deleted."""
        ...


class LeaseRouter:
    """Routes each lease to the handler of its kind. Implements `kernel.plan_executor.LeaseHandler`."""

    def __init__(self, handlers: Mapping[LeaseKind, SessionLeaseHandler]) -> None:
        self._handlers = handlers
        self.retiring = False

    async def open(self, lease: Lease) -> None:
        await self._of(lease).open(lease)

    async def drain(self, lease: Lease) -> None:
        await self._of(lease).drain(lease)

    async def resume(self, lease: Lease) -> None:
        await self._of(lease).resume(lease)

    async def close(self, lease: Lease) -> None:
        if not self.retiring:
            await self._of(lease).close(lease)

    async def retire(self, within_ms: int) -> None:
        """Graceful shutdown of every handler."""
        await asyncio.gather(*(handler.retire(within_ms) for handler in self._handlers.values()))

    async def close_all(self) -> None:
        """However the session ended: close what is still open."""
        for handler in self._handlers.values():
            for lease in handler.leases:
                await handler.close(lease)

    def _of(self, lease: Lease) -> SessionLeaseHandler:
        kind, _, _ = parse_placed_resource(lease.resource)
        if kind not in self._handlers:
            raise InvalidError("lease kind", kind, f"one of {', '.join(self._handlers)}")
        return self._handlers[kind]
