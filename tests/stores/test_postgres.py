"""What is special to PostgreSQL: refusals at open, migrations, views, wiped and frozen servers, batches, pruning."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg
import pytest
import pytest_asyncio
from tests.support.store_engines.postgres import PostgresServer, installed

from holdfast.contracts.store import (
    Absent,
    AtVersion,
    Changed,
    Committed,
    Conflict,
    Delete,
    NotCommitted,
    Put,
    Resync,
    Store,
)
from holdfast.kernel.keys import epoch_key, holder_key, member_key, partition_resource, plan_key, transfer_key
from holdfast.kernel.planner import encode_placements
from holdfast.registry import keys as registry_keys
from holdfast.stores.postgres import schema as migrating
from holdfast.stores.postgres.settings import PostgresSettings
from holdfast.stores.urls import open_store
from holdfast.testing.store_contract.suite import brief_session
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import CorruptError, InvalidError, OutcomeUnknownError, UnavailableError
from holdfast.vocabulary.random import SystemRandom
from holdfast.vocabulary.types import TopicPartition

if TYPE_CHECKING:
    Sql = asyncpg.Connection[asyncpg.Record]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    with PostgresServer(tmp_path_factory.mktemp("postgres")).running() as running:
        yield running


@pytest.fixture
def schema() -> str:
    return f"t_{SystemRandom().token()}"


def opening(
    server: PostgresServer, schema: str, more: str = "", user: str = "postgres"
) -> AbstractAsyncContextManager[Store]:
    url = server.url(schema=schema, more=more).replace("postgres@", f"{user}@")
    return open_store(url, clock=RealClock(), random=SystemRandom())


async def open_and_close(server: PostgresServer, schema: str, more: str = "", user: str = "postgres") -> None:
    async with opening(server, schema, more, user):
        pass


@pytest_asyncio.fixture
async def store(server: PostgresServer, schema: str) -> AsyncIterator[Store]:
    async with opening(server, schema) as opened:
        yield opened


@pytest_asyncio.fixture
async def sql(server: PostgresServer, schema: str) -> AsyncIterator["Sql"]:
    """What an operator has: a connection that looks into the store's schema."""
    url = server.url(schema=schema).partition("?")[0]
    connection = await asyncpg.connect(url, ssl=False, server_settings={"search_path": schema})
    yield connection
    await connection.close()


async def put(store: Store, key: str, value: bytes = b"1", session: str | None = None) -> int:
    outcome = await store.commit(apply=[Put(key, value, session)])
    assert isinstance(outcome, Committed)
    return outcome.version


class TestOpening:
    async def test_a_role_that_may_lose_commits_is_refused_without_unsafe(
        self, server: PostgresServer, schema: str, sql: "Sql"
    ) -> None:
        await sql.execute("CREATE ROLE careless SUPERUSER LOGIN; ALTER ROLE careless SET synchronous_commit = 'off'")
        with pytest.raises(InvalidError, match=r"synchronous_commit .* 'off'"):
            await open_and_close(server, schema, user="careless")
        async with opening(server, schema, "&unsafe=1", user="careless") as store:
            assert any("synchronous_commit is off" in note for note in store.facts.notes)
            assert "may be lost" in store.facts.durability

    @pytest.mark.parametrize("setting", ["fsync", "full_page_writes"])
    def test_a_server_that_a_crash_can_destroy_is_refused(self, tmp_path: Path, setting: str) -> None:
        with (
            PostgresServer(tmp_path, options={setting: "off"}).running() as careless,
            pytest.raises(InvalidError, match=f"{setting} of .* 'off'"),
        ):
            asyncio.run(open_and_close(careless, "holdfast"))

    async def test_a_durable_server_is_described_in_the_facts(self, store: Store) -> None:
        assert store.facts.engine == "postgresql"
        assert store.facts.server.startswith("PostgreSQL ")
        assert "flushed to disk" in store.facts.durability
        assert store.facts.notes == ()

    async def test_a_database_with_another_encoding_is_refused(self, server: PostgresServer, sql: "Sql") -> None:
        await sql.execute("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
        url = server.url(schema="holdfast").replace("/postgres?", "/latin?")
        with pytest.raises(InvalidError, match="LATIN1"):
            async with open_store(url, clock=RealClock(), random=SystemRandom()):
                pass

    async def test_a_missing_database_is_an_input_error(self, server: PostgresServer) -> None:
        url = server.url(schema="holdfast").replace("/postgres?", "/nowhere?")
        with pytest.raises(InvalidError, match="nowhere"):
            async with open_store(url, clock=RealClock(), random=SystemRandom()):
                pass

    async def test_an_unreachable_server_is_unavailable_with_a_hint(self) -> None:
        with pytest.raises(UnavailableError, match="check host and port"):
            async with open_store("postgresql://u:secret@127.0.0.1:1/d", clock=RealClock(), random=SystemRandom()):
                pass

    @pytest.mark.parametrize("option", ["schma=x", "schema=No-Good", "schema=pg_x", "timeout_ms=soon", "timeout_ms=1"])
    async def test_a_bad_option_is_refused_before_connecting(self, option: str) -> None:
        with pytest.raises(InvalidError):
            async with open_store(f"postgresql://127.0.0.1:1/d?{option}", clock=RealClock(), random=SystemRandom()):
                pass

    @pytest.mark.parametrize("programs", installed()[:-1], ids=lambda path: path.parent.name)
    def test_an_older_server_is_accepted(self, tmp_path: Path, programs: Path) -> None:
        async def use(server: PostgresServer) -> None:
            async with opening(server, "holdfast") as store:
                version = await put(store, "k")
                session = await store.open_session(60_000)
                assert await store.keep_alive(session.id)
                async with store.watch("", from_version=version) as commits:
                    await put(store, "under", session=session.id)
                    await store.close_session(session.id)
                    assert [(await anext(commits)).version for _ in range(2)] == [version + 1, version + 2]

        with PostgresServer(tmp_path, programs=programs).running() as older:
            asyncio.run(use(older))


class TestSchema:
    async def test_many_processes_that_open_a_new_store_at_once_open_the_same(
        self, server: PostgresServer, schema: str
    ) -> None:
        async def incarnation() -> str:
            async with opening(server, schema) as store:
                return store.facts.incarnation

        assert len(set(await asyncio.gather(*(incarnation() for _ in range(8))))) == 1

    async def test_a_store_of_a_newer_version_is_refused(self, server: PostgresServer, schema: str, sql: "Sql") -> None:
        await open_and_close(server, schema)
        await sql.execute("UPDATE meta SET schema_version = schema_version + 1")
        with pytest.raises(InvalidError, match="newer Holdfast"):
            await open_and_close(server, schema)

    async def test_a_failed_migration_leaves_nothing_behind(
        self, server: PostgresServer, schema: str, sql: "Sql", monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(migrating, "migrations", lambda: ("CREATE TABLE {schema}.half (); SELECT 1 / 0",))
        with pytest.raises(UnavailableError, match="division by zero"):
            await open_and_close(server, schema)
        assert not await sql.fetchval("SELECT count(*) FROM pg_namespace WHERE nspname = $1", schema)

    async def test_the_next_migration_is_applied_once(
        self, server: PostgresServer, schema: str, sql: "Sql", monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with opening(server, schema) as store:
            incarnation = store.facts.incarnation
        both = (*migrating.migrations(), "CREATE TABLE {schema}.second ()")
        monkeypatch.setattr(migrating, "migrations", lambda: both)
        await asyncio.gather(*(open_and_close(server, schema) for _ in range(4)))
        assert await sql.fetchval("SELECT schema_version FROM meta") == 2
        assert await sql.fetchval("SELECT incarnation FROM head") == incarnation

    async def test_a_user_without_create_privilege_uses_an_existing_schema(
        self, server: PostgresServer, schema: str, sql: "Sql"
    ) -> None:
        await open_and_close(server, schema)
        role = f"plain_{schema}"
        await sql.execute(f"""
            CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA {schema} TO {role};
            GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role}""")
        async with opening(server, schema, user=role) as store:
            session = await store.open_session(60_000)
            await put(store, "k", session=session.id)
            await store.close_session(session.id)
            assert store.facts.notes == ()


class TestViews:
    async def test_sql_views_show_leases_agents_plan_and_registry(self, store: Store, sql: "Sql") -> None:
        resource = partition_resource(TopicPartition("orders", 3))
        session = (await store.open_session(60_000)).id
        member = b'{"id":"a1","session":"s","address":"h:1","zone":"z","group":"default","node":7,"started_at_ms":1000}'
        await store.commit(
            apply=[
                Put(epoch_key(resource), b'{"epoch":5}'),
                Put(epoch_key(partition_resource(TopicPartition("orders", 4))), b'{"epoch":2}'),
                Put(holder_key(resource), b'{"holder":"a1","epoch":5}', session),
                Put(member_key("agent", "a1"), member, session),
                Put(plan_key("orders"), encode_placements([("a1", "a2"), (), ("a2",)])),
                Put(transfer_key(resource), b'{"state":"pending","source":"a1","target":"a2","epoch":5,"since_ms":0}'),
                Put(registry_keys.partition_key("n", 2), b'{"owner":"c1","checkpoint":9,"epoch":1}'),
                Put(
                    registry_keys.consumer_key("n", "c1"), b'{"session":"s","ttl_ms":10,"registered_at_ms":0}', session
                ),
            ]
        )
        await put(store, "odd", b'"\\u0000"')
        leases = await sql.fetch("SELECT topic, partition, holder, epoch, session FROM partition_leases")
        assert [tuple(row) for row in leases] == [("orders", 3, "a1", 5, session), ("orders", 4, None, 2, None)]
        assert tuple(await _row(sql, 'SELECT id, address, zone, "group", node FROM agents')) == (
            "a1",
            "h:1",
            "z",
            "default",
            7,
        )
        plan = await sql.fetch("SELECT topic, partition, owner, replicas FROM plan")
        assert [tuple(row) for row in plan] == [
            ("orders", 0, "a1", ["a2"]),
            ("orders", 1, None, []),
            ("orders", 2, "a2", []),
        ]
        transfer = await _row(sql, "SELECT resource, state, source, target, epoch FROM transfers")
        assert tuple(transfer) == (resource, "pending", "a1", "a2", 5)
        owned = await _row(sql, "SELECT namespace, partition, owner, checkpoint, epoch FROM registry_partitions")
        assert tuple(owned) == ("n", 2, "c1", 9, 1)
        assert tuple(await _row(sql, "SELECT namespace, consumer, ttl_ms FROM registry_consumers")) == ("n", "c1", 10)
        assert tuple(await _row(sql, "SELECT id, ttl_ms, keys FROM sessions_live")) == (session, 60_000, 3)
        assert await sql.fetchval("SELECT count(*) FROM all_keys") == 9

    async def test_views_follow_their_text(
        self, server: PostgresServer, schema: str, sql: "Sql", monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await open_and_close(server, schema)
        text = migrating.views().replace("ORDER BY e.key", "ORDER BY e.key LIMIT 1", 1)
        monkeypatch.setattr(migrating, "views", lambda: text)
        async with opening(server, schema) as store:
            assert store.facts.notes == ()
            await asyncio.gather(put(store, "a"), put(store, "b"))
        assert await sql.fetchval("SELECT count(*) FROM all_keys") == 1

    async def test_a_view_that_others_depend_on_is_a_note_and_the_store_opens(
        self, server: PostgresServer, schema: str, sql: "Sql", monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await open_and_close(server, schema)
        await sql.execute("CREATE VIEW mine AS SELECT key FROM all_keys")
        text = migrating.views() + "-- new"
        monkeypatch.setattr(migrating, "views", lambda: text)
        async with opening(server, schema) as store:
            assert "mine" in store.facts.notes[0] or "depend" in store.facts.notes[0]
            await put(store, "k")


async def _row(sql: "Sql", query: str) -> asyncpg.Record:
    row = await sql.fetchrow(query)
    assert row is not None
    return row


class TestWipedServers:
    async def test_a_dropped_schema_stops_every_caller_and_is_not_recreated(
        self, store: Store, schema: str, sql: "Sql"
    ) -> None:
        session = await store.open_session(60_000)
        version = await put(store, "k", session=session.id)
        async with store.watch("", from_version=version) as commits:
            ended = asyncio.ensure_future(anext(commits))
            await sql.execute(f"DROP SCHEMA {schema} CASCADE")
            with pytest.raises(CorruptError):
                await store.commit(apply=[Put("k", b"2")])
            for call in (store.get("k"), store.scan("", "z"), store.keep_alive(session.id), store.open_session(1_000)):
                with pytest.raises(CorruptError):
                    await call
            with pytest.raises(CorruptError):
                await asyncio.wait_for(ended, 10)
        assert not await sql.fetchval("SELECT count(*) FROM pg_namespace WHERE nspname = $1", schema)

    async def test_a_recreated_store_gets_no_commit_from_clients_of_the_old_one(
        self, server: PostgresServer, store: Store, schema: str, sql: "Sql"
    ) -> None:
        await put(store, "k")
        async with sql.transaction():  # at once: clients of the old one never find that there is none
            await sql.execute(f"DROP SCHEMA {schema} CASCADE")
            await migrating.migrate_schema(sql, PostgresSettings(schema=schema), service="new", incarnation="new")
            await sql.execute("UPDATE head SET version = 9")  # further than the old one: only its name gives it away
        with pytest.raises(CorruptError, match="incarnation"):
            await store.commit(apply=[Put("late", b"1")])
        async with opening(server, schema) as other:
            assert await other.get("late") is None

    async def test_empty_tables_are_no_store(
        self, server: PostgresServer, store: Store, schema: str, sql: "Sql"
    ) -> None:
        await sql.execute("TRUNCATE head, meta")
        with pytest.raises(CorruptError):
            await store.commit(apply=[Put("k", b"2")])
        with pytest.raises(CorruptError):
            await open_and_close(server, schema)

    async def test_an_idle_watcher_detects_a_dropped_store(
        self, server: PostgresServer, schema: str, sql: "Sql"
    ) -> None:
        async with opening(server, schema, "&tick_ms=100") as store, store.watch("", from_version=0) as commits:
            await sql.execute(f"DROP SCHEMA {schema} CASCADE")
            with pytest.raises(CorruptError):
                await asyncio.wait_for(anext(commits), 10)


class TestLostAnswers:
    async def test_a_frozen_server_times_out_and_the_outcome_can_be_resolved(
        self, server: PostgresServer, schema: str
    ) -> None:
        async with opening(server, schema) as store:
            await put(store, "before")
            server.freeze()
            try:
                with pytest.raises(OutcomeUnknownError) as lost:
                    await store.commit(require=[Absent("k")], apply=[Put("k", b"1")])
                with pytest.raises(UnavailableError, match=f"within {PostgresSettings().timeout_ms} ms"):
                    await store.get("before")
            finally:
                server.thaw()
            outcome = await _resolve(store, lost.value.commit_id)
            entry = await store.get("k")
            assert outcome == (NotCommitted() if entry is None else Committed(entry.version))
            assert await store.resolve(lost.value.commit_id) == outcome

    async def test_a_commit_resolved_as_not_committed_is_never_applied(
        self, store: Store, schema: str, sql: "Sql"
    ) -> None:
        assert await store.resolve("000-late") == NotCommitted()
        with pytest.raises(asyncpg.UniqueViolationError):
            await sql.execute(
                "SELECT * FROM commit_batch($1, 0, ARRAY['000-early', '000-late'], '{0,0}', '{1,1}', '{}', '{}', "
                "'{a,b}', '{1,1}', '{NULL,NULL}')",
                store.facts.incarnation,
            )
        assert (await store.scan("", "z")).entries == ()
        assert await store.resolve("000-early") == NotCommitted()

    async def test_a_commit_that_timed_out_on_the_server_is_not_done(
        self, server: PostgresServer, schema: str, sql: "Sql"
    ) -> None:
        async with opening(server, schema) as store:
            await put(store, "before")
            async with sql.transaction():
                await sql.execute("SELECT FROM head FOR UPDATE")
                with pytest.raises(UnavailableError, match="statement timeout"):
                    await store.commit(apply=[Put("k", b"1")])
            await put(store, "after")
            assert await store.get("k") is None

    async def test_a_serialisation_failure_is_retried_inside(self, store: Store, sql: "Sql") -> None:
        await sql.execute("""
            CREATE SEQUENCE tries;
            CREATE FUNCTION fail_twice() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                IF nextval('tries') < 3 THEN RAISE EXCEPTION 'again' USING ERRCODE = '40001'; END IF; RETURN NEW;
            END $$;
            CREATE TRIGGER fail_twice BEFORE INSERT ON entries FOR EACH ROW EXECUTE FUNCTION fail_twice()""")
        schema = await sql.fetchval("SELECT current_schema")
        await sql.execute(f"ALTER FUNCTION fail_twice SET search_path = {schema}")
        version = await put(store, "k")
        assert await sql.fetchval("SELECT last_value FROM tries") == 3
        assert (await store.scan("", "z")).version == version

    async def test_a_commit_without_operations_never_has_an_unknown_outcome(
        self, server: PostgresServer, schema: str
    ) -> None:
        async with opening(server, schema) as store:
            await put(store, "k")
            server.freeze()
            try:
                with pytest.raises(UnavailableError):
                    await store.commit(require=[Absent("elsewhere")])
            finally:
                server.thaw()


async def _resolve(store: Store, commit_id: str) -> Committed | NotCommitted:
    while True:
        with suppress(UnavailableError):  # the server has just come back
            return await store.resolve(commit_id)


class TestBatches:
    async def test_queued_commits_share_one_transaction_and_are_checked_one_by_one(
        self, store: Store, sql: "Sql"
    ) -> None:
        first = await put(store, "k0")
        outcomes = await asyncio.gather(
            *(store.commit(require=[Absent(f"k{n}")], apply=[Put(f"k{n}", b"1")]) for n in range(1, 60)),
            store.commit(require=[AtVersion("k0", first)], apply=[Delete("k0")]),
            store.commit(require=[AtVersion("k0", first)], apply=[Put("k0", b"2")]),
            store.commit(apply=[Put("k60", b"1", "nobody")]),
            store.commit(require=[Absent("k0")]),
        )
        assert outcomes[:60] == [Committed(first + n) for n in range(1, 61)]
        assert outcomes[60:] == [Conflict({"k0": None}), Conflict(dead_session="nobody"), Committed(first + 60)]
        assert await sql.fetchval("SELECT count(DISTINCT xmin::text) FROM entries") <= 2

    async def test_an_empty_session_id_is_a_dead_session(self, store: Store) -> None:
        assert await store.commit(apply=[Put("k", b"1", "")]) == Conflict(dead_session="")
        assert await store.get("k") is None

    async def test_a_cancelled_caller_does_not_affect_others(self, store: Store, sql: "Sql") -> None:
        async with sql.transaction():
            await sql.execute("SELECT FROM head FOR UPDATE")
            under_way = [asyncio.ensure_future(put(store, f"a{n}")) for n in range(2)]
            await asyncio.wait(under_way, timeout=0.05)
            waiting = [asyncio.ensure_future(put(store, f"b{n}")) for n in range(3)]
            await asyncio.wait(waiting, timeout=0.05)
            under_way[0].cancel()
            waiting[1].cancel()
            await asyncio.wait((under_way[0], waiting[1]))
        versions = await asyncio.gather(under_way[1], waiting[0], waiting[2])
        assert list(versions) == sorted(versions)
        assert [entry.key for entry in (await store.scan("", "z")).entries] == ["a0", "a1", "b0", "b2"]


class TestSessionsOfOthers:
    async def test_a_short_session_of_a_dead_process_is_ended_by_an_idle_one(
        self, server: PostgresServer, schema: str
    ) -> None:
        async with opening(server, schema, "&tick_ms=3600000") as asleep:  # so it is not the tick that sees it
            async with opening(server, schema) as dying:
                _, version = await brief_session(dying, 400, {"k": 1}, clock=RealClock())
            async with asleep.watch("k", from_version=version) as commits:
                assert isinstance(await anext(commits), Changed)

    async def test_a_clock_that_stepped_back_does_not_hide_a_session_from_the_reaper(
        self, store: Store, sql: "Sql"
    ) -> None:
        session = await store.open_session(60_000)
        await sql.execute("UPDATE head SET next_due = 'infinity'")
        assert await store.keep_alive(session.id)
        assert await sql.fetchval("SELECT h.next_due = s.deadline FROM head h, sessions s")


class TestPruning:
    async def test_a_watcher_behind_the_pruned_log_gets_resync(
        self, server: PostgresServer, schema: str, sql: "Sql"
    ) -> None:
        async with opening(server, schema, "&log_commits_kept=5&prune_every_ms=100") as store:
            for _ in range(20):
                await put(store, "k")
            async with asyncio.timeout(10):
                while await sql.fetchval("SELECT count(*) FROM changes") > 5:
                    await asyncio.wait([asyncio.ensure_future(store.get("k"))])
            async with store.watch("k", from_version=1) as commits:
                resync = await anext(commits)
                assert isinstance(resync, Resync)
                assert resync.version >= 15
                latest = await put(store, "k")
                seen = await anext(commits)
                while seen.version < latest:
                    seen = await anext(commits)
                assert seen.version == latest

    async def test_commit_ids_are_pruned_after_their_time(
        self, server: PostgresServer, schema: str, sql: "Sql"
    ) -> None:
        async with opening(server, schema, "&commit_ids_kept_ms=1000&prune_every_ms=100") as store:
            await put(store, "k")
            assert await sql.fetchval("SELECT count(*) FROM commits") == 1
            async with asyncio.timeout(10):
                while await sql.fetchval("SELECT count(*) FROM commits"):
                    await asyncio.wait([asyncio.ensure_future(store.get("k"))])
