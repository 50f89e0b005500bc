"""`holdfast store members|add|remove|defragment|backup|restore`, on real etcd servers and SQLite files."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.support.command_line import Run
from tests.support.command_line import run as run
from tests.support.store_engines.etcd import EtcdServer, cluster, program

from holdfast.app.config import ServeSettings
from holdfast.app.config.etcd_member import EtcdMemberSettings
from holdfast.app.embedded_etcd.member import running_member
from holdfast.app.embedded_etcd.place import member_place, opened_store_url
from holdfast.app.etcd_cluster import etcd_cluster
from holdfast.app.store_backup import back_up
from holdfast.app.store_restore import restore
from holdfast.contracts.store import Committed, Entry, Put, Store
from holdfast.stores.etcd.maintenance import check_snapshot
from holdfast.stores.urls import open_store
from holdfast.testing.server_process import free_port
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import CorruptError, InvalidError, OutcomeUnknownError, UnavailableError
from holdfast.vocabulary.random import SystemRandom

CLOCK, RANDOM = RealClock(), SystemRandom()
KIB = 1024


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    with EtcdServer(tmp_path_factory.mktemp("etcd")).running() as running:
        yield running


def at(server: EtcdServer, **options: object) -> str:
    given = "&".join(f"{name}={value}" for name, value in options.items())
    return f"etcd://127.0.0.1:{server.port}/{RANDOM.token()}" + (f"?{given}" if given else "")


def quiet(_: int, __: int) -> None:
    """Progress that nobody watches."""


async def put(store: Store, key: str, value: bytes = b"1") -> Committed:
    outcome = await store.commit(apply=[Put(key, value)])
    assert isinstance(outcome, Committed)
    return outcome


async def put_until_refused(store: Store, value: bytes) -> None:
    """etcd notices that its database has grown only when it writes a batch of it."""
    while True:
        await put(store, "large", value)


def test_members_are_listed_with_what_each_says_of_itself(run: Run, server: EtcdServer) -> None:
    listed = run("store", "members", "--store", at(server), "--json")
    assert listed.code == 0, listed.err
    (row,) = listed.rows
    assert (row["name"], row["state"], row["problems"]) == ("one", "leader", [])
    assert row["client"] == f"127.0.0.1:{server.port}"
    assert row["bytes"] > 0


def test_other_stores_have_no_members(run: Run, tmp_path: Path) -> None:
    refused = run("store", "members", "--store", f"sqlite:///{tmp_path}/x.db")
    assert refused.code == 2
    assert "has no members" in refused.err


def test_a_learner_is_added_once_shown_and_removed(run: Run, tmp_path: Path) -> None:
    with EtcdServer(tmp_path).running() as own:
        peer = f"127.0.0.1:{free_port()}"
        added = [run("store", "add", peer, "--store", at(own), "--json") for _ in range(2)]
        assert [each.code for each in added] == [0, 0], added[0].err
        assert added[0].rows[0]["id"] == added[1].rows[0]["id"]
        listed = run("store", "members", "--store", at(own), "--json")
        assert listed.code == 1
        assert {(row["name"], row["state"]) for row in listed.rows} == {("one", "leader"), ("", "not started")}
        unknown = run("store", "remove", "nobody", "--yes", "--store", at(own))
        assert unknown.code == 2
        assert "one (" in unknown.err
        removed = run("store", "remove", added[0].rows[0]["id"], "--yes", "--store", at(own), "--json")
        assert removed.rows[0]["removed"]
        assert len(run("store", "members", "--store", at(own), "--json").rows) == 1


@pytest.mark.long
async def test_a_member_that_the_majority_needs_is_not_removed(tmp_path: Path) -> None:
    with cluster(tmp_path, members=2) as servers:
        servers[1].kill()
        async with etcd_cluster(at(servers[0], timeout_ms=2_000), clock=CLOCK, random=RANDOM) as members:
            with pytest.raises(UnavailableError):
                await members.remove(await members.find("member-0"))


async def test_a_full_store_says_so_and_is_written_again_once_it_is_defragmented(run: Run, tmp_path: Path) -> None:
    with EtcdServer(tmp_path, options=("--quota-backend-bytes=3000000",)).running() as full:
        url = at(full)
        async with open_store(url, clock=CLOCK, random=RANDOM) as store:
            value = b'"' + b"x" * (200 * KIB) + b'"'
            with pytest.raises(OutcomeUnknownError, match="space exceeded"):
                await put_until_refused(store, value)
            with pytest.raises(UnavailableError, match="holdfast store defragment"):
                await store.open_session(10_000)
            async with etcd_cluster(url, clock=CLOCK, random=RANDOM) as members:
                (row,) = await members.members()
                assert any("NOSPACE" in problem for problem in row.problems)
                assert await members.defragment(lambda _, __: None) == 1
            await put(store, "large", value)


async def test_a_snapshot_is_checked_and_restored_as_a_cluster_of_its_own(server: EtcdServer, tmp_path: Path) -> None:
    url = at(server)
    prefix = url.rpartition("/")[2]
    async with open_store(url, clock=CLOCK, random=RANDOM) as store:
        kept = await put(store, "kept")
        report = await back_up(url, tmp_path / "backup", quiet, clock=CLOCK, random=RANDOM)
        await put(store, "later")
    assert report.engine == "etcd"
    assert report.sha256 == check_snapshot(tmp_path / "backup")
    with pytest.raises(InvalidError, match="does not exist yet"):
        await back_up(url, tmp_path / "backup", quiet, clock=CLOCK, random=RANDOM)
    settings = ServeSettings(
        data=tmp_path / "data",
        store=f"etcd:embedded?unsafe=1&prefix={prefix}",
        objects="memory:",
        etcd=EtcdMemberSettings(
            name="restored",
            program=str(program()),
            peer_listen=f"127.0.0.1:{free_port()}",
            client_listen=f"127.0.0.1:{free_port()}",
        ),
    )
    restored = await restore(settings, tmp_path / "backup", random=RANDOM)
    assert restored.store == "etcd:embedded"
    with pytest.raises(InvalidError, match="new or empty"):
        await restore(settings, tmp_path / "backup", random=RANDOM)
    async with (
        running_member(member_place(settings, "unused"), clock=CLOCK, random=RANDOM),
        open_store(opened_store_url(settings), clock=CLOCK, random=RANDOM) as again,
        open_store(url, clock=CLOCK, random=RANDOM) as old,
    ):
        assert await again.get("kept") == Entry("kept", b"1", kept.version)
        assert await again.get("later") is None
        assert again.facts.incarnation.partition(".")[0] != old.facts.incarnation.partition(".")[0]


def test_a_snapshot_that_was_cut_off_or_changed_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "snapshot"
    path.write_bytes(b"\0" * 700)
    with pytest.raises(CorruptError, match="cut off"):
        check_snapshot(path)
    path.write_bytes(b"\0" * (512 + 32))
    with pytest.raises(CorruptError, match="SHA-256"):
        check_snapshot(path)


async def test_an_sqlite_store_is_copied_while_it_is_written_and_restored(run: Run, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    async with open_store(url, clock=CLOCK, random=RANDOM) as store:
        await put(store, "kept")
        report = await back_up(url, tmp_path / "backup", quiet, clock=CLOCK, random=RANDOM)
        await put(store, "later")
    assert report.engine == "sqlite"
    settings = ServeSettings(data=tmp_path / "data", store="unused:", objects="memory:")
    restored = await restore(settings, tmp_path / "backup", random=RANDOM)
    async with open_store(restored.store, clock=CLOCK, random=RANDOM) as again:
        kept = await again.get("kept")
        assert kept is not None
        assert kept.value == b"1"
        assert await again.get("later") is None
    with closing(sqlite3.connect(tmp_path / "data" / "store.db")) as opened:
        assert opened.execute("PRAGMA integrity_check").fetchone()[0] == "ok"


def test_what_has_means_of_its_own_is_refused_with_them(run: Run, tmp_path: Path) -> None:
    refused = run("store", "backup", str(tmp_path / "b"), "--store", "postgresql://me:secret@db/holdfast")
    assert refused.code == 2
    assert "pg_dump" in refused.err
    assert "secret" not in refused.err
    assert run("store", "backup", str(tmp_path / "b"), "--store", "redis://db").code == 2


async def test_a_damaged_database_is_not_restored(tmp_path: Path) -> None:
    file = tmp_path / "backup"
    file.write_bytes(b"SQLite format 3\0" + b"\xff" * 5_000)
    settings = ServeSettings(data=tmp_path / "data", store="unused:", objects="memory:")
    with pytest.raises(CorruptError):
        await restore(settings, file, random=RANDOM)
