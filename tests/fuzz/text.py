"""Frames of the text protocol, changed: `python -m tests.fuzz.text --inputs 300000`.

A real node with security, in this process; connections are its own, fed without a socket. Some clients have not logged in, most are
a user with a few permissions, some another node, which may forward.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

from tests.fuzz.campaign import Target, main
from tests.fuzz.mutations import mutated, random_of
from tests.fuzz.transport import DiscardingTransport
from tests.support.secured_server import allowed
from tests.support.secured_text import SecuredText, secured_text
from tests.support.text import TextClient

from holdfast.gateways.text.connection import TextConnection
from holdfast.gateways.text.frames import encode_frames
from holdfast.gateways.text.records import encode_payloads
from holdfast.gateways.text.settings import TextSettings
from holdfast.security.acls import Operation, ResourceType
from holdfast.security.cluster_secret import NODE
from holdfast.security.identity import Identity
from holdfast.security.principals import Principal

TOPIC = "logs"
REQUESTS = (
    *(b"REGISTER logs", b"PUT logs x", b"PUT other y", b"PUT logs " + b"x" * 300, b"GET logs", b"GET other"),
    *(b"FETCH logs 0 0", b"FETCH logs 0 0 5", b"FETCH logs 1 99 5", b"STATE logs", b"STATE other", b"METRICS"),
    *(b"AUTH hf_0123456789ab_" + b"0" * 40, b"AUTH node:" + b"0" * 64, b"AUTH"),
    *(b"VIA 1 PUT logs x", b"VIA 1 PUTS logs " + encode_payloads([b"a", b"bc"]), b"VIA 1 GET logs"),
    *(b"VIA 1 READ logs 0 0 1000", b"VIA 1 TAKE logs 3", b"VIA 1 SETTLE 1 1", b"VIA 2 VIA 1 PUT logs x"),
)
_POLLS_MAX = 200
_SLOW_MAX, _SLOW_MS = 200, 7_000


class TextTarget:
    """The node of one campaign."""

    def __init__(self, secured: SecuredText, neighbour: TextClient) -> None:
        self._server, self._neighbour = secured.cluster.text["ann"].server, neighbour
        self._corpus = [encode_frames([each]) for each in REQUESTS]
        self._corpus.append(encode_frames([b"PUT logs a", b"PUT logs b", b"GET logs", b"GET logs"]))
        self._slow: list[tuple[int, TextConnection, DiscardingTransport]] = []

    def input(self, seed: int, number: int) -> bytes:
        random = random_of(seed, number)
        data = mutated(random.choice(self._corpus), random, self._corpus)
        if random.random() < 0.7 and len(data) > 4:  # the length that a client would send with it
            data = encode_frames([data[4:]])
        return data + (random.choice(self._corpus) if random.random() < 0.1 else b"")

    async def feed(self, inputs: Sequence[bytes], numbers: Sequence[int]) -> None:
        opened = [self._connection(number) for number in numbers]
        for (connection, transport), data in zip(opened, inputs, strict=True):
            if not transport.closed:
                connection.data_received(data)
        for _ in range(_POLLS_MAX):
            if not any(connection.busy and not transport.closed for connection, transport in opened):
                break
            await asyncio.sleep(0)  # noqa: TID251 (no time passes)
        clock = self._server.backend.clock
        now_ms = clock.boot_ms()
        self._slow += [(now_ms, *each) for each in opened]
        while True:
            self._slow = [each for each in self._slow if not _finish(*each[1:])]
            oldest_ms = min((since_ms for since_ms, _, _ in self._slow), default=clock.boot_ms())
            if len(self._slow) < _SLOW_MAX and clock.boot_ms() - oldest_ms < _SLOW_MS:
                return
            await clock.sleep_ms(5)

    def _connection(self, number: int) -> tuple[TextConnection, DiscardingTransport]:
        connection = TextConnection(self._server)
        transport = DiscardingTransport(connection)
        connection.connection_made(cast(asyncio.BaseTransport, transport))
        login = connection._login
        if number % 8 and login is not None:
            principal = NODE if number % 4 == 1 else Principal("ann")
            login._identity = Identity(principal=principal, host="127.0.0.1", method="fuzz")
        return connection, transport

    async def neighbour_is_served(self) -> bool:
        return (await self._neighbour.one(f"STATE {TOPIC}")).startswith(b"{")


def _finish(connection: TextConnection, transport: DiscardingTransport) -> bool:
    """Close a connection whose requests are handled; whether it is. What a node has taken, it may keep."""
    if not transport.closed:
        if connection._queue or connection._serving:
            return False
        transport.closed = True
        connection.connection_lost(None)
    return True


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[Target]:
    """A node with a topic, and two users."""
    async with secured_text(folder, settings=TextSettings(request_ms=1_000, connections_max=1_000)) as secured:
        everything = ((Operation.ALL, ResourceType.TOPIC), (Operation.ALL, ResourceType.CLUSTER))
        may = ((Operation.READ, ResourceType.TOPIC), (Operation.WRITE, ResourceType.TOPIC))
        await secured.acls(*allowed("root", *everything), *allowed("ann", *may))
        root = await secured.key("root")
        async with secured.client() as neighbour:
            assert await neighbour.one(f"AUTH {root}") == b"OK"
            assert await neighbour.one(f"REGISTER {TOPIC}") == b"OK"
            yield TextTarget(secured, neighbour)


if __name__ == "__main__":
    sys.exit(main("text", opened))
