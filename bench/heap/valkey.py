"""Valkey as a queue: a sorted set by priority, a hash of payloads, and a sorted set of leases; appendfsync always.

A batch is one command with many members; pops are one script, which moves the best ones to the leases.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Final

import redis.asyncio as redis
from tests.support.store_engines.redis import ValkeyServer

from bench.heap.queue import Clients, Job, QueueClient
from bench.heap.threads import on_thread
from holdfast.vocabulary.errors import UnavailableError

_TAKE: Final = """
local found = redis.call('ZPOPMIN', KEYS[1], ARGV[1])
local answer = {}
for at = 1, #found, 2 do
  redis.call('ZADD', KEYS[3], ARGV[2], found[at])
  answer[#answer + 1] = found[at]
  answer[#answer + 1] = redis.call('HGET', KEYS[2], found[at])
end
return answer
"""
_numbers: Final = count()


class ValkeyClient:
    def __init__(self, connection: "redis.Redis") -> None:
        self._connection, self._take = connection, connection.register_script(_TAKE)

    async def enqueue(self, jobs: Sequence[Job]) -> None:
        ids = [b"%020d" % next(_numbers) for _ in jobs]
        async with self._connection.pipeline(transaction=True) as pipe:
            pipe.hset("payloads", mapping={each: job.payload for each, job in zip(ids, jobs, strict=True)})
            pipe.zadd("ready", {each: job.priority for each, job in zip(ids, jobs, strict=True)})
            await pipe.execute()

    async def pop(self, count: int) -> Sequence[bytes]:
        found: list[bytes] = await self._take(["ready", "payloads", "leases"], [count, 0])
        return found[::2]

    async def ack(self, popped: Sequence[bytes]) -> None:
        async with self._connection.pipeline(transaction=True) as pipe:
            pipe.zrem("leases", *popped)
            pipe.hdel("payloads", *popped)
            await pipe.execute()


@asynccontextmanager
async def serving(directory: Path) -> AsyncIterator[Clients]:
    try:
        server = ValkeyServer(directory)
        server.argv()
    except ModuleNotFoundError as missing:
        raise UnavailableError("valkey", str(missing)) from None
    async with on_thread(server.running()):

        @asynccontextmanager
        async def clients(number: int) -> AsyncIterator[Sequence[QueueClient]]:
            connections = [redis.Redis(port=server.port, single_connection_client=True) for _ in range(number)]
            try:
                await connections[0].flushall()
                yield [ValkeyClient(each) for each in connections]
            finally:
                for connection in connections:
                    await connection.aclose()

        yield clients
