"""Session: one keep-alive for all leases of a program, or of a part of it.

The one rule: one version of a lease belongs to at most one handle. An acquisition whose answer was lost, or that was cancelled,
is found again by the next `acquire` of the same session, and two tasks of one session exclude each other like two processes.
"""

import os
import platform
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from typing import Literal, overload

from holdfast.contracts.store import Store
from holdfast.kernel import lease as kernel
from holdfast.kernel.keys import holder_key
from holdfast.kernel.mirror import OPENING_ATTEMPTS, open_mirror
from holdfast.kernel.session import HeldSession, SessionSettings, hold_session
from holdfast.sdk.lease import Held, Lease
from holdfast.vocabulary.errors import ClosedError, ExpiredError, HoldfastError, InvalidError
from holdfast.vocabulary.runtime import Runtime
from holdfast.vocabulary.tasks import Notify, leaf_errors


class Session:
    """A session, kept alive in the background, and the leases acquired under it. Made by `Holdfast.session`."""

    def __init__(self, store: Store, held: HeldSession, *, name: str, runtime: Runtime) -> None:
        self.name = name
        self._store, self._held, self._runtime = store, held, runtime
        self._leases: dict[str, Lease] = {}
        self._versions: dict[str, int] = {}  # the latest version of each lease that has, or just had, a handle here
        self._acquiring: Counter[str] = Counter()
        self._waiting: set[Notify] = set()
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

    @overload
    def hold(self, resource: str, *, wait: bool) -> AbstractAsyncContextManager[Lease | Held]: ...

    def hold(
        self, resource: str, *, wait: bool = False
    ) -> AbstractAsyncContextManager[Lease | Held] | AbstractAsyncContextManager[Lease]:
        """`acquire` for the body of an `async with`; leaving it releases the lease.

        If the store does not answer then, the next `acquire` of this session finishes the release; so does the session's end.
        """
        return self._hold(resource, wait=wait)

    @asynccontextmanager
    async def _hold(self, resource: str, *, wait: bool) -> AsyncIterator[Lease | Held]:
        answer = await self.acquire(resource, wait=wait)
        try:
            yield answer
        finally:
            if self.alive:
                with suppress(HoldfastError):
                    await answer.release()

    async def _acquire(self, resource: str) -> Lease | Held:
        while True:
            with self._acquiring_of(resource):
                found = await self._find_or_take(resource)
                self._check()
                if not self._is_releasing(found):
                    return self._handle_for(found)
            # A release whose answer was lost, or that was cancelled, is finished first.
            await self._leases[resource].release()

    async def _find_or_take(self, resource: str) -> kernel.Lease | kernel.Held:
        return await kernel.acquire(
            self._store,
            resource,
            holder=self.name,
            session=self.id,
            clock=self._runtime.clock,
            random=self._runtime.random,
        )

    def _is_releasing(self, found: kernel.Lease | kernel.Held) -> bool:
        handle = self._leases.get(found.resource)
        return (
            found.session == self.id
            and handle is not None
            and handle._closed
            and found.version == self._versions.get(found.resource)
        )

    def _handle_for(self, found: kernel.Lease | kernel.Held) -> Lease | Held:
        """A handle if this version of the lease is ours and has none. Nothing may be awaited between this and the caller."""
        resource = found.resource
        # A holder of our own session that has no handle is an earlier acquisition whose answer never arrived.
        if found.session != self.id or found.version <= self._versions.get(resource, 0):
            return Held(resource=resource, holder=found.holder, epoch=found.epoch)
        grant = kernel.Lease(
            resource=resource, holder=found.holder, session=self.id, epoch=found.epoch, version=found.version
        )
        self._versions[resource] = found.version
        self._leases[resource] = lease = Lease(grant, self._store, self._runtime, on_released=self._forget)
        return lease

    async def _acquire_when_free(self, resource: str) -> Lease:
        while True:
            with self._acquiring_of(resource):
                found = await self._take_when_free(resource)
                # After the watch has ended: a cancellation while it does must leave the grant for the next `acquire` to find.
                self._check()
                answer = self._handle_for(found)
            if isinstance(answer, Lease):
                return answer

    async def _take_when_free(self, resource: str) -> kernel.Lease | kernel.Held:
        key, clock, random = holder_key(resource), self._runtime.clock, self._runtime.random
        notify = Notify()
        self._waiting.add(notify)
        try:
            async with open_mirror(
                self._store,
                key,
                lambda _: None,
                clock=clock,
                random=random,
                notify=notify,
                opening_attempts=OPENING_ATTEMPTS,
            ) as mirror:
                while True:
                    while key in mirror.items:
                        await self._wait(notify)
                    seen = mirror.version
                    found = await self._find_or_take(resource)
                    if found.session == self.id and found.version > self._versions.get(resource, 0):
                        return found
                    while mirror.version == seen:  # somebody was faster: the mirror has yet to see it
                        await self._wait(notify)
        finally:
            self._waiting.discard(notify)

    async def _wait(self, notify: Notify) -> None:
        """Wait for a change, or for the end of the session. Waiting for a lease is progress: the loop is not hung."""
        left_ms = max(1, self._held.deadline_ms - self._runtime.clock.boot_ms())
        await notify.wait_ms(self._runtime.clock, min(left_ms, self._held.progress_interval_ms))
        self._check()
        self._held.report_progress()

    @contextmanager
    def _acquiring_of(self, resource: str) -> Iterator[None]:
        """While an acquisition is in flight its answer may name a version that was released since: the version is kept."""
        self._acquiring[resource] += 1
        try:
            yield
        finally:
            self._acquiring[resource] -= 1
            if not self._acquiring[resource]:
                del self._acquiring[resource]
                if resource not in self._leases:
                    self._versions.pop(resource, None)

    def _forget(self, lease: Lease) -> None:
        """A lease was released: nothing of it is kept, so that a session of many short leases does not grow."""
        if self._leases.get(lease.resource) is lease:
            del self._leases[lease.resource]
            if not self._acquiring.get(lease.resource):
                self._versions.pop(lease.resource, None)

    def _check(self) -> None:
        if self._closed:
            raise ClosedError(f"session {self.name}")
        self._held.check()

    def _close(self) -> None:
        self._closed = True
        for lease in self._leases.values():
            lease._close()
        self._wake()

    def _wake(self) -> None:
        """Have everybody who waits for a lease see that the session has ended."""
        for notify in self._waiting:
            notify.notify()


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
    if name is not None and (not isinstance(name, str) or not name.isprintable()):
        raise InvalidError("session name", name, "printable text")
    try:
        async with hold_session(store, clock=runtime.clock, random=runtime.random, settings=settings) as held:
            session = Session(store, held, name=name or _default_name(), runtime=runtime)
            try:
                yield session
            finally:
                # After a loss the store decides about late commits: whether somebody newer owns the lease.
                if held.alive():
                    session._close()
                else:
                    session._wake()
    except BaseExceptionGroup as failed:
        # The loss of the session, and a commit of the body's `finally` that met it: one cause, one error.
        leaves = list(leaf_errors(failed))
        if all(isinstance(leaf, ExpiredError) for leaf in leaves):
            raise leaves[0] from None
        raise


def _default_name() -> str:
    return f"{platform.node() or 'localhost'}:{os.getpid()}"
