"""The steps that the tests of the Redis engine share."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from tests.support.store_engines.redis import ValkeyServer
from tests.support.waiting import async_until

from holdfast.contracts.store import Committed, Put, Store
from holdfast.stores.redis.connection import RedisConnection
from holdfast.stores.redis.key_layout import KeyLayout
from holdfast.stores.redis.settings import RedisAddress
from holdfast.stores.urls import open_store
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import CorruptError, OutcomeUnknownError, UnavailableError
from holdfast.vocabulary.random import SystemRandom

KEYS = KeyLayout("holdfast")


def opening(server: ValkeyServer, options: str = "", *, login: str = "") -> AbstractAsyncContextManager[Store]:
    url = f"redis://{login}127.0.0.1:{server.port}/0?{options}"
    return open_store(url, clock=RealClock(), random=SystemRandom())


async def put(store: Store, key: str, value: bytes = b"1", session: str | None = None) -> int:
    outcome = await store.commit(apply=[Put(key, value, session)])
    assert isinstance(outcome, Committed)
    return outcome.version


async def stops(ask: Callable[[], Awaitable[object]]) -> CorruptError:
    """Ask until the guard has seen it; the store may first say that it is unavailable."""

    async def stopped() -> bool:
        try:
            await ask()
        except CorruptError as fault:
            found.append(fault)
            return True
        except (UnavailableError, OutcomeUnknownError):
            pass
        return False

    found: list[CorruptError] = []
    await async_until(stopped)
    return found[0]


@asynccontextmanager
async def connected(server: ValkeyServer) -> AsyncIterator[RedisConnection]:
    link = RedisConnection(RedisAddress(shown="late", host="127.0.0.1", port=server.port), timeout_ms=5_000)
    try:
        yield link
    finally:
        await link.close()
