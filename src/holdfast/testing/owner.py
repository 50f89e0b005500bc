"""A program that holds one key under a session, for tests that pause, resume and kill it.

`python -m holdfast.testing.owner URL TTL_MS KEY` prints one event per line:

    holding SESSION     the key is put under the session, which is renewed every third of the TTL
    taken               another owner has the key; it ends
    lost                a keep-alive was refused: the session is dead
    refused             a put under the dead session was refused, as it must be; it ends
    accepted VERSION    the put under the dead session was applied: the store is broken; it ends
    tired               not stopped for two minutes; it closes the session and ends
"""

import asyncio
import sys
from collections.abc import Callable, Sequence
from typing import Final

from holdfast.contracts.commits import commit_resolved
from holdfast.contracts.store import Absent, Committed, Conflict, Put, Store
from holdfast.stores.urls import open_store
from holdfast.vocabulary.clock import Clock, RealClock
from holdfast.vocabulary.errors import InvalidError, UnavailableError
from holdfast.vocabulary.random import Random, SystemRandom

HOLD_MS_MAX: Final = 120_000  # a forgotten owner must not hold the key for ever


async def hold_key(
    store: Store, *, clock: Clock, random: Random, ttl_ms: int, key: str, report: Callable[[str], None]
) -> None:
    """Hold `key` until the session is lost, then try to write under it."""
    session = await store.open_session(ttl_ms)
    held = await commit_resolved(
        store, clock=clock, random=random, require=[Absent(key)], apply=[Put(key, b'"owner"', session.id)]
    )
    if isinstance(held, Conflict):
        report("taken")
        return
    report(f"holding {session.id}")
    tired_at_ms = clock.boot_ms() + HOLD_MS_MAX
    while await _renew(store, clock, session.id, session.ttl_ms / 3):
        if clock.boot_ms() > tired_at_ms:
            await store.close_session(session.id)
            report("tired")
            return
    report("lost")
    late = await commit_resolved(store, clock=clock, random=random, apply=[Put(key, b'"owner, late"', session.id)])
    report(f"accepted {late.version}" if isinstance(late, Committed) else "refused")


async def _renew(store: Store, clock: Clock, session_id: str, pause_ms: float) -> bool:
    await clock.sleep_ms(pause_ms)
    try:
        return await store.keep_alive(session_id)
    except UnavailableError:
        return True  # not known to be dead


async def main(argv: Sequence[str]) -> None:
    """Open the store and hold the key."""
    if len(argv) != 3 or not argv[1].isdecimal():
        raise InvalidError("arguments", list(argv), "URL TTL_MS KEY")
    url, ttl_ms, key = argv
    clock, random = RealClock(), SystemRandom()
    async with open_store(url, clock=clock, random=random) as store:
        await hold_key(
            store, clock=clock, random=random, ttl_ms=int(ttl_ms), key=key, report=lambda line: print(line, flush=True)
        )


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
