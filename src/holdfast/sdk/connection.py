"""connect: from a store URL to sessions, leases and registries.

The one rule: clock and random source are chosen here, once, as one `Runtime`, and passed on to everything made from the connection.
"""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace

from holdfast.contracts.store import Entry, Scan, Store
from holdfast.contracts.validation import prefix_end
from holdfast.kernel.cluster_move import check_not_moved
from holdfast.registry import RegistrySettings
from holdfast.sdk.registry import Registry
from holdfast.sdk.session import Session, open_session
from holdfast.stores.urls import open_store
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.runtime import Runtime


class Holdfast:
    """An open store, and what can be done with it. Made by `connect`; safe for many tasks of one event loop."""

    def __init__(self, store: Store, runtime: Runtime) -> None:
        self.store, self.runtime = store, runtime

    def session(
        self, name: str | None = None, *, ttl_ms: int = 30_000, stall_ms: int = 0
    ) -> AbstractAsyncContextManager[Session]:
        """A session for the body of an `async with`. Losing it cancels the body and raises `ExpiredError`; leaving ends it.

        `name` is what others see as the holder of its leases; the default is host and process id. `ttl_ms`: how long its leases
        outlive a process that died or froze. `stall_ms`: without `report_progress` for so long, no more keep-alives; 0: off.
        """
        return open_session(self.store, name=name, ttl_ms=ttl_ms, stall_ms=stall_ms, runtime=self.runtime)

    def registry(
        self, namespace: str, *, partitions: int | None = None, settings: RegistrySettings | None = None
    ) -> Registry:
        """The registry called `namespace`. All who share it must agree on `partitions` (16 unless given)."""
        chosen = replace(settings or RegistrySettings(), namespace=namespace)
        if partitions is not None:
            chosen = replace(chosen, partitions=partitions)
        return Registry(self.store, settings=chosen, runtime=self.runtime)

    async def get(self, key: str) -> Entry | None:
        """The key as the latest commit left it; None if there is none."""
        return await self.store.get(key)

    async def scan(self, prefix: str) -> Scan:
        """All keys that start with `prefix`, in order, at one version."""
        return await self.store.scan(prefix, prefix_end(prefix))


@asynccontextmanager
async def connect(store: str | Store, *, runtime: Runtime | None = None) -> AsyncIterator[Holdfast]:
    """Open the store a URL names (`sqlite:///work.db`, `postgresql://…`, `etcd://…`, `redis://…`, `memory:`) for the body.

    An open `Store` is taken as it is and left open. `InvalidError`: no such engine, one whose settings would lose commits, or a
    store whose cluster has moved to another one.
    """
    runtime = runtime or Runtime()
    if not isinstance(store, str):
        if not callable(getattr(store, "commit", None)):
            raise InvalidError("store", type(store).__name__, "a URL, or a Store that is open")
        yield Holdfast(store, runtime)
        return
    async with open_store(store, clock=runtime.clock, random=runtime.random) as opened:
        await check_not_moved(opened)
        yield Holdfast(opened, runtime)
