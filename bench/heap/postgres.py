"""PostgreSQL as a queue: SELECT … FOR UPDATE SKIP LOCKED over a partial index, and pgmq's way.

fsync and synchronous_commit are on. pgmq's extension is not in the wheel; its statements are those of its SQL functions.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import asyncpg
from tests.support.store_engines.postgres import PostgresServer, installed

from bench.heap.queue import Clients, Job, QueueClient
from bench.heap.threads import on_thread

_PRIORITY: Final = (
    """create table jobs (id bigserial primary key, priority bigint not null, payload bytea not null,
       until timestamptz, holder bigint)""",
    "create index on jobs (priority, id) where until is null",
)
_PUT: Final = "insert into jobs (priority, payload) select * from unnest($1::bigint[], $2::bytea[])"
_TAKE: Final = """update jobs set until = now() + interval '30 s' where id in (
    select id from jobs where until is null order by priority, id limit $1 for update skip locked)
    returning id, priority, payload"""
_DONE: Final = "delete from jobs where id = any($1::bigint[])"

_PGMQ: Final = (
    """create table jobs (msg_id bigint primary key generated always as identity, read_ct int not null default 0,
       enqueued_at timestamptz not null default now(), vt timestamptz not null, message jsonb)""",
    "create index on jobs (vt asc)",
)
_PGMQ_SEND: Final = "insert into jobs (vt, message) select clock_timestamp(), unnest($1::jsonb[]) returning msg_id"
_PGMQ_READ: Final = """with cte as (select msg_id from jobs where vt <= clock_timestamp() order by msg_id asc limit $1
    for update skip locked)
    update jobs m set vt = clock_timestamp() + interval '30 s', read_ct = read_ct + 1 from cte
    where m.msg_id = cte.msg_id returning m.msg_id, m.read_ct, m.enqueued_at, m.vt, m.message"""
_PGMQ_DELETE: Final = "delete from jobs where msg_id = any($1::bigint[]) returning msg_id"


class SkipLockedClient:
    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection

    async def enqueue(self, jobs: Sequence[Job]) -> None:
        await self._connection.execute(_PUT, [job.priority for job in jobs], [job.payload for job in jobs])

    async def pop(self, count: int) -> Sequence[int]:
        return [row["id"] for row in await self._connection.fetch(_TAKE, count)]

    async def ack(self, popped: Sequence[int]) -> None:
        await self._connection.execute(_DONE, popped)


class PgmqClient:
    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection

    async def enqueue(self, jobs: Sequence[Job]) -> None:
        await self._connection.fetch(_PGMQ_SEND, [f'"{job.payload.decode()}"' for job in jobs])

    async def pop(self, count: int) -> Sequence[int]:
        return [row["msg_id"] for row in await self._connection.fetch(_PGMQ_READ, count)]

    async def ack(self, popped: Sequence[int]) -> None:
        await self._connection.fetch(_PGMQ_DELETE, popped)


@asynccontextmanager
async def serving(directory: Path, *, pgmq: bool = False) -> AsyncIterator[Clients]:
    installed()
    options = {"synchronous_commit": "on", "shared_buffers": "256MB"}
    async with on_thread(PostgresServer(directory, options=options).running()) as server:

        @asynccontextmanager
        async def clients(number: int) -> AsyncIterator[Sequence[QueueClient]]:
            url = f"postgresql://postgres@127.0.0.1:{server.port}/postgres"
            connections = [await asyncpg.connect(url) for _ in range(number)]
            try:
                for statement in ("drop table if exists jobs", *(_PGMQ if pgmq else _PRIORITY)):
                    await connections[0].execute(statement)
                yield [(PgmqClient if pgmq else SkipLockedClient)(each) for each in connections]
            finally:
                for connection in connections:
                    await connection.close()

        yield clients
