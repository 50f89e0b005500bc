"""The bare drivers: the same operation without Holdfast, at the same durability, on the same server.

`commit` has the effects of a Store commit, written by hand in one round trip: a store-wide version, a compare-and-swap, a row
in a change log, a wake-up. `swap` is the least anybody would do: the compare-and-swap alone, no version, no log, no wake-up.
A renewal is one update of a deadline; a push is whatever the server has (NOTIFY, watch, pub/sub).
"""

import asyncio
import sqlite3
import time
from collections import deque
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

LANES = 67  # one alone, 64 side by side, two for renewals and pushes
VALUE = b'{"n": 1, "owner": "agent-1", "epoch": 7}'


class Reference(Protocol):
    """A bare driver under measurement; `lane` names one of the keys worked on side by side."""

    async def commit(self, lane: int) -> None: ...

    async def swap(self, lane: int) -> None: ...

    async def renew(self) -> None: ...

    async def push(self) -> float:
        """Seconds from the send of a change to its arrival at a listener."""
        ...


class BareMemory:
    """A dictionary."""

    def __init__(self) -> None:
        self._entries: dict[int, tuple[int, bytes]] = {}
        self._log: deque[tuple[int, int, bytes]] = deque(maxlen=10_000)
        self._deadline = 0.0

    async def swap(self, lane: int) -> None:
        version, _ = self._entries.get(lane, (0, b""))
        if self._entries.get(lane, (0, b""))[0] == version:
            self._entries[lane] = (version + 1, VALUE)

    async def commit(self, lane: int) -> None:
        await self.swap(lane)
        self._log.append((lane, *self._entries[lane]))

    async def renew(self) -> None:
        self._deadline = time.monotonic() + 30

    async def push(self) -> float:
        arrived: asyncio.Queue[float] = asyncio.Queue()
        started = time.perf_counter()
        arrived.put_nowait(started)
        await arrived.get()
        return time.perf_counter() - started


class BareSqlite:
    """sqlite3 on a thread of its own, so that no fsync stops the event loop: WAL, synchronous FULL, a transaction per call."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(1)
        self._db = self._thread.submit(self._prepare).result()
        self._versions = dict.fromkeys(range(LANES), 1)

    def _prepare(self) -> sqlite3.Connection:
        db = sqlite3.connect(self._path, isolation_level=None)
        for statement in (
            "PRAGMA journal_mode=WAL",
            "PRAGMA synchronous=FULL",
            "CREATE TABLE t (key INTEGER PRIMARY KEY, value BLOB, version INTEGER)",
            "CREATE TABLE head (version INTEGER)",
            "INSERT INTO head VALUES (1)",
            "CREATE TABLE log (version INTEGER PRIMARY KEY, key INTEGER, value BLOB)",
        ):
            db.execute(statement)
        db.executemany("INSERT INTO t VALUES (?, '', 1)", [(lane,) for lane in range(LANES)])
        return db

    def _commit(self, lane: int) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        (version,) = self._db.execute("UPDATE head SET version = version + 1 RETURNING version").fetchone()
        done = self._db.execute(
            "UPDATE t SET value = ?, version = ? WHERE key = ? AND version = ?",
            (VALUE, version, lane, self._versions[lane]),
        )
        assert done.rowcount == 1
        self._db.execute("INSERT INTO log VALUES (?, ?, ?)", (version, lane, VALUE))
        self._db.execute("COMMIT")
        self._versions[lane] = version

    def _swap(self, lane: int) -> None:
        version = self._versions[lane]
        self._db.execute("BEGIN IMMEDIATE")
        done = self._db.execute(
            "UPDATE t SET value = ?, version = version + 1 WHERE key = ? AND version = ?", (VALUE, lane, version)
        )
        assert done.rowcount == 1
        self._db.execute("COMMIT")
        self._versions[lane] = version + 1

    async def commit(self, lane: int) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._commit, lane)

    async def swap(self, lane: int) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._swap, lane)

    async def renew(self) -> None:
        await self.swap(LANES - 1)

    async def push(self) -> float:
        """SQLite pushes nothing: the bare way is to poll data_version, here every millisecond."""
        watcher = sqlite3.connect(self._path)
        try:
            before = watcher.execute("PRAGMA data_version").fetchone()
            started = time.perf_counter()
            await self.swap(0)
            while watcher.execute("PRAGMA data_version").fetchone() == before:
                await asyncio.sleep(0.001)
            return time.perf_counter() - started
        finally:
            watcher.close()

    def close(self) -> None:
        self._thread.submit(self._db.close).result()
        self._thread.shutdown()


class BarePostgres:
    """asyncpg: one connection for a lone caller, ten for many; one UPDATE with autocommit per swap."""

    def __init__(self, pool: Any, alone: Any, listener: Any) -> None:
        self._pool, self._alone, self._listener = pool, alone, listener
        self._versions = dict.fromkeys(range(LANES), 1)

    @classmethod
    @asynccontextmanager
    async def open(cls, dsn: str) -> AsyncIterator["BarePostgres"]:
        import asyncpg

        async with asyncpg.create_pool(dsn, min_size=10, max_size=10) as pool:
            alone, listener = await asyncpg.connect(dsn), await asyncpg.connect(dsn)
            await alone.execute("CREATE TABLE IF NOT EXISTS bare (key int PRIMARY KEY, value text, version bigint)")
            await alone.execute("TRUNCATE bare")
            await alone.executemany("INSERT INTO bare VALUES ($1, '', 1)", [(lane,) for lane in range(LANES)])
            await alone.execute("CREATE TABLE IF NOT EXISTS bare_head (version bigint)")
            await alone.execute("INSERT INTO bare_head VALUES (1)")
            await alone.execute("CREATE TABLE IF NOT EXISTS bare_log (version bigint PRIMARY KEY, key int, value text)")
            yield cls(pool, alone, listener)
            await alone.close()
            await listener.close()

    COMMIT = """
        WITH head AS (UPDATE bare_head SET version = version + 1 RETURNING version),
        swapped AS (
            UPDATE bare SET value = $1, version = head.version FROM head
            WHERE key = $2 AND bare.version = $3 RETURNING bare.version, key, value
        ),
        logged AS (INSERT INTO bare_log SELECT version, key, value FROM swapped RETURNING version)
        SELECT version, pg_notify('bare_commits', '') FROM logged
    """

    async def commit(self, lane: int) -> None:
        connection = self._alone if lane == 0 else self._pool
        row = await connection.fetchrow(self.COMMIT, VALUE.decode(), lane, self._versions[lane])
        self._versions[lane] = row[0]

    async def swap(self, lane: int) -> None:
        connection = self._alone if lane == 0 else self._pool
        version = self._versions[lane]
        done = await connection.execute(
            "UPDATE bare SET value = $1, version = version + 1 WHERE key = $2 AND version = $3",
            VALUE.decode(),
            lane,
            version,
        )
        assert done == "UPDATE 1"
        self._versions[lane] = version + 1

    async def renew(self) -> None:
        await self._alone.execute("UPDATE bare SET version = version + 1 WHERE key = 66")

    async def push(self) -> float:
        heard = asyncio.Event()

        def on_notify(*_: object) -> None:
            heard.set()

        await self._listener.add_listener("bare", on_notify)
        started = time.perf_counter()
        async with self._alone.transaction():
            await self._alone.execute("UPDATE bare SET value = 'x' WHERE key = 65")
            await self._alone.execute("NOTIFY bare")
        await heard.wait()
        took = time.perf_counter() - started
        await self._listener.remove_listener("bare", on_notify)
        return took


class BareRedis:
    """redis-py: one small Lua compare-and-swap per call, appendfsync always on the server."""

    SWAP = """
        if redis.call('HGET', KEYS[1], 'version') ~= ARGV[1] then return 0 end
        redis.call('HSET', KEYS[1], 'version', ARGV[2], 'value', ARGV[3])
        return 1
    """

    COMMIT = """
        if redis.call('HGET', KEYS[1], 'version') ~= ARGV[1] then return 0 end
        local version = redis.call('INCR', 'bare:head')
        redis.call('HSET', KEYS[1], 'version', version, 'value', ARGV[2])
        redis.call('XADD', 'bare:log', 'MAXLEN', '~', 100000, version .. '-1', 'key', KEYS[1], 'value', ARGV[2])
        redis.call('PUBLISH', 'bare:commits', version)
        return version
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._script = client.register_script(self.SWAP)
        self._commit = client.register_script(self.COMMIT)
        self._versions = dict.fromkeys(range(LANES), 1)

    @classmethod
    @asynccontextmanager
    async def open(cls, port: int) -> AsyncIterator["BareRedis"]:
        from redis.asyncio import Redis

        async with Redis(port=port, db=1) as client:
            await client.flushdb()
            for lane in range(LANES):
                await client.hset(f"bare:{lane}", mapping={"version": "1", "value": ""})
            yield cls(client)

    async def commit(self, lane: int) -> None:
        version = await self._commit(keys=[f"bare:{lane}"], args=[self._versions[lane], VALUE])
        assert version > 0
        self._versions[lane] = version

    async def swap(self, lane: int) -> None:
        version = self._versions[lane]
        done = await self._script(keys=[f"bare:{lane}"], args=[version, version + 1, VALUE])
        assert done == 1
        self._versions[lane] = version + 1

    async def renew(self) -> None:
        await self._client.set("bare:session", "1", px=30_000)

    async def push(self) -> float:
        async with self._client.pubsub() as listener:
            await listener.subscribe("bare")
            await listener.get_message(timeout=1)
            started = time.perf_counter()
            await self._client.publish("bare", "1")
            while await listener.get_message(ignore_subscribe_messages=True, timeout=1) is None:
                pass
            return time.perf_counter() - started


class BareEtcd:
    """grpc.aio: one Txn with one compare and one put per swap, on one channel."""

    def __init__(self, channel: Any, lease: int) -> None:
        from holdfast.stores.etcd import etcd_pb2 as pb

        self._pb = pb
        self._txn = channel.unary_unary(
            "/etcdserverpb.KV/Txn",
            request_serializer=pb.TxnRequest.SerializeToString,
            response_deserializer=pb.TxnResponse.FromString,
        )
        self._watch = channel.stream_stream(
            "/etcdserverpb.Watch/Watch",
            request_serializer=pb.WatchRequest.SerializeToString,
            response_deserializer=pb.WatchResponse.FromString,
        )
        keep_alive = channel.stream_stream(
            "/etcdserverpb.Lease/LeaseKeepAlive",
            request_serializer=pb.LeaseKeepAliveRequest.SerializeToString,
            response_deserializer=pb.LeaseKeepAliveResponse.FromString,
        )
        self._keeping, self._lease = keep_alive(), lease
        self._revisions = dict.fromkeys(range(LANES), 0)

    @classmethod
    @asynccontextmanager
    async def open(cls, port: int) -> AsyncIterator["BareEtcd"]:
        import grpc

        from holdfast.stores.etcd import etcd_pb2 as pb

        async with AsyncExitStack() as stack:
            channel = await stack.enter_async_context(grpc.aio.insecure_channel(f"127.0.0.1:{port}"))
            grant = channel.unary_unary(
                "/etcdserverpb.Lease/LeaseGrant",
                request_serializer=pb.LeaseGrantRequest.SerializeToString,
                response_deserializer=pb.LeaseGrantResponse.FromString,
            )
            granted = await grant(pb.LeaseGrantRequest(TTL=60))
            bare = cls(channel, granted.ID)
            yield bare
            bare._keeping.cancel()

    async def commit(self, lane: int) -> None:
        await self.swap(lane)  # etcd numbers, logs and wakes by itself

    async def swap(self, lane: int) -> None:
        pb, key = self._pb, b"bare/%d" % lane
        unmoved = pb.Compare(
            result=pb.Compare.EQUAL, target=pb.Compare.MOD, key=key, mod_revision=self._revisions[lane]
        )
        put = pb.RequestOp(request_put=pb.PutRequest(key=key, value=VALUE))
        answer = await self._txn(pb.TxnRequest(compare=[unmoved], success=[put]))
        assert answer.succeeded
        self._revisions[lane] = answer.header.revision

    async def renew(self) -> None:
        await self._keeping.write(self._pb.LeaseKeepAliveRequest(ID=self._lease))
        answer = await self._keeping.read()
        assert answer.TTL > 0

    async def push(self) -> float:
        pb = self._pb
        watching = self._watch()
        await watching.write(pb.WatchRequest(create_request=pb.WatchCreateRequest(key=b"bare/0")))
        await watching.read()
        started = time.perf_counter()
        await self.swap(0)
        await watching.read()
        took = time.perf_counter() - started
        watching.cancel()
        return took
