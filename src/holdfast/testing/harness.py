"""Harnesses: one engine with a real server behind it, as a contract suite sees it.

A harness gives clients of one fresh namespace (schema, prefix, folder, bucket prefix) and injects faults: it cuts connections,
loses a request or a response, restarts the server, restores old data. The author of an engine writes one.
"""

from contextlib import AbstractAsyncContextManager
from typing import Protocol

from holdfast.contracts.objects import Objects
from holdfast.contracts.store import Store


class StoreHarness(Protocol):
    """What the contract suite needs of a store engine."""

    name: str
    url: str  # opens the same namespace from another process; "" when only this process can reach it
    ttl_ms_min: int  # the shortest TTL the engine grants

    def client(self) -> AbstractAsyncContextManager[Store]:
        """Another client of the same namespace, as another process would open it."""
        ...

    def lose_answer_to(self, marker: str) -> None:
        """The next request that mentions `marker` is executed; its response is lost."""
        ...

    def lose_request(self, marker: str) -> None:
        """The next request that mentions `marker` is lost; its sender cannot tell."""
        ...

    async def cut(self) -> None:
        """Break every connection once; new ones are accepted."""
        ...

    async def set_reachable(self, reachable: bool) -> None:
        """Break every connection and refuse new ones, or accept them again."""
        ...

    async def restart(self) -> None:
        """Kill the server with SIGKILL and start it again on the same data."""
        ...

    async def save(self) -> None:
        """Keep a copy of the server's data."""
        ...

    async def restore_saved(self) -> None:
        """Restore the saved copy, as a backup would be restored."""
        ...


class ObjectsHarness(Protocol):
    """What the contract suite needs of an engine of objects."""

    name: str
    url: str  # opens the same namespace from another process; "" when only this process can reach it

    def client(self, *, deadline_ms: int = 30_000) -> AbstractAsyncContextManager[Objects]:
        """Another client of the same namespace, as another process would open it, retrying for up to `deadline_ms`."""
        ...

    def lose_answer_to(self, marker: str) -> None:
        """The next request that mentions `marker` is executed; its response is lost."""
        ...

    async def set_reachable(self, reachable: bool) -> None:
        """Break every connection and refuse new ones, or accept them again."""
        ...

    async def restart(self) -> None:
        """Kill the server with SIGKILL and start it again on the same data."""
        ...
