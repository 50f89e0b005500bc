"""Heaps of agents in this process: a clock whose wall can jump, and ways to wait for what happens there."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.cluster import LocalCluster, Node
from tests.support.waiting import async_until

from holdfast.heap.model import NewMessage, PoppedMessage
from holdfast.heap.partition import HeapPartition
from holdfast.heap.partition_state import HeapState
from holdfast.heap.service import HeapService
from holdfast.heap.snapshot_format import SnapshotSubject, decode_image, encode_image
from holdfast.heap.state_image import capture, restored
from holdfast.log.reader import FetchedBatches
from holdfast.log.settings import LogSettings
from holdfast.log.wal import WalSettings
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.settings import MIB

_LOG = LogSettings(publish_tick_ms=10, publish_retry_ms=20, object_interval_ms=20)


class JumpingClock(RealClock):
    """The host's clocks; a test may step the wall clock."""

    def __init__(self) -> None:
        self.jumped_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.jumped_ms


class HeapWorld:
    """A cluster with heaps."""

    def __init__(self, directory: Path) -> None:
        self.cluster = LocalCluster(directory)
        self.clock = self.cluster.clock = JumpingClock()

    async def node(self, name: str = "ann", **changes: object) -> Node:
        return await self.cluster.node(name, log=_LOG, wal=WalSettings(file_bytes=8 * MIB), **changes)

    async def heap(
        self, node: Node, name: str = "jobs", partitions: int = 1, durability: str = "local", **config: object
    ) -> HeapService:
        """A new heap, once every partition of it is served."""
        await node.agent.heaps.administration.create(name, partitions, config, {"durability": durability})
        await self.served(node, name, partitions)
        return node.agent.heaps

    def view(self, node: Node, name: str = "jobs", number: int = 0) -> HeapPartition:
        """A partition that a node serves."""
        here = node.agent.local_heaps.open.items()
        return next(view for which, view in here if (which.topic, which.number) == (name, number))

    async def served(self, node: Node, name: str = "jobs", partitions: int = 1) -> None:
        """Return when a heap and its dead letters are served by a node."""

        def is_served() -> bool:
            here = [each.topic for each in node.agent.local_heaps.open]
            return here.count(name) == partitions == here.count(name + ".dlq")

        await async_until(is_served)

    async def end(self) -> None:
        await self.cluster.end()


async def enqueue(heaps: HeapService, *priorities: int, topic: str = "jobs") -> list[str]:
    """Messages with these priorities, which are their payloads, too; their ids."""
    made = [await heaps.enqueue(topic, NewMessage(payload=str(each).encode(), priority=each)) for each in priorities]
    return [each.message_id for each in made]


async def pop(heaps: HeapService, count: int = 1, *, topic: str = "jobs", **options: Any) -> list[PoppedMessage]:
    """Up to so many messages, waiting for the first."""
    return await heaps.pop(topic, consumer="c", max_messages=count, wait_ms=10_000, **options)


async def popped(heaps: HeapService, count: int) -> list[int]:
    """Pop so many messages whose payloads are numbers, and ack them; the numbers."""
    found = await heaps.pop("jobs", consumer="c", max_messages=count)
    await heaps.ack("jobs", [each.lease_token for each in found])
    return [int(each.payload) for each in found]


def noted_reads(view: HeapPartition) -> list[int]:
    """The offsets that are read from the log from now on."""
    reads: list[int] = []
    read = view.log.read

    async def noted(offset: int, *, bytes_max: int, wait_ms: float = 0) -> FetchedBatches:
        reads.append(offset)
        return await read(offset, bytes_max=bytes_max, wait_ms=wait_ms)

    view.log.read = noted  # type: ignore[method-assign]
    return reads


def payloads(messages: Sequence[PoppedMessage]) -> list[bytes]:
    return [message.payload for message in messages]


def through_a_snapshot(state: HeapState) -> HeapState:
    """The state that a snapshot of this one gives."""
    subject = SnapshotSubject("t" * 32, 3)
    return restored(decode_image(b"".join(encode_image(capture(state), subject)), subject))
