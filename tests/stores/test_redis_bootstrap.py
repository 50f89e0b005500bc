"""Opening a Redis store: what is asked of the server, of its URL and of TLS."""

import asyncio
import shutil
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.support.redis_store import opening, put
from tests.support.store_engines.redis import ValkeyServer
from tests.support.waiting import async_until

from holdfast.contracts.store import Entry
from holdfast.stores.urls import open_store
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import InvalidError, UnavailableError
from holdfast.vocabulary.random import SystemRandom


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ValkeyServer]:
    with ValkeyServer(tmp_path).running() as running:
        yield running


@pytest.mark.parametrize(
    ("extra", "reason"),
    [
        (("--appendonly", "no"), "appendonly is no, not yes"),
        (("--appendfsync", "everysec"), "appendfsync is everysec, not always"),
        (("--no-appendfsync-on-rewrite", "yes"), "no-appendfsync-on-rewrite is yes, not no"),
        (
            ("--maxmemory", "1gb", "--maxmemory-policy", "allkeys-lru"),
            "maxmemory-policy is allkeys-lru, not noeviction",
        ),
    ],
)
async def test_a_server_that_may_lose_commits_is_refused_without_unsafe(
    tmp_path: Path, extra: tuple[str, ...], reason: str
) -> None:
    with ValkeyServer(tmp_path, *extra).running() as server:
        with pytest.raises(InvalidError) as refused:
            async with opening(server):
                pass
        assert reason in str(refused.value)
        assert "?unsafe=1" in str(refused.value)
        async with opening(server, "unsafe=1") as store:
            assert any(reason in note for note in store.facts.notes)
            assert store.facts.durability.startswith("unsafe: ")
            assert await put(store, "a") == 1


async def test_a_durable_server_has_no_faults_in_its_facts(server: ValkeyServer) -> None:
    async with opening(server) as store:
        assert store.facts.engine == "redis"
        assert store.facts.server.startswith("Valkey 9")
        assert store.facts.durability == "append-only file, fsync before every reply"
        assert not any("not" in note.split() for note in store.facts.notes)


async def test_an_eviction_policy_without_a_memory_limit_evicts_nothing_and_is_accepted(tmp_path: Path) -> None:
    with ValkeyServer(tmp_path, "--maxmemory-policy", "allkeys-lru").running() as server:
        async with opening(server) as store:
            assert await put(store, "a") == 1


async def test_a_server_with_hidden_settings_is_refused_without_unsafe(
    server: ValkeyServer,
) -> None:
    server.tell("ACL", "SETUSER", "guest", "on", ">secret", "~*", "&*", "+@all", "-config")
    with pytest.raises(InvalidError) as refused:
        async with opening(server, login="guest:secret@"):
            pass
    assert "CONFIG GET" in str(refused.value)
    assert "?unsafe=1" in str(refused.value)
    async with opening(server, "unsafe=1", login="guest:secret@") as store:
        assert "cannot be checked" in store.facts.durability
        assert await put(store, "a") == 1


async def test_a_wrong_password_is_an_input_error(server: ValkeyServer) -> None:
    with pytest.raises(InvalidError, match="user or password"):
        async with opening(server, login="nobody:wrong@"):
            pass


async def test_a_server_too_old_for_the_scripts_is_refused() -> None:
    info = b"# Server\r\nredis_version:6.0.16\r\nrole:master\r\n"

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while word := await reader.readline():
            if word == b"INFO\r\n":
                writer.write(b"$%d\r\n%b\r\n" % (len(info), info))
            elif word in (b"SETINFO\r\n", b"CONFIG\r\n"):
                writer.write(b"-ERR not here\r\n")
        writer.close()

    old = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with old:
        port = old.sockets[0].getsockname()[1]
        with pytest.raises(InvalidError, match=r"Redis 6\.2 or later"):
            async with open_store(f"redis://127.0.0.1:{port}/0?unsafe=1", clock=RealClock(), random=SystemRandom()):
                pass


async def test_replicas_are_noted_and_refused_as_stores(server: ValkeyServer, tmp_path: Path) -> None:
    with ValkeyServer(tmp_path / "replica", "--replicaof", f"127.0.0.1 {server.port}").running() as replica:

        async def follows() -> bool:
            return b"connected_slaves:1" in server.tell("INFO", "replication")

        await async_until(follows)
        async with opening(server) as store:
            assert any("asynchronous replicas: 1" in note for note in store.facts.notes)
        for options in ("", "unsafe=1"):
            with pytest.raises(InvalidError, match=r"role of .* must be a primary"):
                async with opening(replica, options):
                    pass


async def test_tls_is_used_and_the_servers_certificate_is_checked(server: ValkeyServer, tmp_path: Path) -> None:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl, which makes the certificate, is not installed")
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    made = await asyncio.create_subprocess_exec(
        *(openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"),
        *("-addext", "subjectAltName=IP:127.0.0.1", "-out", str(certificate), "-keyout", str(key)),
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert await made.wait() == 0
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    async with ending_tls(server, context) as port:
        url = f"rediss://127.0.0.1:{port}/0"
        async with open_store(f"{url}?ca_file={certificate}", clock=RealClock(), random=SystemRandom()) as store:
            assert await put(store, "a") == 1
            assert await store.get("a") == Entry("a", b"1", 1)
        with pytest.raises(UnavailableError, match="certificate"):
            async with open_store(url, clock=RealClock(), random=SystemRandom()):
                pass


@asynccontextmanager
async def ending_tls(server: ValkeyServer, context: ssl.SSLContext) -> AsyncIterator[int]:
    """The server from a wheel speaks no TLS; this speaks it for it."""
    links: set[asyncio.Task[None] | None] = set()

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(1 << 16):
            writer.write(chunk)

    async def link(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        links.add(asyncio.current_task())
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", server.port)
        pumps = [asyncio.ensure_future(copy(reader, up_writer)), asyncio.ensure_future(copy(up_reader, writer))]
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for each in (writer, up_writer):
            each.transport.abort()
        await asyncio.gather(*pumps, return_exceptions=True)

    async with await asyncio.start_server(link, "127.0.0.1", 0, ssl=context) as listening:
        yield listening.sockets[0].getsockname()[1]
        await asyncio.gather(*(each for each in links if each is not None))


@pytest.mark.parametrize(
    "url",
    [
        "redis://127.0.0.1:1/0?namespce=x",
        "redis://127.0.0.1:1/0?namespace=a{b}",
        "redis://127.0.0.1:1/zero",
        "redis://127.0.0.1:port/0",
        "redis://127.0.0.1:1/0?timeout_ms=soon",
        "redis://127.0.0.1:1/0?timeout_ms=0",
        "redis://127.0.0.1:1/0?outcomes_kept_s=60",
        "redis://127.0.0.1:1/0?ca_file=/etc/ca.pem",
    ],
)
async def test_an_invalid_url_is_refused_before_connecting(url: str) -> None:
    with pytest.raises(InvalidError):
        async with open_store(url, clock=RealClock(), random=SystemRandom()):
            pass
