"""Requests to a cluster: at the leader of their partition where it is known, at any node otherwise, which forwards them.

The one rule: what was not sent, or had no effect, is sent again until its time is over. What may have had one is sent again only if
it is the same when it happens twice (`again`); otherwise the caller is told that its outcome is unknown. A login that is refused is
not tried again: each try would count against its user. After a failure the next try goes to any node, and the leaders are asked
for again (`places`).

Responses come in order, so what may wait has connections of its own: pops, and what waits for a spine (`lane_of`).
"""

import asyncio
from typing import Any, Final

from holdfast.client.addresses import BrokerAddress, parse_bootstrap
from holdfast.client.broker_login import BrokerLogin, LoginRefusedError
from holdfast.client.heap_connection import HeapConnection, open_heap_connection
from holdfast.heap.errors import BatchAbortedError
from holdfast.heap.wire import HeapRequest, PlacesRequest, PopRequest, SpineRequest, lane_of
from holdfast.heaps.places import AnsweredPlaces, HeapPlaces
from holdfast.log.errors import NotLeaderError
from holdfast.log.topics import UnknownTopicError
from holdfast.vocabulary.errors import ClosedError, InvalidError, OutcomeUnknownError, UnavailableError
from holdfast.vocabulary.random import backoff_ms
from holdfast.vocabulary.runtime import Runtime

_CONNECT_S: Final = 5.0
_RETRY_MS: Final = 20
_RETRY_MAX_MS: Final = 1_000

_Lane = tuple[BrokerAddress | None, int]
"""What one connection is for: a node, None: any; and which of its lanes (`lane_of`)."""


class HeapNodes:
    """Connections of one client. Belongs to one event loop. `login`: how each logs in, and its TLS; None: neither."""

    def __init__(self, bootstrap: str, *, timeout_ms: int, runtime: Runtime, login: BrokerLogin | None = None) -> None:
        self._addresses, self._login = parse_bootstrap(bootstrap), login
        self._at = 0
        self._timeout_ms, self.clock, self.random = timeout_ms, runtime.clock, runtime.random
        self._connections: dict[_Lane, HeapConnection] = {}
        self._opening: dict[_Lane, asyncio.Lock] = {}
        self._pops: dict[BrokerAddress | None, list[HeapConnection]] = {}
        self.places = HeapPlaces(self._ask_places, self.clock)
        self._closed = False

    async def call(self, request: HeapRequest, *, again: bool, timeout_ms: int | None = None) -> Any:
        """The result of a request. `again`: it may be sent again although it may have had its effect."""
        deadline_ms = self.clock.boot_ms() + (self._timeout_ms if timeout_ms is None else timeout_ms)
        attempt, unknown = 0, None
        while True:
            try:
                connection = await self._connected((self.places.of(request), lane_of(request)))
                left_ms = deadline_ms - self.clock.boot_ms()
                if left_ms <= 0:
                    raise UnavailableError("node", "the time of the call was over when it was connected")
                return await self._in_time(connection, request, left_ms)
            except LoginRefusedError:
                raise
            except UnknownTopicError:  # or its partition is: it is another heap of this name
                self.places.forget(request.topic)
                raise
            except (NotLeaderError, UnavailableError, BatchAbortedError):  # nothing happened, this time
                if self.clock.boot_ms() >= deadline_ms:
                    if unknown is not None:
                        raise unknown from None
                    raise
            except OutcomeUnknownError as error:
                if not again or self.clock.boot_ms() >= deadline_ms:
                    raise
                unknown = error
            self.places.moved(request.topic)
            await self.pause(attempt)
            attempt += 1

    async def pop(self, request: PopRequest) -> Any:
        """The result of a pop that may wait, on a connection of its own."""
        address = self.places.of(request)
        connections = self._pops.get(address, ())
        connection = next((each for each in connections if each.lost is None and not each.pending), None)
        try:
            if connection is None:
                address, connection = await self._open_there_or_anywhere(address)
                alive = [each for each in self._pops.get(address, ()) if each.lost is None]
                self._pops[address] = [*alive, connection]
            return await self._in_time(connection, request, request.wait_ms + self._timeout_ms)
        except asyncio.CancelledError:
            if connection is not None:
                connection.close()  # what it leases now would be nobody's: the node sees that its client is gone
            raise
        except (NotLeaderError, UnavailableError, OutcomeUnknownError):
            self.places.moved(request.topic)
            raise

    async def pause(self, attempt: int) -> None:
        """The pause before another try."""
        await self.clock.sleep_ms(backoff_ms(attempt, base_ms=_RETRY_MS, max_ms=_RETRY_MAX_MS, random=self.random))

    def close(self) -> None:
        """Close every connection."""
        self._closed = True
        self.places.close()
        waiting = [each for several in self._pops.values() for each in several]
        for connection in (*waiting, *self._connections.values()):
            connection.close()

    async def _ask_places(self, topic: str) -> AnsweredPlaces:
        leaders: list[str] = await self.call(PlacesRequest(topic=topic), again=True)
        if len(leaders) == 1:
            return AnsweredPlaces(leaders, None)
        try:
            return AnsweredPlaces(leaders, await self.call(SpineRequest(topic=topic), again=True))
        except InvalidError:  # a node of an older release
            return AnsweredPlaces(leaders, None)

    async def _in_time(self, connection: HeapConnection, request: HeapRequest, within_ms: float) -> Any:
        try:
            async with asyncio.timeout(max(0.0, within_ms) / 1000):
                return await connection.call(request)
        except TimeoutError:
            connection.close()
            self._at += 1  # a node that is frozen takes connections: the next one goes to another node
            self.places.moved(request.topic)
            what = f"{type(request).__name__} of {request.topic}"
            raise OutcomeUnknownError(what, f"no answer within {within_ms:.0f} ms") from None

    async def _connected(self, lane: _Lane) -> HeapConnection:
        connection = self._connections.get(lane)
        if connection is not None and connection.lost is None:
            return connection
        async with self._opening.setdefault(lane, asyncio.Lock()):
            connection = self._connections.get(lane)
            if connection is None or connection.lost is not None:
                connection = self._connections[lane] = await self._open(lane[0])
            return connection

    async def _open_there_or_anywhere(
        self, address: BrokerAddress | None
    ) -> tuple[BrokerAddress | None, HeapConnection]:
        """A connection to a node or, if that cannot be reached from here, to any other one, which forwards."""
        try:
            return address, await self._open(address)
        except LoginRefusedError:
            raise
        except UnavailableError:
            if address is None:
                raise
            return None, await self._open(None)

    async def _open(self, address: BrokerAddress | None) -> HeapConnection:
        if self._closed:
            raise ClosedError("heap client")
        if address is not None:
            try:
                return await open_heap_connection(address, timeout_s=_CONNECT_S, login=self._login)
            except LoginRefusedError:
                raise
            except UnavailableError:
                self.places.shun(address)
                raise
        failure: UnavailableError | None = None
        for _ in self._addresses:
            try:
                return await open_heap_connection(
                    self._addresses[self._at % len(self._addresses)], timeout_s=_CONNECT_S, login=self._login
                )
            except LoginRefusedError:
                raise  # it is the same at every node
            except UnavailableError as error:
                failure = error
                self._at += 1
        assert failure is not None
        raise failure
