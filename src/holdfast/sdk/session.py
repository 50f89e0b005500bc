"""Session: one keep-alive for all leases of a program, or of a part of it.

The one rule: one version of a lease belongs to at most one handle. An acquisition whose answer was lost, or that was cancelled,
is found again by the next `acquire` of the same session, and two tasks of one session exclude each other like two processes.
"""

import os
import platform
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Literal, overload

from holdfast.contracts.store import Store
from holdfast.kernel import lease as kernel
from holdfast.kernel.keys import holder_key
from holdfast.kernel.mirror import open_mirror
from holdfast.kernel.session import HeldSession, SessionSettings, hold_session
from holdfast.sdk.lease import Held, Lease
from holdfast.vocabulary.errors import ClosedError, HoldfastError, InvalidError
from holdfast.vocabulary.runtime import Runtime


class Session:
    """A session, kept alive in the background, and the leases acquired under it. Made by `Holdfast.session`."""

    def __init__(self, store: Store, held: HeldSession, *, name: str, runtime: Runtime) -> None:
        self.name = name
        self._store, self._held, self._runtime = store, held, runtime
        self._leases: dict[str, Lease] = {}
        self._versions: dict[str, int] = {}  # the latest version of each lease that has, or had, a handle here
        self._closed = False

    @property
    def id(self) -> str:
        """The store's name for the session: `Put(key, value, session=session.id)` writes a key that ends with it."""
        return self._held.id

    @property
    def alive(self) -> bool:
        """Whether the store still has this session for certain. False is final."""
        return not self._closed and self._held.alive()

    def report_progress(self) -> None:
        """Call it from the loop that does the work, if the session was opened with `stall_ms`."""
        self._held.report_progress()

    @overload
    async def acquire(self, resource: str, *, wait: Literal[False] = ...) -> Lease | Held: ...

    @overload
    async def acquire(self, resource: str, *, wait: Literal[True]) -> Lease: ...

    @overload
    async def acquire(self, resource: str, *, wait: bool) -> Lease | Held: ...

    async def acquire(self, resource: str, *, wait: bool = False) -> Lease | Held:
        """Take the lease on `resource`: a `Lease`, or `Held`, which names its holder. `wait`: return once it is ours.

        A lease that this session holds already is `Held`, too. `ExpiredError`: the session has ended. After an error or a
        cancellation the store may have granted it all the same: acquire it again, or end the session, which frees it.
        """
        self._check()
        if not resource:
            raise InvalidError("resource", resource, "a name")
        outcome = await self._acquire(resource)
        return outcome if isinstance(outcome, Lease) or not wait else await self._acquire_when_free(resource)

    @overload
    def hold(self, resource: str, *, wait: Literal[False] = ...) -> AbstractAsyncContextManager[Lease | Held]: ...

    @overload
    def hold(self, resource: str, *, wait: Literal[True]) -> AbstractAsyncContextManager[Lease]: ...

    def hold(
        self, resource: str, *, wait: bool = False
    ) -> AbstractAsyncContextManager[Lease | Held] | AbstractAsyncContextManager[Lease]:
        """`acquire` for the body of an `async with`; leaving it releases the lease."""
        return self._hold(resource, wait=wait)

    @asynccontextmanager
    async def _hold(self, resource: str, *, wait: bool) -> AsyncIterator[Lease | Held]:
        answer = await self.acquire(resource, wait=wait)
        try:
            yield answer
        finally:
            if self.alive:
                with suppress(HoldfastError):  # the end of the session releases what could not be released here
                    await answer.release()

    async def _acquire(self, resource: str) -> Lease | Held:
        found = await kernel.acquire(
            self._store,
            resource,
            holder=self.name,
            session=self.id,
            clock=self._runtime.clock,
            random=self._runtime.random,
        )
        self._check()
        # A holder of our own session that has no handle is an earlier acquisition whose answer never arrived.
        if found.session != self.id or found.version <= self._versions.get(resource, 0):
            return Held(resource=resource, holder=found.holder, epoch=found.epoch)
        grant = kernel.Lease(
            resource=resource, holder=found.holder, session=self.id, epoch=found.epoch, version=found.version
        )
        self._versions[resource] = found.version
        self._leases[resource] = lease = Lease(grant, self._store, self._runtime)
        return lease

    async def _acquire_when_free(self, resource: str) -> Lease:
        key, clock, random = holder_key(resource), self._runtime.clock, self._runtime.random
        async with open_mirror(self._store, key, kernel.read_holder, clock=clock, random=random) as mirror:
            while True:
                while key in mirror.items:
                    await mirror.notify.wait()
                seen = mirror.version
                answer = await self._acquire(resource)
                if isinstance(answer, Lease):
                    return answer
                while mirror.version == seen:  # somebody was faster: the mirror has yet to see it
                    await mirror.notify.wait()

    def _check(self) -> None:
        if self._closed:
            raise ClosedError(f"session {self.name}")
        self._held.check()

    def _close(self) -> None:
        self._closed = True
        for lease in self._leases.values():
            lease._close()


@asynccontextmanager
async def open_session(
    store: Store, *, name: str | None, ttl_ms: int, stall_ms: int, runtime: Runtime
) -> AsyncIterator[Session]:
    """A session for the body. Losing it cancels the body and raises `ExpiredError`; leaving ends it with all its leases."""
    settings = SessionSettings(
        ttl_ms=ttl_ms,
        renew_ms=max(1, ttl_ms // 3),
        margin_ms=ttl_ms // 10,
        stall_ms=stall_ms,
        retry_ms=max(1, ttl_ms // 60),
    )
    async with hold_session(store, clock=runtime.clock, random=runtime.random, settings=settings) as held:
        session = Session(store, held, name=name or _default_name(), runtime=runtime)
        try:
            yield session
        finally:
            # After a loss the store decides about late commits: whether somebody newer owns the lease.
            if held.alive():
                session._close()


def _default_name() -> str:
    return f"{platform.node() or 'localhost'}:{os.getpid()}"
