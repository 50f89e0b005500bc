"""Readers of every replica while leaders die: each sees the one log, in order, and what one has seen no other contradicts."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from tests.support.cluster import LocalCluster, Node
from tests.support.partitions import records
from tests.support.waiting import async_until

from holdfast.vocabulary.errors import HoldfastError

QUORUM = {"durability": "quorum", "replication_factor": 3}
AGENTS = ("ann", "bob", "carol")


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    made = LocalCluster(tmp_path)
    made.streams = True
    yield made
    await made.end()


class ReplicaReader:
    """Reads one agent's replica from the start, whenever it may be read, for as long as that agent is up."""

    def __init__(self, node: Node) -> None:
        self.seen: list[tuple[int, str]] = []
        self.from_replica = 0
        self._node = node
        self.task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        while not self._node.task.done():
            at = self.seen[-1][0] + 1 if self.seen else 0
            try:
                found = await self._node.service.read_replica("orders", 0, at, bytes_max=1 << 20)
            except HoldfastError:  # it may not be read now
                found = None
            if found is not None and found.batches:
                self.from_replica += 1
                self.seen += [each for each in records(found.batches) if each[0] >= at]
            await self._node.world.clock.sleep_ms(2)


@asynccontextmanager
async def writing(cluster: LocalCluster, written: list[str]) -> AsyncIterator[None]:
    """Write for the body. The last record is acknowledged: the log does not change afterwards."""
    ending = False

    async def write() -> None:
        while True:
            value = f"record {len(written)}"
            try:
                await cluster.produce("orders", 0, value)
            except HoldfastError:
                continue  # it is sent again, and may be there twice
            written.append(value)
            if ending:
                return

    task = asyncio.ensure_future(write())
    try:
        yield
        ending = True
        await task
    finally:
        task.cancel()
        await asyncio.wait([task])


@pytest.mark.slow
async def test_readers_of_replicas_see_one_log_while_leaders_die(cluster: LocalCluster) -> None:
    nodes = {name: await cluster.node(name) for name in AGENTS}
    await nodes["ann"].service.create_topic("orders", 1, QUORUM)
    await async_until(lambda: cluster.leader(0) is not None)
    readers = [ReplicaReader(node) for node in nodes.values()]
    written: list[str] = []
    async with writing(cluster, written):
        for turn in range(3):
            await _more(written)
            victim = cluster.leader(0)
            assert victim is not None
            if turn == 1:
                with suppress(HoldfastError):  # it may just be getting other replicas
                    await victim.service.flush("orders", 0)
            await victim.drop()
            await _more(written)
            nodes[victim.name] = await cluster.node(victim.name)
            readers.append(ReplicaReader(nodes[victim.name]))
        await _more(written)
    log = dict(await cluster.read("orders", 0))
    assert list(dict.fromkeys(log.values()))[: len(written)] == written
    await async_until(lambda: any(len(each.seen) == len(log) for each in readers))
    for node in nodes.values():
        await node.drop()
    await asyncio.gather(*(each.task for each in readers))
    assert sum(each.from_replica for each in readers) > 0
    for reader in readers:
        assert dict(reader.seen) == {offset: log[offset] for offset, _ in reader.seen}
        assert [offset for offset, _ in reader.seen] == list(log)[: len(reader.seen)]  # in order, without a hole


async def _more(written: list[str], count: int = 20) -> None:
    before = len(written)
    await async_until(lambda: len(written) >= before + count)
