"""Which nodes a client does without for now: they cannot be reached from here, or keep connections and answer nothing.

The rules: no request waits for such a node. It is tried again in the background, and used again as soon as it answers. A node at
which a request waits is asked now and then whether it is there, on a connection of its own: one that is frozen is given up long
before the time of a pop is over, one that is only slow is not. Silence is measured in parts: while this process was held up itself,
no node was silent.
"""

import asyncio
from collections.abc import Iterable
from typing import Final, Protocol

from holdfast.client.addresses import BrokerAddress
from holdfast.client.broker_login import LoginRefusedError
from holdfast.client.heap_connection import HeapConnection
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import HoldfastError
from holdfast.vocabulary.tasks import Notify, gather_or_cancel

SHUNNED_MS: Final = 1_000  # after which a node is tried again; the pause doubles
SHUNNED_MAX_MS: Final = 30_000
CHECK_MS: Final = 1_500  # between two looks at what waits
ANSWER_MS: Final = 1_000  # a part of the time in which a node answers
ANSWER_PARTS: Final = 4
_CONNECT_S: Final = 30.0  # silence is over before


class Nodes(Protocol):
    """The nodes that a client knows, and its connections to them."""

    @property
    def connections(self) -> Iterable[HeapConnection]: ...

    def knows(self, address: BrokerAddress) -> bool: ...

    def give_up(self, address: BrokerAddress) -> None:
        """Close the connections to a node."""

    def close_idle(self) -> None:
        """Close connections that nothing has used for a while."""

    async def connect(self, address: BrokerAddress, *, timeout_s: float) -> HeapConnection:
        """A connection. `UnavailableError`."""
        ...


class NodeHealth:
    """Which nodes of one client answer."""

    def __init__(self, nodes: Nodes, clock: Clock) -> None:
        self._nodes, self._clock = nodes, clock
        self._shunned: dict[BrokerAddress, asyncio.Task[None]] = {}
        self._pings: dict[BrokerAddress, HeapConnection] = {}
        self._asking: dict[BrokerAddress, asyncio.Lock] = {}
        self._refused: set[BrokerAddress] = set()
        self._watching: asyncio.Task[None] | None = None
        self._closed = False

    def is_shunned(self, address: BrokerAddress) -> bool:
        """Whether requests go elsewhere for now."""
        return address in self._shunned

    def shun(self, address: BrokerAddress) -> None:
        """Do without a node until it answers."""
        self._shun(address, SHUNNED_MS)

    def doubt(self, address: BrokerAddress) -> None:
        """A request took too long: do without its node until it answers, which is asked at once."""
        self._shun(address, 0)

    def _shun(self, address: BrokerAddress, after_ms: int) -> None:
        if address not in self._shunned and not self._closed:
            self._shunned[address] = asyncio.ensure_future(self._until_it_answers(address, after_ms))

    def watch(self) -> None:
        """Check nodes at which requests wait, from now on."""
        if self._watching is None and not self._closed:
            self._watching = asyncio.ensure_future(self._watch())

    def close(self) -> None:
        """Ask no more."""
        self._closed = True
        for task in (*self._shunned.values(), *([self._watching] if self._watching else [])):
            task.cancel()
        for connection in self._pings.values():
            connection.close()

    async def _until_it_answers(self, address: BrokerAddress, after_ms: int) -> None:
        pause_ms = after_ms
        try:
            if pause_ms:
                await self._clock.sleep_ms(pause_ms)
            while self._nodes.knows(address) and not await self._answers(address):
                pause_ms = min(2 * pause_ms or SHUNNED_MS, SHUNNED_MAX_MS)
                await self._clock.sleep_ms(pause_ms)
        finally:
            del self._shunned[address]

    async def _watch(self) -> None:
        oldest: dict[HeapConnection, int] = {}
        while True:
            await self._clock.sleep_ms(CHECK_MS)
            before, oldest = oldest, {each: each.oldest for each in self._nodes.connections if each.oldest is not None}
            waits_at = {each.address for each, number in oldest.items() if before.get(each) == number}
            await gather_or_cancel(*map(self._check, waits_at))
            self._nodes.close_idle()
            self._forget_gone()

    def _forget_gone(self) -> None:
        """Keep nothing of nodes that have left."""
        for address in [each for each, asking in self._asking.items() if not asking.locked()]:
            if not self._nodes.knows(address):
                del self._asking[address]
                self._refused.discard(address)
                if (connection := self._pings.pop(address, None)) is not None:
                    connection.close()

    async def _check(self, address: BrokerAddress) -> None:
        if await self._answers(address) is None:
            self.shun(address)
            self._nodes.give_up(address)

    async def _answers(self, address: BrokerAddress) -> bool | None:
        """Whether a node answers; None: it is silent. One that refuses the login answers."""
        async with self._asking.setdefault(address, asyncio.Lock()):
            asking, answered = asyncio.ensure_future(self._ping(address)), Notify()
            asking.add_done_callback(lambda _: answered.notify())
            try:
                for _ in range(ANSWER_PARTS):
                    await answered.wait_ms(self._clock, ANSWER_MS)
                    if asking.done():
                        return asking.result()
            finally:
                asking.cancel()
            if (silent := self._pings.pop(address, None)) is not None:
                silent.close()
            return None

    async def _ping(self, address: BrokerAddress) -> bool:
        if address in self._refused:  # each try counts against its user
            return True
        try:
            connection = self._pings.get(address)
            if connection is None or connection.lost is not None:
                connection = self._pings[address] = await self._nodes.connect(address, timeout_s=_CONNECT_S)
            await connection.ping()
        except LoginRefusedError:
            self._refused.add(address)
        except HoldfastError:
            return False
        return True
