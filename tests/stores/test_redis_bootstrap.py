"""Opening a Redis store: what is asked of the server, of its URL and of TLS."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.certificates import certificate, issued_certificate
from tests.support.redis_store import opening, put
from tests.support.store_engines.redis import ValkeyServer
from tests.support.tls_proxy import ending_tls, server_context
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
    """The server from a wheel speaks no TLS; a proxy speaks it for it."""
    authority, issued, key = issued_certificate(tmp_path, "node")
    other, _ = certificate(tmp_path, "other")
    async with ending_tls(server.port, server_context(issued, key)) as port:
        url = f"rediss://127.0.0.1:{port}/0"
        async with open_store(f"{url}?ca_file={authority}", clock=RealClock(), random=SystemRandom()) as store:
            assert await put(store, "a") == 1
            assert await store.get("a") == Entry("a", b"1", 1)
        for untrusted in (url, f"{url}?ca_file={other}"):
            with pytest.raises(UnavailableError, match="certificate"):
                async with open_store(untrusted, clock=RealClock(), random=SystemRandom()):
                    pass


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
