"""Our heaps: one server on its defaults, or three agents with replicas. All clients of a process are one connection of the SDK."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Final

from bench.cluster.servers import Cluster, holdfast_agents
from bench.heap.queue import Clients, Job, QueueClient
from bench.heap.threads import on_thread
from holdfast import heaps
from holdfast.heap.administration import HeapAdministration
from holdfast.heap.model import NewMessage
from holdfast.log.topics import Topics
from holdfast.stores.urls import open_store
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import HoldfastError
from holdfast.vocabulary.random import SystemRandom

LOCAL: Final = {"durability": "local"}
QUORUM: Final = {"durability": "quorum", "replication_factor": 3, "min_insync_replicas": 2}
_WAIT_S: Final = 60
_names: Final = count(1)


class OurClient:
    """A task that uses the client of its process."""

    def __init__(self, client: heaps.HeapClient, topic: str) -> None:
        self._client, self._topic = client, topic

    async def enqueue(self, jobs: Sequence[Job]) -> None:
        if len(jobs) == 1:
            await self._client.enqueue(self._topic, jobs[0].payload, priority=jobs[0].priority)
        else:
            await self._client.enqueue_many(
                self._topic, [NewMessage(payload=job.payload, priority=job.priority) for job in jobs]
            )

    async def pop(self, count: int) -> Sequence[heaps.Message]:
        return await self._client.pop(self._topic, max_messages=count)

    async def ack(self, popped: Sequence[heaps.Message]) -> None:
        await self._client.ack(popped)


@asynccontextmanager
async def serving(
    directory: Path,
    *,
    agents: int = 1,
    partitions: int = 1,
    log: Mapping[str, object] = LOCAL,
    on_started: Callable[[Cluster], None] = lambda _: None,
) -> AsyncIterator[Clients]:
    """Agents on one store, and a new heap for each set of clients."""
    async with on_thread(holdfast_agents(directory, agents)) as (cluster, _):
        on_started(cluster)

        @asynccontextmanager
        async def clients(number: int) -> AsyncIterator[Sequence[QueueClient]]:
            topic = f"heap-{next(_names)}"
            await create(f"sqlite:///{directory}/store.db", topic, partitions, log)
            async with heaps.connect(cluster.bootstrap) as client:
                await usable(client, topic)
                yield [OurClient(client, topic) for _ in range(number)]

        yield clients


async def create(store_url: str, topic: str, partitions: int, log: Mapping[str, object]) -> None:
    """Make a heap in a cluster's store."""
    clock, random = RealClock(), SystemRandom()
    async with open_store(store_url, clock=clock, random=random, create=False) as store:
        topics = Topics(store, clock=clock, random=random)
        await HeapAdministration(topics).create(topic, partitions, {}, log)


async def usable(client: heaps.HeapClient, topic: str) -> None:
    """Return when every partition has taken and given a message."""
    clock = RealClock()
    until_ms = clock.boot_ms() + _WAIT_S * 1_000
    while True:
        try:
            await client.enqueue_many(topic, [NewMessage(payload=b"", partition_key=str(key)) for key in range(200)])
            while popped := await client.pop(topic, max_messages=100):
                await client.ack(popped)
            return
        except HoldfastError:  # its partitions are being placed
            if clock.boot_ms() > until_ms:
                raise
            await clock.sleep_ms(50)
