"""Clients that send a byte now and then, or stop in the middle, at every port of a real server, with TLS and without.

Each connection is closed by its limit, however slowly something comes, and neighbours are served meanwhile.
"""

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import grpc
import httpx
import pytest
from tests.support.certificates import issued_certificate
from tests.support.kafka_security import SecureClient
from tests.support.kafka_wire import WireClient
from tests.support.secured_server import LOGINS, PASSWORD, SecuredServer
from tests.support.server_process import started
from tests.support.text import TextClient
from tests.support.waiting import WAIT_S, until

from holdfast.kafka.error_codes import ErrorCode
from holdfast.testing.server_process import free_port
from holdfast.v1.topic_service_pb2 import ListTopicsRequest
from holdfast.v1.topic_service_pb2_grpc import TopicServiceStub
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.host_port import split_host_port

PORTS: Final = ("kafka", "http", "text", "grpc", "peers")
LIMITS: Final = (
    *("kafka.frame_ms", "kafka.login_ms", "kafka.handshake_ms", "http.head_ms", "http.body_ms"),
    *("text.frame_ms", "text.login_ms", "text.handshake_ms"),
    *("grpc.handshake_ms", "grpc.keepalive_ms", "grpc.keepalive_timeout_ms", "peers.connect_ms"),
)
LIMIT_MS, PACE_MS = 1_500, 100
FRAME = (100).to_bytes(4, "big") + bytes(96)
TEXT_FRAME = (100).to_bytes(4, "little") + b"PUT logs " + b"x" * 87
HEAD = b"GET /live HTTP/1.1\r\nhost: localhost\r\nx: " + b"y" * 1_000
BODY = (
    b"POST /api/v1/login HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 999\r\n\r\n{"
)
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
CLIENT_HELLO = bytes.fromhex("16030102000100") + bytes(500)  # the head of one, and not all of it


@dataclass(frozen=True)
class Slow:
    """`at_once`, then the rest byte by byte, for as long as the server takes it."""

    port: str
    at_once: bytes
    dripped: bytes = b""

    async def until_closed(self, server: SecuredServer, tls: ssl.SSLContext | None = None) -> None:
        reader, writer = await connection(server, self.port, tls)
        await self.send_until_closed(reader, writer)

    async def send_until_closed(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        dripping = asyncio.ensure_future(self._drip(writer))
        try:
            with suppress(ConnectionError, ssl.SSLError):
                while await reader.read(1_000):
                    pass
        finally:
            dripping.cancel()
            with suppress(asyncio.CancelledError):
                await dripping
            writer.transport.abort()

    async def _drip(self, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, ssl.SSLError):
            writer.write(self.at_once)
            for each in self.dripped:
                await RealClock().sleep_ms(PACE_MS)
                writer.write(bytes([each]))
                await writer.drain()


SLOW: Final = {
    "kafka says nothing": Slow("kafka", b""),
    "kafka half a frame": Slow("kafka", FRAME[:20]),
    "kafka byte by byte": Slow("kafka", b"", FRAME),
    "http byte by byte": Slow("http", b"", HEAD),
    "http half a head": Slow("http", HEAD[:20]),
    "http half a body": Slow("http", BODY, b"x" * 900),
    "text says nothing": Slow("text", b""),
    "text half a frame": Slow("text", TEXT_FRAME[:20]),
    "text byte by byte": Slow("text", b"", TEXT_FRAME),
    "grpc says nothing": Slow("grpc", b""),
    "grpc byte by byte": Slow("grpc", b"", PREFACE + bytes(1_000)),
    "grpc half a preface": Slow("grpc", PREFACE[:9]),
    "grpc answers no ping": Slow("grpc", PREFACE + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])),
    "grpc half a frame": Slow("grpc", PREFACE + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0])),
    "peers say nothing": Slow("peers", b""),
    "peers byte by byte": Slow("peers", b"", bytes(1_000)),
}
HANDSHAKES: Final = {
    **{f"{port} no handshake": Slow(port, b"") for port in PORTS},
    **{f"{port} half a hello": Slow(port, CLIENT_HELLO[:100]) for port in PORTS},
    **{f"{port} hello byte by byte": Slow(port, b"", CLIENT_HELLO) for port in PORTS},
}


async def connection(
    server: SecuredServer, port: str, tls: ssl.SSLContext | None = None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    listed = {**json.loads(server.addresses.read_text()), "peers": server.options[server.options.index("--peer") + 1]}
    found = split_host_port(listed[port])
    assert found is not None
    return await asyncio.open_connection(found.host, found.port, ssl=tls)


def options(*more: str) -> tuple[str, ...]:
    listening = (
        "--text",
        "127.0.0.1:0",
        "--grpc",
        "127.0.0.1:0",
        "--peer",
        f"127.0.0.1:{free_port()}",
        "--audit",
        "off",
    )
    limits = (f"{name}={LIMIT_MS}" for name in LIMITS)
    return (
        *LOGINS,
        *listening,
        "--super-users",
        "User:root",
        *(part for each in limits for part in ("--set", each)),
        *more,
    )


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredServer]:
    server = SecuredServer(tmp_path_factory.mktemp("slow"), *options())
    with started(server):
        server.administer(["root"])
        with server.as_user("root") as root:
            until(lambda: root.get("/api/v1/topics").is_success)
        yield server


async def served_meanwhile(attack: Awaitable[object], *neighbours: Callable[[], Awaitable[None]]) -> None:
    """The attack, until its last connection is closed; each neighbour is served while it lasts, again and again."""
    attacking = asyncio.ensure_future(attack)
    rounds = 0
    while not attacking.done() or not rounds:
        for each in neighbours:
            async with asyncio.timeout(WAIT_S):
                await each()
        rounds += 1
        await RealClock().sleep_ms(PACE_MS)
    await attacking


async def test_whoever_is_slow_is_closed_and_holds_up_nobody(plain: SecuredServer) -> None:
    key = await asyncio.to_thread(plain.create_key, "root")
    metadata = {"authorization": f"Bearer {key[1]}"}

    async def over_http() -> None:
        async with httpx.AsyncClient(base_url=plain.http, verify=False, headers=metadata, timeout=WAIT_S) as client:
            assert (await client.get("/api/v1/topics")).status_code == httpx.codes.OK

    async def over_kafka() -> None:
        client = SecureClient(WireClient(*await connection(plain, "kafka")))
        assert await client.log_in("PLAIN", "root") is ErrorCode.NONE
        client.wire.close()

    async def over_text() -> None:
        async with TextClient(plain.text) as client:
            assert await client.one(f"AUTH {key[1]}") == b"OK"

    async def over_grpc() -> None:
        async with grpc.aio.insecure_channel(plain.grpc) as channel:
            await TopicServiceStub(channel).ListTopics(
                ListTopicsRequest(), metadata=tuple(metadata.items()), timeout=WAIT_S
            )

    async def half_a_frame_after_the_login() -> None:
        client = SecureClient(WireClient(*await connection(plain, "kafka")))
        assert await client.log_in("PLAIN", "root", PASSWORD) is ErrorCode.NONE
        await Slow("kafka", FRAME[:6], bytes(90)).send_until_closed(client.wire.reader, client.wire.writer)

    with plain.with_key(key[1]) as root:
        await asyncio.to_thread(until, lambda: root.get("/api/v1/topics").is_success)
    attack = asyncio.gather(
        half_a_frame_after_the_login(), *(each.until_closed(plain) for each in SLOW.values() for _ in range(3))
    )
    await served_meanwhile(attack, over_http, over_kafka, over_text, over_grpc)


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SecuredServer, ssl.SSLContext]]:
    folder = tmp_path_factory.mktemp("slow-tls")
    authority, certificate, key = issued_certificate(folder, "node")
    every = ("--tls-cert", str(certificate), "--tls-key", str(key), "--tls-ca", str(authority))
    tls = (*every, "--set", f"grpc.tls_cert={certificate}", "--set", f"grpc.tls_key={key}")
    server = SecuredServer(folder / "server", *options(*tls))
    context = ssl.create_default_context(cafile=str(authority))
    context.load_cert_chain(certificate, key)
    with started(server):
        yield server, context


async def test_whoever_does_not_finish_the_tls_handshake_is_closed_and_holds_up_nobody(
    encrypted: tuple[SecuredServer, ssl.SSLContext],
) -> None:
    server, context = encrypted

    async def shakes_hands() -> None:
        for port in PORTS:
            _, writer = await connection(server, port, context)
            writer.transport.abort()

    attack = asyncio.gather(*(each.until_closed(server) for each in HANDSHAKES.values() for _ in range(3)))
    await served_meanwhile(attack, shakes_hands)
    # Those who have finished it are limited as they are without TLS.
    slow = [SLOW[name] for name in ("http byte by byte", "kafka half a frame", "text byte by byte")]
    await served_meanwhile(asyncio.gather(*(each.until_closed(server, context) for each in slow)), shakes_hands)
