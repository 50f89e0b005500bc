"""What the Redis engine keeps within bounds: its log, pages, batches and numbers; namespaces."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.redis_store import KEYS, opening, put
from tests.support.store_engines.redis import ValkeyServer

from holdfast.contracts.store import AtVersion, Changed, Committed, Conflict, Entry, Put, Resync


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ValkeyServer]:
    with ValkeyServer(tmp_path).running() as running:
        yield running


async def test_the_log_keeps_a_bounded_number_of_commits_and_late_watchers_get_resync(server: ValkeyServer) -> None:
    async with opening(server, "commits_kept=10") as store:
        for n in range(100):
            await put(store, "a", b"%d" % n)
        kept = int(server.tell("XLEN", KEYS.log).strip(b":\r\n"))
        assert 1 <= kept <= 10
        async with store.watch("a", from_version=1) as commits:
            async with asyncio.timeout(10):
                first = await anext(commits)
                assert isinstance(first, Resync)
                assert first.version >= 100 - 10
                version = await put(store, "a", b'"new"')
                while (seen := await anext(commits)).version < version:
                    pass
        assert isinstance(seen, Changed)


async def test_the_log_keeps_a_bounded_number_of_bytes(server: ValkeyServer) -> None:
    async with opening(server, "log_bytes_max=100000") as store:
        value = b'"' + b"x" * 10_000 + b'"'
        for _ in range(30):
            await put(store, "a", value)
        kept = int(server.tell("XLEN", KEYS.log).strip(b":\r\n"))
        assert 5 <= kept <= 10


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("options", ["page_keys_max=3", "page_bytes_max=1", "page_keys_max=1&scan_restarts_max=0"])
async def test_a_scan_in_pages_is_the_whole_range_at_one_version(
    server: ValkeyServer, options: str, reverse: bool
) -> None:
    async with opening(server, options) as store, opening(server) as other:
        for n in range(10):
            await put(other, f"k{n}")
        keys = [f"k{n}" for n in range(10)]
        if reverse:
            keys.reverse()
        for limit in (None, 0, 1, 4, 9, 10, 11):
            scan = await store.scan("k", "l", limit=limit, reverse=reverse)
            assert [entry.key for entry in scan.entries] == keys[:limit]
            assert scan.more == (limit is not None and limit < 10)
            assert scan.version == 10


async def test_a_scan_that_is_always_overtaken_is_read_in_one_request(server: ValkeyServer) -> None:
    async with opening(server, "page_keys_max=1") as store, opening(server) as other:
        await other.commit(apply=[Put(f"k{n}", b"0") for n in range(20)])
        done = asyncio.Event()

        async def keep_writing() -> None:
            n = 0
            while not done.is_set():
                n += 1
                await other.commit(apply=[Put(f"k{each}", b"%d" % n) for each in range(20)])

        writing = asyncio.ensure_future(keep_writing())
        try:
            for _ in range(10):
                scan = await store.scan("k", "l")
                assert len(scan.entries) == 20
                assert {entry.version for entry in scan.entries} == {scan.version}
        finally:
            done.set()
            await writing


async def test_a_session_with_more_keys_than_lua_can_return_ends_in_one_commit(server: ValkeyServer) -> None:
    count = 9_000
    async with opening(server) as store:
        session = await store.open_session(60_000)
        for start in range(0, count, 100):
            await store.commit(apply=[Put(f"k{n:05}", b"1", session.id) for n in range(start, start + 100)])
        scan = await store.scan("k", "l")
        assert len(scan.entries) == count
        async with store.watch("k", from_version=scan.version) as commits:
            await store.close_session(session.id)
            async with asyncio.timeout(10):
                ended = await anext(commits)
        assert isinstance(ended, Changed)
        assert [change.key for change in ended.changes] == [f"k{n:05}" for n in range(count)]
        assert {change.entry for change in ended.changes} == {None}
        assert await store.scan("k", "l") == type(scan)(ended.version, ())


async def test_versions_beyond_what_lua_prints_in_digits_stay_exact(server: ValkeyServer) -> None:
    far = 2**52
    async with opening(server):
        pass
    server.tell("HSET", KEYS.meta, "head", str(far), "gone", str(far))
    async with opening(server) as store:
        async with store.watch("a", from_version=far) as commits:
            version = await put(store, "a")
            assert version == far + 1
            assert await store.get("a") == Entry("a", b"1", version)
            outcome = await store.commit(require=[AtVersion("a", version)], apply=[Put("a", b"2")])
            assert outcome == Committed(far + 2)
            async with asyncio.timeout(10):
                assert [(await anext(commits)).version for _ in range(2)] == [far + 1, far + 2]
        assert await store.commit(require=[AtVersion("a", version)]) == Conflict({"a": Entry("a", b"2", far + 2)})


async def test_namespaces_of_one_server_do_not_see_each_other(server: ValkeyServer) -> None:
    async with opening(server, "namespace=one") as one, opening(server, "namespace=two") as two:
        assert one.facts.incarnation != two.facts.incarnation
        await put(one, "a")
        session = await one.open_session(60_000)
        assert await two.get("a") is None
        assert await put(two, "a") == 1
        assert not await two.keep_alive(session.id)
