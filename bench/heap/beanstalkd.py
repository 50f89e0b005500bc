"""beanstalkd with a binlog that is synced before every answer (`-f 0`). It has no batches: puts and deletes are pipelined."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from bench.heap.queue import Clients, Job, QueueClient
from bench.heap.threads import on_thread
from holdfast.testing.server_process import ServerProcess
from holdfast.vocabulary.errors import UnavailableError

_LEASE_S: Final = 30
_PRIORITY: Final = 1 << 31  # its priorities are unsigned


class BeanstalkdServer(ServerProcess):
    name = "beanstalkd"

    def argv(self) -> list[str]:
        program = shutil.which("beanstalkd")
        if program is None:
            raise UnavailableError("beanstalkd", "not installed")
        return [program, "-l", "127.0.0.1", "-p", str(self.port), "-b", str(self.data), "-f", "0"]


class BeanstalkdClient:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def enqueue(self, jobs: Sequence[Job]) -> None:
        for priority, payload in jobs:
            self._writer.write(b"put %d 0 %d %d\r\n%b\r\n" % (priority + _PRIORITY, _LEASE_S, len(payload), payload))
        await self._answers(b"INSERTED", len(jobs))

    async def pop(self, count: int) -> Sequence[int]:
        found: list[int] = []
        while len(found) < count:
            self._writer.write(b"reserve-with-timeout 0\r\n")
            words = (await self._reader.readline()).split()
            if words[0] != b"RESERVED":
                break
            await self._reader.readexactly(int(words[2]) + 2)
            found.append(int(words[1]))
        return found

    async def ack(self, popped: Sequence[int]) -> None:
        self._writer.writelines([b"delete %d\r\n" % each for each in popped])
        await self._answers(b"DELETED", len(popped))

    async def _answers(self, expected: bytes, count: int) -> None:
        for _ in range(count):
            line = await self._reader.readline()
            if not line.startswith(expected):
                raise UnavailableError("beanstalkd", repr(line))


@asynccontextmanager
async def serving(directory: Path) -> AsyncIterator[Clients]:
    server = BeanstalkdServer(directory)
    server.argv()
    async with on_thread(server.running()):

        @asynccontextmanager
        async def clients(number: int) -> AsyncIterator[Sequence[QueueClient]]:
            streams = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(number)]
            made = [BeanstalkdClient(*stream) for stream in streams]
            try:
                while popped := await made[0].pop(100):
                    await made[0].ack(popped)
                yield made
            finally:
                for _, writer in streams:
                    writer.close()

        yield clients
