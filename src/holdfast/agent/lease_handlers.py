"""Lease handlers by kind: what an agent needs from each kind of lease it serves, and routing a lease to its handler.

A new kind is a new entry in the agent's mapping. While the agent retires, `close` is a no-op: `retire` releases the leases.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from holdfast.kernel.keys import LeaseKind, parse_placed_resource
from holdfast.kernel.lease import Lease
from holdfast.kernel.plan_executor import LeaseHandler
from holdfast.kernel.session import HeldSession
from holdfast.vocabulary.tasks import gather_or_cancel

_log = logging.getLogger(__name__)


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

    def topics_changed(self, names: Collection[str]) -> None:
        """These topics were created, altered or deleted."""
        ...


class LeaseRouter:
    """Routes each lease to the handler of its kind. Implements `kernel.plan_executor.LeaseHandler`."""

    def __init__(self, handlers: Mapping[LeaseKind, SessionLeaseHandler]) -> None:
        self._handlers = handlers
        self._unknown: set[LeaseKind] = set()
        self.retiring = False

    async def open(self, lease: Lease) -> None:
        if (handler := self._of(lease)) is not None:
            await handler.open(lease)

    async def open_many(self, leases: Sequence[Lease]) -> Collection[str]:
        by_handler: dict[SessionLeaseHandler, list[Lease]] = {}
        for lease in leases:
            if (handler := self._of(lease)) is not None:
                by_handler.setdefault(handler, []).append(lease)
        lost = await gather_or_cancel(*(handler.open_many(opened) for handler, opened in by_handler.items()))
        return [resource for resources in lost for resource in resources]

    async def drain(self, lease: Lease) -> None:
        if (handler := self._of(lease)) is not None:
            await handler.drain(lease)

    async def resume(self, lease: Lease) -> None:
        if (handler := self._of(lease)) is not None:
            await handler.resume(lease)

    async def close(self, lease: Lease) -> None:
        if not self.retiring and (handler := self._of(lease)) is not None:
            await handler.close(lease)

    async def retire(self, within_ms: int) -> None:
        """Graceful shutdown of every handler."""
        await gather_or_cancel(*(handler.retire(within_ms) for handler in self._handlers.values()))

    async def close_all(self) -> None:
        """However the session ended: close what is still open."""
        for handler in self._handlers.values():
            for lease in handler.leases:
                await handler.close(lease)

    def _of(self, lease: Lease) -> SessionLeaseHandler | None:
        """The handler; None for a kind of a newer release, which other agents may serve: it must not end this one."""
        kind, _, _ = parse_placed_resource(lease.resource)
        handler = self._handlers.get(kind)
        if handler is None and kind not in self._unknown:
            self._unknown.add(kind)
            _log.warning("leases of kind %s are not served: this release does not know them", kind)
        return handler
