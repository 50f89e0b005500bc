"""Requests to a cluster: at the leader of their partition where it is known, at any node otherwise, which forwards them.

The one rule: what was not sent, or had no effect, is sent again until its time is over. What may have had one is sent again only if
it is the same when it happens twice (`again`); otherwise the caller is told that its outcome is unknown. A login that is refused is
not tried again: each try would count against its user. After a failure the next try goes to any node, and the leaders are asked
for again (`places`). Nodes that do not answer are left out (`node_health`).

Responses come in order, so what may wait has connections of its own: pops, what is done with many dead letters, and heaps whose
partitions have no leader, or no spine (`lane_of`). How long a request takes says nothing of its node, which is asked instead.

A pop that is cancelled may have an answer on the way. Its node is told to answer nothing more, and what it leased is given back.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from holdfast.client.addresses import BrokerAddress, parse_bootstrap
from holdfast.client.broker_login import BrokerLogin, LoginRefusedError
from holdfast.client.heap_connection import HeapConnection, open_heap_connection
from holdfast.heap.errors import BatchAbortedError
from holdfast.heap.wire import (
    DeadLettersRequest,
    HeapRequest,
    PlacesRequest,
    PopRequest,
    ReleaseRequest,
    SpineRequest,
    lane_of,
)
from holdfast.heaps.node_health import NodeHealth
from holdfast.heaps.places import AnsweredPlaces, HeapPlaces
from holdfast.log.errors import NotLeaderError
from holdfast.log.topics import UnknownTopicError
from holdfast.vocabulary.errors import ClosedError, HoldfastError, InvalidError, OutcomeUnknownError, UnavailableError
from holdfast.vocabulary.random import backoff_ms
from holdfast.vocabulary.runtime import Runtime
from holdfast.vocabulary.tasks import raise_if_cancelled

IDLE_MS: Final = 30_000
"""After which a connection on which something waited alone is closed."""

_CONNECT_S: Final = 5.0
_LAST_ANSWER_S: Final = 0.5  # in which the answer to a pop that was cancelled may still come
_GIVE_BACK_MS: Final = 5_000
_RETRY_MS: Final = 20
_RETRY_MAX_MS: Final = 1_000
_ALONE: Final = (PopRequest, DeadLettersRequest)  # each has a connection of its own for as long as it takes

_Lane = tuple[BrokerAddress | None, int]
"""What one connection is for: a node, None: any; and which of its lanes (`lane_of`)."""


class _Pop(NamedTuple):
    """A pop that is on its way, and the connection that it uses, once it has one."""

    topic: str
    used: list[HeapConnection]


class HeapNodes:
    """Connections of one client. Belongs to one event loop. `login`: how each logs in, and its TLS; None: neither."""

    def __init__(self, bootstrap: str, *, timeout_ms: int, runtime: Runtime, login: BrokerLogin | None = None) -> None:
        self._addresses, self._login = parse_bootstrap(bootstrap), login
        self._timeout_ms, self.clock, self.random = timeout_ms, runtime.clock, runtime.random
        self._connections: dict[_Lane, HeapConnection] = {}
        self._opening: dict[_Lane, asyncio.Lock] = {}
        self._alone: dict[BrokerAddress | None, list[HeapConnection]] = {}
        self._idle_since: dict[HeapConnection, int] = {}
        self._pops: dict[asyncio.Task[Any], _Pop] = {}
        self._abandoned: set[asyncio.Task[None]] = set()
        self.places = HeapPlaces(self._ask_places, self.clock)
        self._health = NodeHealth(self, self.clock)
        self._ends = self._closed = False

    async def call(self, request: HeapRequest, *, again: bool, timeout_ms: int | None = None) -> Any:
        """The result of a request. `again`: it may be sent again although it may have had its effect."""
        deadline_ms = self.clock.boot_ms() + (self._timeout_ms if timeout_ms is None else timeout_ms)
        attempt, unknown = 0, None
        while True:
            try:
                connection = await self._connection(request)
                left_ms = deadline_ms - self.clock.boot_ms()
                if left_ms <= 0:
                    raise UnavailableError("node", "the time of the call was over when it was connected")
                return await self._in_time(connection, request, None if _is_paced(request) else left_ms)
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
            self._failed(request)
            await self.pause(attempt)
            attempt += 1

    async def pop(self, request: PopRequest) -> Any:
        """The result of a pop that may wait, on a connection of its own. If this is cancelled, it is given back."""
        pop = _Pop(request.topic, [])
        popping = asyncio.ensure_future(self._pop(request, pop.used))
        self._pops[popping] = pop
        try:
            return await asyncio.shield(popping)
        except asyncio.CancelledError:
            self._abandon(popping, pop)
            if popping.cancelled():  # by `end_pops`: nobody has cancelled the caller
                raise_if_cancelled()
                raise ClosedError("heap client") from None
            raise
        except UnknownTopicError:
            self.places.forget(request.topic)
            raise
        except (NotLeaderError, UnavailableError, OutcomeUnknownError):
            self._failed(request)
            if self._ends:  # its node closed the connection, as it was asked to
                raise ClosedError("heap client") from None
            raise
        finally:
            del self._pops[popping]

    async def end_pops(self) -> None:
        """End all pops; returns when what they got, and nobody received, is given back."""
        self._ends = True
        for popping, pop in self._pops.items():
            self._abandon(popping, pop)
        while self._abandoned:
            await asyncio.wait(self._abandoned)

    async def pause(self, attempt: int) -> None:
        """The pause before another try."""
        await self.clock.sleep_ms(backoff_ms(attempt, base_ms=_RETRY_MS, max_ms=_RETRY_MAX_MS, random=self.random))

    def close(self) -> None:
        """Close every connection."""
        self._closed = True
        self.places.close()
        self._health.close()
        for connection in self.connections:
            connection.close()

    def close_idle(self) -> None:
        """Close connections that something waited on alone, and that nothing has used for a while."""
        now_ms = self.clock.boot_ms()
        for connection in [each for several in self._alone.values() for each in several]:
            if connection.pending:
                self._idle_since.pop(connection, None)
            elif now_ms - self._idle_since.setdefault(connection, now_ms) >= IDLE_MS:
                connection.close()
        self._forget_gone()

    @property
    def connections(self) -> Sequence[HeapConnection]:
        """All that were opened for requests."""
        return (*self._connections.values(), *(each for several in self._alone.values() for each in several))

    def knows(self, address: BrokerAddress) -> bool:
        """Whether requests may go to a node."""
        return address in self._addresses or address in self.places.nodes

    def give_up(self, address: BrokerAddress) -> None:
        """A node does not answer: what waits there has an unknown outcome."""
        self.places.lost(address)
        for connection in self.connections:
            if connection.address == address:
                connection.close()

    async def connect(self, address: BrokerAddress, *, timeout_s: float = _CONNECT_S) -> HeapConnection:
        """A new connection to a node. `UnavailableError`, `ClosedError`."""
        if self._closed:
            raise ClosedError("heap client")
        connection = await open_heap_connection(address, timeout_s=timeout_s, login=self._login)
        if self._closed:  # meanwhile
            connection.close()
            raise ClosedError("heap client")
        return connection

    async def _pop(self, request: PopRequest, used: list[HeapConnection]) -> Any:
        used.append(await self._connection(request))
        return await self._in_time(used[0], request, request.wait_ms + self._timeout_ms)

    def _abandon(self, popping: "asyncio.Task[Any]", pop: "_Pop") -> None:
        if popping.done():
            pop = _Pop(pop.topic, [])  # its connection is free for others
        for connection in pop.used:
            for several in self._alone.values():
                if connection in several:
                    several.remove(connection)
        abandoning = asyncio.ensure_future(self._give_back(popping, pop))
        self._abandoned.add(abandoning)
        abandoning.add_done_callback(self._abandoned.discard)

    async def _give_back(self, popping: "asyncio.Task[Any]", pop: "_Pop") -> None:
        """End a pop that nobody waits for any more. Its node sees that its client is gone, and leases nothing for it."""
        for connection in pop.used:
            connection.end_requests()
            await asyncio.wait((popping,), timeout=_LAST_ANSWER_S)
            connection.close()
        popping.cancel()
        await asyncio.wait((popping,))
        if not popping.cancelled() and popping.exception() is None and (found := popping.result()):
            request = ReleaseRequest(topic=pop.topic, tokens=[each.lease_token for each in found])
            with suppress(HoldfastError):  # what cannot be given back comes back when its lease is over
                await self.call(request, again=True, timeout_ms=_GIVE_BACK_MS)

    async def _ask_places(self, topic: str) -> AnsweredPlaces:
        leaders: list[str] = await self.call(PlacesRequest(topic=topic), again=True)
        if len(leaders) == 1:
            return AnsweredPlaces(leaders, None)
        try:
            return AnsweredPlaces(leaders, await self.call(SpineRequest(topic=topic), again=True))
        except InvalidError:  # a node of an older release
            return AnsweredPlaces(leaders, None)

    def _failed(self, request: HeapRequest) -> None:
        """Places may be others now, unless it was only asked for them: those that are known are as good as before."""
        if not isinstance(request, PlacesRequest | SpineRequest):
            self.places.moved(request.topic)

    async def _in_time(self, connection: HeapConnection, request: HeapRequest, within_ms: float | None) -> Any:
        try:
            async with asyncio.timeout(None if within_ms is None else max(0.0, within_ms) / 1000):
                return await connection.call(request)
        except TimeoutError:
            connection.close()
            self._health.doubt(connection.address)  # one that is frozen takes connections: the next goes elsewhere
            self._failed(request)
            what = f"{type(request).__name__} of {request.topic}"
            raise OutcomeUnknownError(what, f"no answer within {within_ms:.0f} ms") from None

    async def _connection(self, request: HeapRequest) -> HeapConnection:
        """Where to send a request now."""
        place = self.places.of(request)
        if place is not None and self._health.is_shunned(place):
            place = None
        if isinstance(request, _ALONE):
            return await self._idle(place)
        return await self._connected((place, lane_of(request)))

    async def _connected(self, lane: _Lane) -> HeapConnection:
        """The connection of a lane or, if its node cannot be reached from here, that to any other one, which forwards."""
        connection = self._connections.get(lane)
        if connection is not None and connection.is_usable:
            return connection
        address, number = lane
        async with self._opening.setdefault(lane, asyncio.Lock()):
            connection = self._connections.get(lane)
            if connection is None or not connection.is_usable:
                connection = await self._open_if_it_answers(address)
            if connection is not None:
                self._connections[lane] = connection
                self._forget_gone()
                return connection
        return await self._connected((None, number))

    def _forget_gone(self) -> None:
        """Keep nothing of connections that are lost, and of nodes that have left."""
        known = {None, *self._addresses, *self.places.nodes}
        self._connections = {lane: each for lane, each in self._connections.items() if each.lost is None}
        self._opening = {lane: each for lane, each in self._opening.items() if lane[0] in known or each.locked()}
        alone = {at: [each for each in several if each.lost is None] for at, several in self._alone.items()}
        self._alone = {at: several for at, several in alone.items() if several}
        self._idle_since = {each: since_ms for each, since_ms in self._idle_since.items() if each.lost is None}

    async def _idle(self, address: BrokerAddress | None) -> HeapConnection:
        """A connection on which nothing waits, to a node or, if that cannot be reached from here, to any other one."""
        connections = self._alone.get(address, ())
        popped_on = {each for pop in self._pops.values() for each in pop.used}  # which may be about to be closed
        free = (each for each in connections if each not in popped_on and not each.pending and each.is_usable)
        connection = next(free, None)
        if connection is None:
            connection = await self._open_if_it_answers(address)
            if connection is None:
                return await self._idle(None)
            self._alone.setdefault(address, []).append(connection)
            self._forget_gone()
        self._idle_since.pop(connection, None)
        return connection

    async def _open_if_it_answers(self, address: BrokerAddress | None) -> HeapConnection | None:
        """A new connection to a node; None: it does not answer, as others may have found meanwhile. Without an address: to any."""
        if address is None:
            return await self._open_any()
        if self._health.is_shunned(address):
            return None
        try:
            return await self._open(address)
        except LoginRefusedError:
            raise
        except UnavailableError:
            return None

    async def _open_any(self) -> HeapConnection:
        """Of the bootstrap first, those that do not answer last."""
        learned = self.places.nodes.difference(self._addresses)
        known = (*self._addresses, *sorted(each for each in learned if not self._health.is_shunned(each)))
        failure: UnavailableError | None = None
        for address in sorted(known, key=self._health.is_shunned):
            try:
                return await self._open(address)
            except LoginRefusedError:
                raise  # it is the same at every node
            except UnavailableError as error:
                failure = error
        assert failure is not None
        raise failure

    async def _open(self, address: BrokerAddress) -> HeapConnection:
        try:
            connection = await self.connect(address)
        except LoginRefusedError:
            raise
        except UnavailableError:
            self._health.shun(address)
            self.places.lost(address)
            raise
        self._health.watch()
        return connection


def _is_paced(request: HeapRequest) -> bool:
    """Whether it takes the time that its rate gives it."""
    return isinstance(request, DeadLettersRequest) and request.rate_per_s is not None
