"""etcd as it is run: several members, TLS, users."""

import asyncio
import subprocess
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path

import pytest
from tests.support.certificates import certificate
from tests.support.store_engines.etcd import EtcdServer, cluster, program

from holdfast.contracts.commits import commit_resolved
from holdfast.contracts.store import Absent, Committed, Entry, Put, Store
from holdfast.stores.etcd import EtcdAddress, EtcdSettings, EtcdStore
from holdfast.stores.urls import open_store
from holdfast.testing.store_contract.suite import ContractSuite, head, put
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import InvalidError, UnavailableError
from holdfast.vocabulary.random import SystemRandom

CLOCK, RANDOM = RealClock(), SystemRandom()


def opening(*servers: EtcdServer, **settings: int) -> AbstractAsyncContextManager[EtcdStore]:
    address = EtcdAddress(endpoints=tuple(f"127.0.0.1:{server.port}" for server in servers), prefix=RANDOM.token())
    return EtcdStore.open(address, settings=EtcdSettings(**settings), clock=CLOCK, random=RANDOM)


async def commit(store: Store, key: str) -> Committed:
    outcome = await commit_resolved(
        store, clock=CLOCK, random=RANDOM, require=[Absent(key)], apply=[Put(key, b"1")], within_ms=30_000
    )
    assert isinstance(outcome, Committed)
    return outcome


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[EtcdServer]]:
    with cluster(tmp_path_factory.mktemp("etcd-cluster"), members=3) as running:
        yield running


class TestCluster(ContractSuite):
    async def test_facts_count_the_members(self, servers: list[EtcdServer]) -> None:
        async with opening(*servers) as store:
            assert "3 members" in store.facts.server
            assert "2 of 3" in store.facts.durability
            assert not any("single member" in note for note in store.facts.notes)

    async def test_an_unreachable_member_is_noted_and_not_needed(self, servers: list[EtcdServer]) -> None:
        servers[0].kill()
        try:
            async with opening(*servers) as store:
                assert any(f"127.0.0.1:{servers[0].port}" in note for note in store.facts.notes)
                await commit(store, "without-the-first")
        finally:
            await asyncio.to_thread(servers[0].start)

    async def test_commits_sessions_and_watches_continue_when_any_member_is_killed(
        self, servers: list[EtcdServer]
    ) -> None:
        async with opening(*servers) as store:
            session = await store.open_session(30_000)
            held = await put(store, "held", session=session.id)
            async with self.watching(store, "go-on/", from_version=await head(store)) as follower:
                versions = [(await commit(store, "go-on/first")).version]
                for server in servers:  # one of them is in use, and one of them leads
                    server.kill()
                    try:
                        for n in range(10):
                            versions.append((await commit(store, f"go-on/{server.member}/{n}")).version)
                        await follower.reached(versions[-1])
                    finally:
                        await asyncio.to_thread(server.start)
                assert follower.versions == versions == sorted(set(versions))
            assert await store.keep_alive(session.id)
            assert await store.get("held") == Entry("held", b"0", held, session.id)
            await store.close_session(session.id)

    async def test_a_frozen_member_is_replaced_by_another(self, servers: list[EtcdServer]) -> None:
        async with opening(*servers, timeout_ms=6_000) as store:
            version = await put(store, "a")
            session = await store.open_session(30_000)
            await asyncio.to_thread(servers[0].freeze)
            try:
                assert await store.get("a") == Entry("a", b"0", version)
                assert await store.keep_alive(session.id)
                await commit(store, "b")
            finally:
                await asyncio.to_thread(servers[0].thaw)
            await store.close_session(session.id)

    async def test_without_a_majority_nothing_is_acknowledged_and_afterwards_the_store_recovers(
        self, servers: list[EtcdServer]
    ) -> None:
        async with opening(*servers) as store:
            version = await put(store, "kept")
            for server in servers[1:]:
                server.kill()
            try:
                with pytest.raises(UnavailableError):
                    await store.get("kept")
            finally:
                await asyncio.gather(*(asyncio.to_thread(server.start) for server in servers[1:]))

            async def is_back() -> bool:
                return await store.get("kept") == Entry("kept", b"0", version)

            await self.wait_until(is_back, "a cluster with its majority back is used again")
            assert (await commit(store, "again")).version > version

    async def test_endpoints_of_two_clusters_are_refused(self, servers: list[EtcdServer], tmp_path: Path) -> None:
        with EtcdServer(tmp_path).running() as stranger, pytest.raises(InvalidError, match="one cluster"):
            async with opening(servers[0], stranger):
                pass


async def test_tls_proves_the_server_to_the_client_and_the_client_to_the_server(tmp_path: Path) -> None:
    server_cert, server_key = certificate(tmp_path, "server")
    client_cert, client_key = certificate(tmp_path, "client")
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(client_cert.read_bytes() + server_cert.read_bytes())
    options = (
        f"--cert-file={server_cert}",
        f"--key-file={server_key}",
        "--client-cert-auth",
        f"--trusted-ca-file={trusted}",
    )
    with EtcdServer(tmp_path, tls=True, options=options).running() as server:
        at = f"127.0.0.1:{server.port}/tls"
        known = f"etcds://{at}?ca={server_cert}&cert={client_cert}&key={client_key}"
        async with open_store(known, clock=CLOCK, random=RANDOM) as store:
            version = await put(store, "secret")
            assert await store.get("secret") == Entry("secret", b"0", version)
        for stranger in (
            f"etcds://{at}?ca={server_cert}&timeout_ms=600",
            f"etcds://{at}?ca={client_cert}&cert={client_cert}&key={client_key}&timeout_ms=600",
            f"etcd://{at}?timeout_ms=600",
        ):
            with pytest.raises(UnavailableError):
                async with open_store(stranger, clock=CLOCK, random=RANDOM):
                    pass


@contextmanager
def with_users(directory: Path) -> Iterator[EtcdServer]:
    """A server that lets in root, and ann, who may use team/."""
    with EtcdServer(directory, options=("--bcrypt-cost=4",)).running() as server:
        for words in (
            "user add root:top",
            "user grant-role root root",
            "user add ann:s@fe/1",
            "role add team",
            "role grant-permission team --prefix=true readwrite team/",
            "user grant-role ann team",
            "auth enable",
        ):
            etcdctl(server, *words.split())
        yield server


def etcdctl(server: EtcdServer, *words: str, typed: str = "") -> None:
    argv = [str(program("etcdctl")), "--endpoints", f"127.0.0.1:{server.port}", *words]
    subprocess.run(argv, check=True, capture_output=True, text=True, input=typed)


async def test_a_user_gets_what_is_below_the_prefix_and_logs_in_again_when_the_login_expires(tmp_path: Path) -> None:
    with with_users(tmp_path) as server:
        url = f"etcd://ann:s%40fe%2F1@127.0.0.1:{server.port}"
        async with open_store(f"{url}/team", clock=CLOCK, random=RANDOM) as store:
            version = await put(store, "a")
            session = await store.open_session(60_000)
            # A changed password ends all logins, even if it is the same one again.
            await asyncio.to_thread(
                etcdctl, server, "--user=root:top", "user", "passwd", "ann", "--interactive=false", typed="s@fe/1"
            )
            async with store.watch("", from_version=version) as changes:
                later = await put(store, "b", session=session.id)
                changed = await anext(changes)
                assert changed.version == later
            assert await store.keep_alive(session.id)
        for refused in (f"{url}/other", f"etcd://ann:wrong@127.0.0.1:{server.port}/team"):
            with pytest.raises(InvalidError, match=r"ann|permission denied"):
                async with open_store(refused, clock=CLOCK, random=RANDOM):
                    pass
        with pytest.raises(InvalidError, match="user name is empty"):
            async with open_store(f"etcd://127.0.0.1:{server.port}/team", clock=CLOCK, random=RANDOM):
                pass
