"""What is special to SQLite: its URL, what it refuses at open, its files, its views, its disk."""

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.store_engines.sqlite import SqliteHarness

from holdfast.contracts.store import Absent, Committed, NotCommitted, Put, Resync, Store
from holdfast.kernel import keys
from holdfast.kernel.lease import Lease, acquire
from holdfast.kernel.planner import encode_placements
from holdfast.kernel.transfer import offer_transfer
from holdfast.registry import keys as registry_keys
from holdfast.registry import records
from holdfast.registry.model import PartitionState
from holdfast.stores.sqlite import SqliteSettings, SqliteStore, host, schema
from holdfast.stores.sqlite.database_files import WriteLock
from holdfast.stores.sqlite.settings import parse_url
from holdfast.stores.urls import open_store, parse_store_url
from holdfast.testing.store_contract.suite import head, put, write
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import CorruptError, InvalidError, OutcomeUnknownError, UnavailableError
from holdfast.vocabulary.random import SystemRandom
from holdfast.vocabulary.types import Member, TopicPartition

CLOCK, RANDOM = RealClock(), SystemRandom()
NFS = "7 1 8:1 / / rw - ext4 /dev/a rw\n8 7 0:5 / /srv/my\\040files rw shared:1 - nfs4 host:/x rw\n"


def opening(
    path: Path, *, kind: type[sqlite3.Connection] = sqlite3.Connection, **settings: Any
) -> AbstractAsyncContextManager[SqliteStore]:
    return SqliteStore.open(
        path, clock=CLOCK, random=RANDOM, settings=SqliteSettings(**settings), connection_class=kind
    )


def opening_url(url: str) -> AbstractAsyncContextManager[Store]:
    return open_store(url, clock=CLOCK, random=RANDOM)


def by_hand(path: Path, *statements: str) -> list[tuple[Any, ...]]:
    """What a person with the sqlite3 shell does; the rows of the last statement."""
    with closing(sqlite3.connect(path, isolation_level=None)) as shell:
        return [shell.execute(statement).fetchall() for statement in statements][-1]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


# The URL


def test_three_slashes_are_a_relative_path_and_four_an_absolute_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse_url(parse_store_url("sqlite:///data/x.db")) == (tmp_path / "data/x.db", SqliteSettings())
    assert parse_url(parse_store_url("sqlite:////var/lib/a%20b.db"))[0] == Path("/var/lib/a b.db")
    assert parse_url(parse_store_url("sqlite:///x.db?timeout_ms=700&unsafe=1"))[1] == SqliteSettings(
        timeout_ms=700, unsafe=True
    )


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:",
        "sqlite://",
        "sqlite:///",
        "sqlite://x.db",
        "sqlite:///:memory:",
        "sqlite:///x.db#y",
        "sqlite:///x%00.db",
        "sqlite:///x.db?timeuot_ms=1",
        "sqlite:///x.db?timeout_ms=soon",
        "sqlite:///x.db?timeout_ms=0",
        "sqlite:///x.db?commit_ids_kept_ms=1000",
        "sqlite:////proc/nowhere/x.db",
        "sqlite:////dev/null/x.db",
    ],
)
async def test_a_url_that_names_no_writable_file_is_refused(url: str) -> None:
    with pytest.raises(InvalidError):
        async with opening_url(url):
            pass


async def test_a_directory_is_refused_and_missing_directories_are_created(tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match="a directory"):
        async with opening(tmp_path):
            pass
    async with opening_url(f"sqlite:///{tmp_path}/a/b/c.db") as store:
        await put(store, "a")
    assert (tmp_path / "a/b/c.db").is_file()


# What is refused at open


def test_the_deepest_mount_point_determines_the_file_system() -> None:
    assert host.file_system(Path("/srv/my files/x/y.db"), NFS) == "nfs4"
    assert host.file_system(Path("/srv/my files2/y.db"), NFS) == "ext4"
    assert host.file_system(Path("/srv/y.db"), NFS + "9 7 0:9 / / rw - overlay none rw\n") == "overlay"
    assert host.file_system(Path("/srv/y.db"), "") is None


async def test_a_network_file_system_is_refused_without_unsafe(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "file_system", lambda _: "nfs4")
    with pytest.raises(InvalidError, match="nfs4 is a network file system"):
        async with opening(path):
            pass
    async with opening(path, unsafe=True) as store:
        assert any("nfs4" in note for note in store.facts.notes)
        await put(store, "a")


class Careless(sqlite3.Connection):
    """Leaves commits in the system's cache, whatever it is asked for."""

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        return super().execute(sql.replace("synchronous = FULL", "synchronous = NORMAL"), parameters)


async def test_settings_that_did_not_take_effect_are_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidError, match="synchronous is not FULL"):
        async with opening(path, kind=Careless):
            pass
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))
    with pytest.raises(InvalidError, match=r"older than 3\.35\.0"):
        async with opening(path):
            pass


async def test_a_newer_schema_and_another_programs_database_are_refused(path: Path, tmp_path: Path) -> None:
    async with opening(path) as store:
        await put(store, "a", 1)
    by_hand(path, "PRAGMA user_version = 99")
    with pytest.raises(InvalidError, match="upgrade"):
        async with opening(path):
            pass
    by_hand(tmp_path / "other.db", "CREATE TABLE recipes (name)")
    with pytest.raises(InvalidError, match="another program"):
        async with opening(tmp_path / "other.db"):
            pass
    (tmp_path / "text.db").write_text("no database, but long enough to be looked at" * 100)
    with pytest.raises(CorruptError):
        async with opening(tmp_path / "text.db"):
            pass
    assert by_hand(tmp_path / "other.db", "SELECT count(*) FROM sqlite_schema") == [(1,)]


# Boots


async def test_sessions_do_not_outlive_a_boot_and_two_boots_cannot_share_a_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opening(path) as before:
        session = await before.open_session(60_000)
        version = await put(before, "held", session=session.id)
        await put(before, "kept")
        monkeypatch.setattr(host, "boot_id", lambda: "another boot")
        async with opening(path) as after:
            assert await after.get("held") is None
            assert await after.get("kept") is not None
            assert not await after.keep_alive(session.id)
            assert await head(after) == version + 2, "the end of a session is a commit"
            async with after.watch("held", from_version=version) as commits:
                await anext(commits)
        with pytest.raises(CorruptError, match="another host"):
            await before.keep_alive(session.id)
        with pytest.raises(CorruptError):
            await before.get("kept")


# The guard


def replaced(path: Path) -> None:
    copy = path.with_suffix(".copy")
    by_hand(path, f"VACUUM INTO '{copy}'")
    copy.rename(path)


def deleted(path: Path) -> None:
    path.unlink()


def made_anew(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        Path(f"{path}{suffix}").unlink()
    by_hand(path, "PRAGMA journal_mode = WAL", "CREATE TABLE t (a)")


def without_log(path: Path) -> None:
    Path(f"{path}-wal").unlink()


def set_back(path: Path) -> None:
    by_hand(path, "DELETE FROM changes WHERE version = (SELECT max(version) FROM changes)")


def another_incarnation(path: Path) -> None:
    by_hand(path, "UPDATE head SET incarnation = 'x'")


def wiped(path: Path) -> None:
    by_hand(path, "DROP TABLE entries")


def beheaded(path: Path) -> None:
    by_hand(path, "DELETE FROM head")


@pytest.mark.parametrize(
    "hurt", [replaced, deleted, made_anew, without_log, set_back, another_incarnation, wiped, beheaded]
)
async def test_a_replaced_or_deleted_file_stops_every_call(path: Path, hurt: Callable[[Path], None]) -> None:
    async with opening(path) as store:
        session = await store.open_session(60_000)
        version = await put(store, "a", 1)
        async with store.watch("", from_version=version) as commits:
            hurt(path)
            with pytest.raises(CorruptError):
                await store.commit(apply=[Put("a", b"2")])
            with pytest.raises(CorruptError):
                await anext(commits)
        with pytest.raises(CorruptError):
            await store.get("a")
        with pytest.raises(CorruptError):
            await store.keep_alive(session.id)


# The disk


class SmallDisk(sqlite3.Connection):
    """A disk on which the database cannot grow while `full`: SQLite's own limit, so that SQLite's own error comes."""

    full = False

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        if sql == "BEGIN IMMEDIATE":
            super().execute(f"PRAGMA max_page_count = {1 if SmallDisk.full else 1_000_000}")
        return super().execute(sql, parameters)


async def test_a_full_disk_fails_commits_and_nothing_else_until_there_is_space(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opening(path, kind=SmallDisk) as store:
        await put(store, "small", 1)
        monkeypatch.setattr(SmallDisk, "full", True)
        for _ in range(2):
            with pytest.raises(UnavailableError, match=r"store\.db is unavailable: .*disk full; free some space"):
                await put(store, "large", "x" * 100_000)
        assert await store.get("large") is None
        assert await store.get("small") is not None
        monkeypatch.setattr(SmallDisk, "full", False)
        await put(store, "large", "x" * 100_000)


class FailingCommit(sqlite3.Connection):
    """COMMIT fails once as a failed fsync would."""

    failing = False

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        if sql == "COMMIT" and FailingCommit.failing:
            FailingCommit.failing = False
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
            raise error
        return super().execute(sql, parameters)


async def test_a_commit_whose_fsync_failed_is_unknown_until_it_is_resolved(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opening(path, kind=FailingCommit) as store:
        await put(store, "a", 1)
        monkeypatch.setattr(FailingCommit, "failing", True)
        with pytest.raises(OutcomeUnknownError) as lost:
            await put(store, "b", 1)
        async with opening(path) as other:
            assert await other.resolve(lost.value.commit_id) == NotCommitted()
        assert await store.resolve(lost.value.commit_id) == NotCommitted()
        assert await store.get("b") is None


class Counting(sqlite3.Connection):
    """Counts transactions, and tries to write as another process would while one is under way."""

    path: Path
    commits = 0
    intruded = False

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        if sql == "COMMIT":
            Counting.commits += 1
            other = WriteLock(self.path)
            Counting.intruded |= other.try_take()
            other.close()
        return super().execute(sql, parameters)


async def test_concurrent_commits_share_transactions_that_no_other_process_can_enter(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Counting, "path", path, raising=False)
    async with opening(path, kind=Counting) as store:
        Counting.commits = 0
        versions = await asyncio.gather(*(put(store, f"k/{n}", n) for n in range(64)))
        assert versions == sorted(versions)
        assert Counting.commits < 8
        assert not Counting.intruded


@pytest.mark.slow
async def test_ids_of_commits_outlive_the_change_log_by_an_hour(tmp_path: Path) -> None:
    harness = SqliteHarness(tmp_path)
    async with harness.client() as store:
        harness.lose_answer_to("lost-key")
        with pytest.raises(OutcomeUnknownError) as lost:
            await put(store, "lost-key", 0)
    async with opening(harness.path, commits_kept=10) as store:
        for n in range(30):
            await put(store, "a", n)
        assert by_hand(harness.path, "SELECT count(*) FROM changes WHERE key = 'lost-key'") == [(0,)]
        assert isinstance(await store.resolve(lost.value.commit_id), Committed)
    long_ago_ms = CLOCK.boot_ms() - 3_600_000 - 1
    by_hand(harness.path, f"UPDATE commits SET at_ms = {long_ago_ms}")
    async with opening(harness.path, commits_kept=1_000) as store:
        await put(store, "a", 0)
        assert by_hand(harness.path, "SELECT count(*) FROM commits") == [(0,)]


async def test_the_change_log_is_pruned_and_a_watcher_too_far_behind_gets_resync(path: Path) -> None:
    async with opening(path, commits_kept=10) as store:
        for n in range(30):
            version = await put(store, "a", n)
        assert by_hand(path, "SELECT count(*) FROM changes")[0][0] in range(10, 13)
        async with store.watch("a", from_version=1) as commits:
            resync = await anext(commits)
            assert isinstance(resync, Resync)
            assert 1 < resync.version <= version
            after = await put(store, "a", 30)
            async for commit in commits:
                if commit.version == after:
                    break


# Waiting for the lock


async def test_a_write_that_cannot_begin_is_not_done_and_reads_still_work(path: Path) -> None:
    async with opening(path) as store:
        await put(store, "a", 1)
        with closing(sqlite3.connect(path, isolation_level=None)) as shell:
            shell.execute("BEGIN IMMEDIATE")
            with pytest.raises(UnavailableError, match=f"write not begun within {SqliteSettings().timeout_ms} ms"):
                await put(store, "b", 1)
            assert await store.get("a") is not None
            shell.execute("ROLLBACK")
        assert isinstance(await store.commit(require=[Absent("b")], apply=[Put("b", b"1")]), Committed)


async def test_a_commit_cancelled_while_it_waits_for_the_lock_is_skipped(path: Path) -> None:
    async with opening(path) as store:
        await put(store, "a", 1)
        other = WriteLock(path)
        assert other.try_take()
        waiting = asyncio.ensure_future(put(store, "cancelled", 1))
        await CLOCK.sleep_ms(50)
        beside_it = asyncio.ensure_future(put(store, "kept", 1))
        waiting.cancel()
        await asyncio.wait([waiting])
        other.close()
        await beside_it
        assert await store.get("cancelled") is None
        await write(store, Put("cancelled", b"2"))


# Views


async def test_sql_views_show_leases_agents_plan_and_registry(path: Path) -> None:
    async with opening(path) as store:
        session = await store.open_session(60_000)
        resource = keys.partition_resource(TopicPartition("a/b", 7))
        lease = await acquire(store, resource, holder="ann", session=session.id, clock=CLOCK, random=RANDOM)
        assert isinstance(lease, Lease)
        assert await offer_transfer(store, lease, target="bob", latest=None, clock=CLOCK, random=RANDOM)
        member = Member(id="ann", session=session.id, address="host:1", zone="z", node=3, started_at_ms=1_500)
        state = PartitionState(id=12, owner="c1", epoch=2, checkpoint=42)
        await write(
            store,
            Put(keys.member_key("agent", "ann"), msgspec.json.encode(member), session.id),
            Put(keys.plan_key("a/b"), encode_placements([("ann", "bob"), ("bob",), ()])),
            Put(registry_keys.partition_key("ns", 12), records.encode_partition(state)),
            Put(registry_keys.consumer_key("ns", "c1"), records.encode_consumer(session.id, 10_000, 0), session.id),
            Put(registry_keys.heartbeat_key("ns", 12), records.encode_heartbeat(session.id, 2, 10_000), session.id),
        )

        def rows(view: str, columns: str) -> list[tuple[Any, ...]]:
            return by_hand(path, f"SELECT {columns} FROM {view}")

        assert rows("partition_leases", "topic, partition, holder, epoch, session") == [
            ("a/b", 7, "ann", 1, session.id)
        ]
        assert rows("agents", 'id, address, zone, "group", node, started_at') == [
            ("ann", "host:1", "z", "default", 3, "1970-01-01 00:00:01.500")
        ]
        assert rows("plan", "topic, partition, owner, replicas") == [
            ("a/b", 0, "ann", '["bob"]'),
            ("a/b", 1, "bob", "[]"),
            ("a/b", 2, None, "[]"),
        ]
        assert rows("transfers", "resource, state, source, target, epoch") == [
            ("partition/a/b/00007", "pending", "ann", "bob", 1)
        ]
        assert rows("registry_partitions", "namespace, partition, owner, checkpoint, epoch") == [
            ("ns", 12, "c1", 42, 2)
        ]
        assert rows("registry_consumers", "namespace, consumer, ttl_ms, session") == [("ns", "c1", 10_000, session.id)]
        assert rows("sessions_live", "id, ttl_ms, keys") == [(session.id, 60_000, 4)]
        assert len(rows("all_keys", "key, value, version, session")) == 8
        await store.close_session(session.id)
        assert rows("partition_leases", "topic, partition, holder, epoch") == [("a/b", 7, None, 1)]


async def test_views_are_recreated_when_their_text_changed_and_users_own_views_stay(path: Path) -> None:
    async with opening(path):
        pass
    by_hand(
        path,
        "CREATE VIEW mine AS SELECT key FROM all_keys",
        "DROP VIEW all_keys",
        "CREATE VIEW all_keys AS SELECT 1",
        "UPDATE head SET views_digest = 'of an older text'",
    )
    async with opening(path) as store:
        await put(store, "a", 1)
    assert by_hand(path, "SELECT key FROM mine") == [("a",)]


def test_a_script_is_split_at_the_ends_of_its_statements() -> None:
    script = "-- about; this\nCREATE TABLE a (\n  b TEXT -- c;\n);\nINSERT INTO a VALUES (';\n');\n"
    with closing(sqlite3.connect(":memory:")) as memory:
        for statement in schema.statements(script):
            memory.execute(statement)
        assert memory.execute("SELECT b FROM a").fetchall() == [(";\n",)]
