"""Connections to other nodes, for heap requests that are forwarded: one for each request that may take its time
(pops, and what is done with many dead letters), one for each heap whose spine requests wait for, and one for all else.

The one rule: a connection is used by all requests to its node at once, and replaced when it is lost. Nobody waits long behind a
request that connects: it fails, as do all for a moment after a node could not be reached, and the caller looks again who leads.
Nor does anybody wait for an agent whose session is over: one that is frozen keeps its connections, and leads nothing any more.
"""

import asyncio
from typing import Final, NamedTuple

from holdfast.agent.cluster import Cluster
from holdfast.client.addresses import BrokerAddress
from holdfast.client.broker_login import BrokerLogin
from holdfast.client.heap_connection import HeapConnection, open_heap_connection
from holdfast.heap.wire import DeadLettersRequest, HeapRequest, PopRequest, lane_of
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import UnavailableError
from holdfast.vocabulary.host_port import split_host_port

_CONNECT_S: Final = 5.0
_PATIENCE_MS: Final = 500  # with another request that connects
_SHUNNED_MS: Final = 500  # after which a node that could not be reached is tried again
_CHECK_MS: Final = 1_000  # between two looks at sessions: an agent that left has so long to answer


class _Key(NamedTuple):
    """What one connection is for. `session`: the agent's; `slow`: requests take their time; `lane`: `lane_of`."""

    agent: str
    session: str
    address: BrokerAddress
    slow: bool
    lane: int


class _Opening:
    """The turn to connect, and since when somebody has it."""

    __slots__ = ("lock", "since_ms")

    def __init__(self) -> None:
        self.lock, self.since_ms = asyncio.Lock(), 0.0


class HeapNodeConnections:
    """The connections of one node to all others. `login`: how it logs in to them."""

    def __init__(self, cluster: Cluster, login: BrokerLogin | None, clock: Clock) -> None:
        self._cluster, self._login, self._clock = cluster, login, clock
        self._open: dict[_Key, list[HeapConnection]] = {}
        self._opening: dict[_Key, _Opening] = {}
        self._shunned: dict[BrokerAddress, float] = {}  # and until when
        self._watching: asyncio.Task[None] | None = None

    async def to(self, agent: str, request: HeapRequest) -> HeapConnection | None:
        """A connection to an agent; None: it is not known where it listens. `UnavailableError`."""
        member = self._cluster.reachable_member(agent)
        found = split_host_port(member.address) if member is not None else None
        if member is None or found is None or found.port is None:
            return None
        slow = isinstance(request, PopRequest | DeadLettersRequest)
        key = _Key(agent, member.session, BrokerAddress(found.host, found.port), slow, lane_of(request))
        free = self._free(key)
        if free is not None:
            return free
        opening = self._opening.setdefault(key, _Opening())
        await self._turn(key.address, opening)
        try:
            return self._free(key) or await self._opened(key, opening)
        finally:
            opening.lock.release()
            if key not in self._open and not opening.lock.locked():
                self._opening.pop(key, None)

    def _free(self, key: _Key) -> HeapConnection | None:
        """Whatever waits holds up those behind it: each has a connection of its own while it waits."""
        for each in self._open.get(key, ()):
            if each.is_usable and not (key.slow and each.pending):
                return each
        return None

    async def _turn(self, address: BrokerAddress, opening: _Opening) -> None:
        """Wait for the turn to connect. `UnavailableError`: whoever has it takes long."""
        while True:
            try:
                async with asyncio.timeout(_PATIENCE_MS / 1000):
                    await opening.lock.acquire()
                    return
            except TimeoutError:
                if self._clock.boot_ms() - opening.since_ms >= _PATIENCE_MS:
                    raise UnavailableError(f"node {address}", "a connection to it is still being opened") from None

    async def _opened(self, key: _Key, opening: _Opening) -> HeapConnection:
        address, now_ms = key.address, self._clock.boot_ms()
        if now_ms < self._shunned.get(address, 0.0):
            raise UnavailableError(f"node {address}", "not reached a moment ago")
        opening.since_ms = now_ms
        try:
            connection = await open_heap_connection(address, timeout_s=_CONNECT_S, login=self._login)
        except UnavailableError:
            now_ms = self._clock.boot_ms()
            self._shunned = {each: until_ms for each, until_ms in self._shunned.items() if now_ms < until_ms}
            self._shunned[address] = now_ms + _SHUNNED_MS
            raise
        self._shunned.pop(address, None)
        self._open[key] = [*(each for each in self._open.get(key, ()) if each.lost is None), connection]
        if self._watching is None:
            self._watching = asyncio.ensure_future(self._watch())
        return connection

    async def _watch(self) -> None:
        """Close the connections to agents whose session is over. What waits there has an unknown outcome."""
        ended: set[_Key] = set()
        try:
            while self._open:
                await self._clock.sleep_ms(_CHECK_MS)
                before, ended = ended, {key for key in self._open if self._has_ended(key)}
                for key in ended & before:
                    self._forget(key)
        finally:
            self._watching = None

    def _has_ended(self, key: _Key) -> bool:
        member = self._cluster.member(key.agent)
        return member is None or member.session != key.session

    def _forget(self, key: _Key) -> None:
        for connection in self._open.pop(key):
            connection.close()
        self._opening.pop(key, None)

    def close(self) -> None:
        """Close all of them."""
        if self._watching is not None:
            self._watching.cancel()
        for connection in (each for several in self._open.values() for each in several):
            connection.close()
        self._open.clear()
