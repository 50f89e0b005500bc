"""Harness: one engine with a real server behind it, as the contract suite sees it.

A harness gives clients of one fresh namespace (schema, prefix, database file) and can hurt them: cut connections, lose a
request or an answer, restart the server, put it back in time. One per engine lives in `testing.engines`.
"""

from contextlib import AbstractAsyncContextManager
from typing import Protocol

from holdfast.contracts.store import Store


class StoreHarness(Protocol):
    """What the contract suite needs of an engine."""

    name: str
    url: str  # opens the same namespace from another process; "" when only this process can reach it
    ttl_ms_min: int  # the shortest TTL the engine grants

    def client(self) -> AbstractAsyncContextManager[Store]:
        """Another client of the same namespace, as another process would open it."""
        ...

    def lose_answer_to(self, marker: str) -> None:
        """The next request that mentions `marker` arrives and is done; its answer never comes back."""
        ...

    def lose_request(self, marker: str) -> None:
        """The next request that mentions `marker` never arrives, and its sender cannot know."""
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
        """Remember the server's data as they are now."""
        ...

    async def restore_saved(self) -> None:
        """Put the server back to the saved data, as a restored backup would."""
        ...
