"""A store that goes away after a server has opened it and before it serves: the server waits, and gives up in the end."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from holdfast.app import store_wait
from holdfast.app.addresses import Address
from holdfast.app.config import ServeSettings
from holdfast.app.server import running_server
from holdfast.app.starting_store import StartingStore
from holdfast.contracts.forwarding_store import ForwardingStore
from holdfast.contracts.store import Committed, Conflict, Entry, Operation, Requirement, Scan, Store
from holdfast.stores.urls import open_store
from holdfast.vocabulary.clock import Clock, RealClock
from holdfast.vocabulary.errors import UnavailableError
from holdfast.vocabulary.random import Random, SeededRandom

CALLS_AWAY = 3


class HastyClock(RealClock):
    """Sleeps a hundredth of what it is asked to."""

    async def sleep_ms(self, duration_ms: float) -> None:
        await super().sleep_ms(duration_ms / 100)


class LeavingStore(ForwardingStore):
    """Does not answer calls `first` to `last`, counted from 0."""

    def __init__(self, store: Store, first: int, last: float) -> None:
        super().__init__(store)
        self._first, self._last, self.calls = first, last, 0

    def _called(self) -> None:
        self.calls += 1
        if self._first < self.calls <= self._last:
            raise UnavailableError("store", "connection refused")

    async def get(self, key: str) -> Entry | None:
        self._called()
        return await super().get(key)

    async def scan(self, start: str, end: str, *, limit: int | None = None, reverse: bool = False) -> Scan:
        self._called()
        return await super().scan(start, end, limit=limit, reverse=reverse)

    async def commit(
        self, *, require: Sequence[Requirement] = (), apply: Sequence[Operation] = ()
    ) -> Committed | Conflict:
        self._called()
        return await super().commit(require=require, apply=apply)


def leave(monkeypatch: pytest.MonkeyPatch, first: int, last: float) -> list[LeavingStore]:
    opened: list[LeavingStore] = []

    @asynccontextmanager
    async def opening(url: str, *, clock: Clock, random: Random) -> AsyncIterator[Store]:
        async with open_store(url, clock=RealClock(), random=random) as store:
            opened.append(LeavingStore(store, first, last))
            yield opened[-1]

    monkeypatch.setattr(store_wait, "open_store", opening)
    return opened


def settings(directory: Path, *, wait_ms: int = 15_000) -> ServeSettings:
    return ServeSettings(
        data=directory,
        store="memory:",
        objects="memory:",
        listen=Address("127.0.0.1", 0),
        http_listen=None,
        store_wait_ms=wait_ms,
    )


@pytest.mark.parametrize("first", range(0, 12, 2))
async def test_a_store_that_goes_away_between_opening_and_serving_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    opened = leave(monkeypatch, first, first + CALLS_AWAY)
    async with running_server(settings(tmp_path), clock=HastyClock(), random=SeededRandom(1)) as server:
        assert server.node > 0
        assert opened[0].calls > first + CALLS_AWAY


async def test_a_store_that_stays_away_ends_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leave(monkeypatch, 1, float("inf"))
    with pytest.raises(UnavailableError, match="connection refused"):
        async with running_server(settings(tmp_path, wait_ms=0), clock=HastyClock(), random=SeededRandom(1)):
            pass


async def test_once_it_serves_nobody_waits_for_the_store() -> None:
    async with open_store("memory:", clock=RealClock(), random=SeededRandom(1)) as engine:
        store = StartingStore(
            LeavingStore(engine, 0, float("inf")), clock=RealClock(), random=SeededRandom(1), wait_ms=1 << 40
        )
        store.served = True
        with pytest.raises(UnavailableError):
            await store.get("anything")
