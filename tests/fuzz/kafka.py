"""Kafka's frames, changed: `python -m tests.fuzz.kafka --inputs 1000000`.

A real gateway on a real agent, in this process; connections are its own, fed without a socket. The corpus is a request of every API
in every version, and logins of every mechanism. Some inputs come before the login, most from a user with a few permissions, some
from the administrator.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from tests.fuzz.campaign import Target, main
from tests.fuzz.mutations import mutated, random_of
from tests.fuzz.transport import DiscardingTransport
from tests.support.kafka_requests import GROUP, PREFIXES, REQUESTS, TOPIC
from tests.support.kafka_security import ROOT, SecureClient, SecureGateway, allow, secure_gateway
from tests.support.kafka_wire import request_frame
from tests.support.oauth import bearer, unsecured

from holdfast.gateways.kafka.api_table import APIS
from holdfast.gateways.kafka.connection import KafkaConnection
from holdfast.kafka.api_keys import ApiKey
from holdfast.security.acls import Operation, ResourceType
from holdfast.security.bearer_tokens import verifying_tokens
from holdfast.security.oauth_settings import OAuthSettings
from holdfast.security.principals import Principal
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SystemRandom

_LOGINS = (
    *(
        ("PLAIN", b"\0ann\0correct horse"),
        ("SCRAM-SHA-256", b"n,,n=ann,r=abc"),
        ("SCRAM-SHA-512", b"n,a=ann,n=ann,r=abc"),
    ),
    ("OAUTHBEARER", bearer(unsecured({"sub": "ann", "exp": 1 << 33}))),
)
_POLLS_MAX = 200
_SLOW_MAX, _SLOW_MS = 200, 7_000  # creating a topic may take five seconds


def framed(frame: bytes) -> bytes:
    return len(frame).to_bytes(4, "big") + frame


def request_corpus() -> list[bytes]:
    """A request of every API in every version."""
    requests = []
    for each in REQUESTS:
        low, high = APIS[each.key].versions
        for version in range(low, high + 1):
            try:
                frame = request_frame(each.key, version, each.given(), correlation=1, client_id="fuzz")
            except Exception:  # an older version that cannot say this
                continue
            requests.append(framed(frame))
    return requests


def login_corpus() -> list[bytes]:
    """Logins of every mechanism, and what comes before them."""
    logins = [_login(mechanism, data) for mechanism, data in _LOGINS]
    for version in range(5):
        given = {"client_software_name": "fuzz", "client_software_version": "1"}
        logins.append(framed(request_frame(ApiKey.API_VERSIONS, version, given, correlation=1, client_id="fuzz")))
    return logins


def _login(mechanism: str, data: bytes) -> bytes:
    handshake = request_frame(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": mechanism}, correlation=1, client_id="fuzz")
    authenticate = request_frame(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": data}, correlation=2, client_id="fuzz")
    return framed(handshake) + framed(authenticate)


class KafkaTarget:
    """The gateway of one campaign."""

    def __init__(self, secure: SecureGateway, neighbour: SecureClient, requests: list[bytes]) -> None:
        self._secure, self._neighbour = secure, neighbour
        self._requests, self._logins = requests, login_corpus()
        self._slow: list[tuple[int, KafkaConnection, DiscardingTransport]] = []  # and since when

    def input(self, seed: int, number: int) -> bytes:
        random = random_of(seed, number)
        known = self._logins if number % 4 == 0 else self._requests
        data = mutated(random.choice(known), random, known)
        if random.random() < 0.7 and len(data) > 4:  # the length that a client would send with it
            data = framed(data[4:])
        return data + (random.choice(known) if random.random() < 0.1 else b"")

    async def feed(self, inputs: Sequence[bytes], numbers: Sequence[int]) -> None:
        opened = [self._connection(number) for number in numbers]
        for (connection, transport), data in zip(opened, inputs, strict=True):
            _receive(connection, transport, data)
        for _ in range(_POLLS_MAX):
            if not any(connection.busy and not transport.closed for connection, transport in opened):
                break
            await asyncio.sleep(0)  # noqa: TID251 (no time passes)
        now_ms = self._secure.backend.clock.boot_ms()
        self._slow += [(now_ms, *each) for each in opened if not _finish(*each)]
        await self._wait_for_slow()

    async def _wait_for_slow(self) -> None:
        """Some requests wait for a while by design, for a new topic's leaders, say: the next inputs need not."""
        clock = self._secure.backend.clock
        while True:
            self._slow = [each for each in self._slow if not _finish(*each[1:])]
            oldest_ms = min((since_ms for since_ms, _, _ in self._slow), default=clock.boot_ms())
            if len(self._slow) < _SLOW_MAX and clock.boot_ms() - oldest_ms < _SLOW_MS:
                return
            await clock.sleep_ms(5)

    def _connection(self, number: int) -> tuple[KafkaConnection, DiscardingTransport]:
        connection = KafkaConnection(self._secure.gateway.server)
        transport = DiscardingTransport(connection)
        connection.connection_made(cast(asyncio.BaseTransport, transport))
        access = connection._access
        if number % 4 and access is not None:
            access.login.principal = ROOT if number % 16 == 1 else Principal("ann")
            connection._request_bytes_max = self._secure.backend.settings.request_bytes_max
        return connection, transport

    async def neighbour_is_served(self) -> bool:
        answer = await self._neighbour.ask("Metadata", topics=[{"name": TOPIC, "topic_id": None}])
        return [each.name for each in answer.topics] == [TOPIC]


def _finish(connection: KafkaConnection, transport: DiscardingTransport) -> bool:
    """Close a connection whose requests are handled; whether it is."""
    if not transport.closed:
        if connection.busy:
            return False
        transport.closed = True
        connection.connection_lost(None)
    return True


def _receive(connection: KafkaConnection, transport: DiscardingTransport, data: bytes) -> None:
    """As an event loop does: into the connection's own buffer, in pieces as large as that."""
    at = 0
    while at < len(data) and not transport.closed:
        buffer = connection.get_buffer(-1)
        size = min(len(buffer), len(data) - at)
        buffer[:size] = data[at : at + size]
        connection.buffer_updated(size)
        at += size


@asynccontextmanager
async def fuzzed_gateway(folder: Path) -> AsyncIterator[tuple[SecureGateway, SecureClient]]:
    """A gateway with two users and a topic, and the neighbour."""
    settings: dict[str, Any] = {
        "sasl": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "fetch_wait_max_ms": 1,
        "leave_answer_ms": 1,
        "produce_timeout_max_ms": 100,
        "lookup_ms": 100,
        "connections_max": 1_000,
    }
    oauth, clock, random = OAuthSettings(unsecured=True), RealClock(), SystemRandom()
    async with (
        secure_gateway(folder, topics={TOPIC: 2}, **settings) as secure,
        verifying_tokens(oauth, clock=clock, random=random) as tokens,
    ):
        secure.security.tokens = tokens
        await secure.create_user("ann")
        granted = [
            *((Operation.READ, ResourceType.TOPIC), (Operation.WRITE, ResourceType.TOPIC)),
            *((Operation.ALL, ResourceType.GROUP), (Operation.DESCRIBE, ResourceType.CLUSTER)),
        ]
        names = {ResourceType.TOPIC: TOPIC, ResourceType.GROUP: GROUP}
        await secure.set_acls(
            allow("ann", operation, kind, names[kind], prefixed=True)
            if kind in PREFIXES
            else allow("ann", operation, kind)
            for operation, kind in granted
        )
        yield secure, await secure.logged_in(ROOT.name)


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[Target]:
    """Requests of Kafka's clients."""
    async with fuzzed_gateway(folder) as (secure, neighbour):
        yield KafkaTarget(secure, neighbour, request_corpus())


if __name__ == "__main__":
    sys.exit(main("kafka", opened))
