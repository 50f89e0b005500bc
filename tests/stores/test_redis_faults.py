"""Redis servers that lose, change, refuse or stop, and answers that are lost on the way."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.redis_store import KEYS, connected, opening, put, stops
from tests.support.store_engines.redis import ValkeyServer
from tests.support.waiting import async_until

from holdfast.contracts.store import Absent, AtVersion, Changed, Committed, NotCommitted, Put
from holdfast.stores.redis.connection import pack
from holdfast.stores.redis.settings import RedisSettings
from holdfast.stores.redis.write_batch import BatchCall, commit_write
from holdfast.stores.urls import open_store
from holdfast.testing.fault_proxy import FaultProxy
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import CorruptError, InvalidError, OutcomeUnknownError, UnavailableError
from holdfast.vocabulary.random import SystemRandom


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ValkeyServer]:
    with ValkeyServer(tmp_path).running() as running:
        yield running


async def test_a_server_flushed_under_an_open_store_stops_every_holder_and_is_not_recreated(
    server: ValkeyServer,
) -> None:
    async with opening(server) as committing, opening(server) as reading, opening(server) as watching:
        session = await committing.open_session(60_000)
        version = await put(committing, "a", session=session.id)
        async with watching.watch("", from_version=version) as commits:
            server.tell("FLUSHALL")
            with pytest.raises(CorruptError, match="keys are missing"):
                await committing.commit(require=[Absent("a")], apply=[Put("a", b"2")])
            with pytest.raises(CorruptError):
                await committing.keep_alive(session.id)
            with pytest.raises(CorruptError):
                await reading.get("a")
            with pytest.raises(CorruptError):
                async with asyncio.timeout(10):
                    await anext(commits)
    assert server.tell("DBSIZE") == b":0\r\n"


async def test_a_recreated_namespace_is_not_mistaken_for_the_old_one(server: ValkeyServer) -> None:
    async with opening(server) as old:
        await put(old, "a")
        server.tell("FLUSHALL")
        async with opening(server) as new:
            for _ in range(3):  # beyond what the old one has seen
                await put(new, "b")
            await stops(lambda: old.commit(apply=[Put("c", b"1")]))
            assert await new.get("c") is None


async def test_a_partly_deleted_namespace_is_not_created_again(server: ValkeyServer) -> None:
    async with opening(server) as store:
        await put(store, "a")
    server.tell("DEL", KEYS.meta)
    with pytest.raises(CorruptError, match="other keys were deleted"):
        async with opening(server):
            pass


async def test_a_key_of_another_type_in_the_namespace_is_corruption(server: ValkeyServer) -> None:
    async with opening(server) as store:
        await put(store, "a")
        server.tell("DEL", KEYS.entries)
        server.tell("SET", KEYS.entries, "x")
        fault = await stops(lambda: store.commit(apply=[Put("a", b"2")]))
        assert "another program writes to the namespace" in str(fault)
        with pytest.raises(CorruptError):
            await store.keep_alive("anything")


async def test_a_change_log_with_a_gap_is_corruption(server: ValkeyServer) -> None:
    async with opening(server) as store:
        start = await put(store, "a")
        await put(store, "b")
        server.tell("DEL", KEYS.log)
        async with store.watch("", from_version=start) as commits:
            with pytest.raises(CorruptError, match="missing from the change log"):
                async with asyncio.timeout(10):
                    await anext(commits)


async def test_a_primary_that_becomes_a_replica_stops_every_holder(server: ValkeyServer) -> None:
    async with opening(server) as store:
        await put(store, "a")
        server.tell("REPLICAOF", "127.0.0.1", "1")
        with pytest.raises(CorruptError, match="became a replica"):
            await store.commit(apply=[Put("a", b"2")])
        server.tell("REPLICAOF", "NO", "ONE")
        with pytest.raises(CorruptError):  # once caught, always refused
            await store.get("a")


async def test_a_replica_is_detected_on_reconnect(server: ValkeyServer) -> None:
    async with opening(server) as store:
        await put(store, "a")
        server.tell("REPLICAOF", "127.0.0.1", "1")
        server.tell("CLIENT", "KILL", "TYPE", "normal")  # as Sentinel does
        fault = await stops(lambda: store.get("a"))
        assert "became a" in str(fault)


async def test_flushed_scripts_are_loaded_again(server: ValkeyServer) -> None:
    async with opening(server) as store:
        await put(store, "a")
        server.tell("SCRIPT", "FLUSH")
        assert await put(store, "a", b"2") == 2
        server.tell("SCRIPT", "FLUSH")
        assert [entry.value for entry in (await store.scan("a", "b")).entries] == [b"2"]


async def test_a_full_server_refuses_with_a_hint_and_changes_nothing(server: ValkeyServer) -> None:
    async with opening(server) as store:
        session = await store.open_session(60_000)
        await put(store, "a")
        server.tell("CONFIG", "SET", "maxmemory", "1mb")
        with pytest.raises(UnavailableError, match="memory limit"):
            await store.commit(apply=[Put("a", b"2"), Put("b", b"2", session.id)])
        entry = await store.get("a")
        assert entry is not None
        assert entry.value == b"1"
        server.tell("CONFIG", "SET", "maxmemory", "0")
        outcome = await store.commit(require=[AtVersion("a", entry.version), Absent("b")], apply=[Put("a", b"3")])
        assert isinstance(outcome, Committed)


async def test_a_server_busy_with_a_script_is_unavailable_until_it_is_killed(server: ValkeyServer) -> None:
    async with opening(server) as store:
        await put(store, "a")
        server.tell("CONFIG", "SET", "busy-reply-threshold", "50")
        hog = await asyncio.open_connection("127.0.0.1", server.port)
        hog[1].write(b'EVAL "while true do end" 0\r\n')

        async def busy() -> bool:
            return server.tell("PING").startswith(b"-BUSY")

        await async_until(busy)
        try:
            with pytest.raises(UnavailableError, match="a script has been running for long"):
                await store.commit(apply=[Put("a", b"2")])
        finally:
            assert server.tell("SCRIPT", "KILL") == b"+OK\r\n"
            hog[1].close()
            await hog[1].wait_closed()

        async def writes() -> bool:
            try:
                return await put(store, "a", b"3") == 2
            except UnavailableError:  # the script is killed at its next step, not at once
                return False

        await async_until(writes)


async def test_a_frozen_server_fails_queued_writes_within_the_timeout(server: ValkeyServer) -> None:
    async with opening(server) as store:
        await put(store, "a")
        server.freeze()
        try:
            calls = [store.commit(apply=[Put(f"frozen/{n}", b"1")]) for n in range(3)]
            first = asyncio.ensure_future(calls[0])
            await RealClock().sleep_ms(100)  # the others queue behind it
            outcomes = await asyncio.gather(first, *calls[1:], store.get("a"), return_exceptions=True)
        finally:
            server.thaw()
        assert isinstance(outcomes[0], OutcomeUnknownError)
        assert all(isinstance(each, (OutcomeUnknownError, UnavailableError)) for each in outcomes)
        assert isinstance(outcomes[-1], UnavailableError)
        for n, each in enumerate(outcomes[:-1]):
            outcome = await store.resolve(each.commit_id) if isinstance(each, OutcomeUnknownError) else NotCommitted()
            entry = await store.get(f"frozen/{n}")
            assert (entry is not None) == isinstance(outcome, Committed)


async def test_a_lost_notification_delays_a_watcher_and_loses_nothing(server: ValkeyServer) -> None:
    async with opening(server, "tick_ms=200") as writing, opening(server, "tick_ms=200") as watching:
        start = await put(writing, "a", b"0")
        async with watching.watch("a", from_version=start) as commits:
            for n in range(1, 4):
                server.tell("CLIENT", "KILL", "TYPE", "pubsub")
                version = await put(writing, "a", b"%d" % n)
                async with asyncio.timeout(10):
                    seen = await anext(commits)
                assert isinstance(seen, Changed)
                assert seen.version == version


async def test_a_batch_that_arrives_after_its_commit_was_resolved_is_refused(server: ValkeyServer) -> None:
    async with (
        FaultProxy.running("127.0.0.1", server.port, clock=RealClock()) as proxy,
        open_store(f"redis://127.0.0.1:{proxy.port}/0", clock=RealClock(), random=SystemRandom()) as store,
        connected(server) as late,
    ):
        await put(store, "before")
        proxy.lose_request("slow")
        with pytest.raises(OutcomeUnknownError) as lost:
            await store.commit(apply=[Put("slow", b"1")])
        assert await store.resolve(lost.value.commit_id) == NotCommitted()
        lane, batch, _ = lost.value.commit_id.split(".")
        call = BatchCall(KEYS, RedisSettings(), store.facts.incarnation)
        request = call.pack(lane, int(batch), 1, [commit_write([], [Put("slow", b"1")])])
        assert await late.execute(request, 1) == [[b"refused"]]
        assert await store.get("slow") is None
        assert await store.resolve(lost.value.commit_id) == NotCommitted()


async def test_outcomes_are_kept_per_client_not_per_commit_and_old_ones_are_pruned(server: ValkeyServer) -> None:
    async with connected(server) as raw:
        async with opening(server) as store:
            for n in range(50):
                await put(store, f"k{n}")
            await raw.execute(
                pack("HSET", KEYS.meta, "lane:old", "1000000000 1 7", "lane:refused", "1000000000 refused"), 1
            )
            ((fields),) = await raw.execute(pack("HKEYS", KEYS.meta), 1)
            assert len([field for field in fields if field.startswith(b"lane:")]) == 3
        async with opening(server):
            ((fields),) = await raw.execute(pack("HKEYS", KEYS.meta), 1)
            assert len([field for field in fields if field.startswith(b"lane:")]) == 1


@pytest.mark.parametrize("commit_id", ["", "abc", "abc.1", "abc.x.1", "a b.1.1", "abc.1.1.1"])
async def test_an_id_that_no_lost_commit_has_is_refused(server: ValkeyServer, commit_id: str) -> None:
    async with opening(server) as store:
        with pytest.raises(InvalidError):
            await store.resolve(commit_id)


async def test_an_outcome_survives_the_later_commits_of_a_client_that_stopped_waiting_for_it(
    server: ValkeyServer,
) -> None:
    async with opening(server) as store:
        await put(store, "a")
        server.freeze()
        try:
            first = asyncio.ensure_future(store.commit(apply=[Put("first", b"1")]))
            await RealClock().sleep_ms(100)
            with pytest.raises((OutcomeUnknownError, UnavailableError)) as lost:
                await store.commit(apply=[Put("second", b"1")])  # gives up while its batch is being sent
        finally:
            server.thaw()
        with pytest.raises(OutcomeUnknownError):
            await first
        for n in range(5):  # the batch may be done by now, and these come after it
            await put(store, f"later/{n}")
        assert isinstance(lost.value, OutcomeUnknownError)
        outcome = await store.resolve(lost.value.commit_id)
        entry = await store.get("second")
        assert outcome == (NotCommitted() if entry is None else Committed(entry.version))
        for n in range(5):
            await put(store, f"latest/{n}")
