"""The store probe: the contract's promises, tried on a user's own server in a few seconds.

It is not the contract suite (`holdfast.testing.store_contract`), which may break its server; the probe writes only below
a prefix of its own and removes what it wrote. Each finding says what was tried, whether it holds, and how long it took.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

from holdfast.contracts.store import Absent, AtVersion, Changed, Committed, Conflict, Delete, Put, Store
from holdfast.contracts.validation import prefix_end
from holdfast.stores.urls import open_store
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import HoldfastError
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.settings import check_at_least


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeSettings:
    """How hard to try."""

    racers: int = 50
    commits: int = 100
    ttl_ms: int = 2_000
    wait_ms: int = 15_000

    def __post_init__(self) -> None:
        for name in ("racers", "commits", "ttl_ms", "wait_ms"):
            check_at_least(name, getattr(self, name), 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeFinding:
    """One promise, tried."""

    check: str
    ok: bool
    detail: str
    took_ms: int


class _ContractViolationError(Exception):
    """The server answered, and the answer was wrong."""


async def probe_store(
    url: str, *, clock: Clock, random: Random, settings: ProbeSettings
) -> AsyncGenerator[ProbeFinding, None]:
    """Open the store at `url` and try each promise, yielding findings as they come. What prevents opening is raised."""
    started_ms = clock.boot_ms()
    async with open_store(url, clock=clock, random=random) as store:
        facts = store.facts
        about = "; ".join((f"{facts.engine} ({facts.server})", facts.durability, *facts.notes))
        yield ProbeFinding(check="open and durability", ok=True, detail=about, took_ms=clock.boot_ms() - started_ms)
        probe = _Probe(store, clock, f"holdfast-probe/{random.token()}/", settings)
        for check, attempt in probe.attempts():
            yield await _try(check, attempt, clock)
        await probe.clean_up()


async def _try(check: str, attempt: Callable[[], Awaitable[str]], clock: Clock) -> ProbeFinding:
    started_ms = clock.boot_ms()
    try:
        ok, detail = True, await attempt()
    except (_ContractViolationError, HoldfastError) as error:
        ok, detail = False, str(error)
    except TimeoutError:
        ok, detail = False, "nothing came in time"
    return ProbeFinding(check=check, ok=ok, detail=detail, took_ms=clock.boot_ms() - started_ms)


def _expect(holds: bool, otherwise: str) -> None:
    if not holds:
        raise _ContractViolationError(otherwise)


class _Probe:
    def __init__(self, store: Store, clock: Clock, prefix: str, settings: ProbeSettings) -> None:
        self._store, self._clock, self._prefix, self._settings = store, clock, prefix, settings

    def attempts(self) -> list[tuple[str, Callable[[], Awaitable[str]]]]:
        return [
            ("compare and swap", self._compare_and_swap),
            ("one winner of a race", self._race),
            ("ordered scan", self._scan),
            ("push watch", self._watch),
            ("session expiry", self._expiry),
            ("commit rate", self._rate),
        ]

    async def _put(self, name: str, value: bytes = b"1", session: str | None = None) -> int:
        outcome = await self._store.commit(apply=[Put(self._prefix + name, value, session)])
        if not isinstance(outcome, Committed):
            raise _ContractViolationError(f"a plain put of {name} was refused")
        return outcome.version

    async def _compare_and_swap(self) -> str:
        key = self._prefix + "swap"
        first = await self._put("swap")
        stale = await self._store.commit(require=[Absent(key)], apply=[Put(key, b"2")])
        _expect(isinstance(stale, Conflict), "a commit that required absence overwrote a present key")
        second = await self._store.commit(require=[AtVersion(key, first)], apply=[Put(key, b"2")])
        _expect(isinstance(second, Committed) and second.version > first, "versions do not grow")
        late = await self._store.commit(require=[AtVersion(key, first)], apply=[Put(key, b"3")])
        _expect(isinstance(late, Conflict), "a commit that required an old version succeeded")
        entry = await self._store.get(key)
        _expect(entry is not None and entry.value == b"2", "a refused commit changed the value")
        return "stale requirements are refused, versions grow"

    async def _race(self) -> str:
        key, racers = self._prefix + "race", self._settings.racers
        outcomes = await asyncio.gather(
            *(self._store.commit(require=[Absent(key)], apply=[Put(key, b"%d" % n)]) for n in range(racers))
        )
        winners = [n for n, outcome in enumerate(outcomes) if isinstance(outcome, Committed)]
        _expect(len(winners) == 1, f"{len(winners)} of {racers} racing commits won")
        entry = await self._store.get(key)
        _expect(entry is not None and entry.value == b"%d" % winners[0], "the stored value is not the winner's")
        return f"1 of {racers} racing commits won"

    async def _scan(self) -> str:
        names = ["a", "b", "ba", "c", "é", "z"]
        for name in names:
            await self._put(f"scan/{name}")
        start = self._prefix + "scan/"
        found = await self._store.scan(start, prefix_end(start))
        expected = [start + name for name in sorted(names)]
        _expect([entry.key for entry in found.entries] == expected, "keys are not in code point order")
        floor = await self._store.scan(start, start + "bb", limit=1, reverse=True)
        _expect([entry.key for entry in floor.entries] == [start + "ba"], "the floor look-up missed")
        return "ordered, with floor look-up"

    async def _watch(self) -> str:
        version = await self._put("watch/0")
        prefix = self._prefix + "watch/"
        async with self._store.watch(prefix, from_version=version) as commits:
            sent_ms = self._clock.boot_ms()
            expected = await self._put("watch/1")
            async with asyncio.timeout(self._settings.wait_ms / 1000):
                seen = await anext(commits)
            _expect(isinstance(seen, Changed) and seen.version == expected, "the watch skipped a commit")
        return f"a change arrived {self._clock.boot_ms() - sent_ms} ms after its commit was sent"

    async def _expiry(self) -> str:
        session = await self._store.open_session(self._settings.ttl_ms)
        version = await self._put("session", session=session.id)
        opened_ms = self._clock.boot_ms()
        async with self._store.watch(self._prefix + "session", from_version=version) as commits:
            async with asyncio.timeout(session.ttl_ms / 1000 + self._settings.wait_ms / 1000):
                await anext(commits)
        gone_ms = self._clock.boot_ms() - opened_ms
        _expect(not await self._store.keep_alive(session.id), "a dead session was renewed")
        late = await self._store.commit(apply=[Put(self._prefix + "late", b"1", session.id)])
        _expect(isinstance(late, Conflict), "a put under a dead session succeeded")
        return f"granted {session.ttl_ms} ms, the key was gone after {gone_ms} ms, and stayed gone"

    async def _rate(self) -> str:
        started_ms = self._clock.boot_ms()
        for n in range(self._settings.commits):
            await self._put("rate", b"%d" % n)
        took_ms = max(1, self._clock.boot_ms() - started_ms)
        return f"{self._settings.commits * 1000 // took_ms} sequential commits/s from here"

    async def clean_up(self) -> None:
        with suppress(HoldfastError):  # what stays is a handful of keys under a random prefix
            found = await self._store.scan(self._prefix, prefix_end(self._prefix))
            await self._store.commit(apply=[Delete(entry.key) for entry in found.entries])
