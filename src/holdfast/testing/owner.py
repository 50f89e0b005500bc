"""Owner: a program that holds one key under a session, for tests that stop it, kill it and let it go on.

`python -m holdfast.testing.owner URL TTL_MS KEY` says one thing per line:

    holding SESSION     the key is put under the session; from now on it renews every third of the TTL
    taken               somebody else has the key; it ends
    lost                a keep-alive was refused: the session is dead
    refused             and so was one more put under it, as it must be; it ends
    accepted VERSION    the put under the dead session was applied: the store is broken; it ends
    tired               nobody stopped it for two minutes; it closes the session and ends
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

HOLD_MS_MAX: Final = 120_000  # a forgotten owner must not hold for ever


async def hold_key(
    store: Store, *, clock: Clock, random: Random, ttl_ms: int, key: str, say: Callable[[str], None]
) -> None:
    """Hold `key` until the session is lost, then try to write under it all the same."""
    session = await store.open_session(ttl_ms)
    held = await commit_resolved(
        store, clock=clock, random=random, require=[Absent(key)], apply=[Put(key, b'"owner"', session.id)]
    )
    if isinstance(held, Conflict):
        say("taken")
        return
    say(f"holding {session.id}")
    tired_at_ms = clock.boot_ms() + HOLD_MS_MAX
    while await _renew(store, clock, session.id, session.ttl_ms / 3):
        if clock.boot_ms() > tired_at_ms:
            await store.close_session(session.id)
            say("tired")
            return
    say("lost")
    late = await commit_resolved(store, clock=clock, random=random, apply=[Put(key, b'"owner, late"', session.id)])
    say(f"accepted {late.version}" if isinstance(late, Committed) else "refused")


async def _renew(store: Store, clock: Clock, session_id: str, pause_ms: float) -> bool:
    await clock.sleep_ms(pause_ms)
    try:
        return await store.keep_alive(session_id)
    except UnavailableError:
        return True  # nobody said that it is dead


async def main(argv: Sequence[str]) -> None:
    """Open the store the arguments name and own the key."""
    if len(argv) != 3 or not argv[1].isdecimal():
        raise InvalidError("arguments", list(argv), "URL TTL_MS KEY")
    url, ttl_ms, key = argv
    clock, random = RealClock(), SystemRandom()
    async with open_store(url, clock=clock, random=random) as store:
        await hold_key(
            store, clock=clock, random=random, ttl_ms=int(ttl_ms), key=key, say=lambda said: print(said, flush=True)
        )


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
