"""Batches over several partitions: messages with a key for each partition, and what became of them."""

from collections.abc import Sequence

from tests.support.cluster import Node
from tests.support.heaps import HeapWorld
from tests.support.waiting import async_until

from holdfast.heap.batch.messages import Prepare
from holdfast.heap.errors import BatchAbortedError
from holdfast.heap.model import Enqueued, NewMessage
from holdfast.heap.partition import HeapPartition
from holdfast.heap.records import ProducerSequence
from holdfast.heap.routing import partition_of_key
from holdfast.heap.settings import HeapSettings
from holdfast.log.errors import NotLeaderError
from holdfast.vocabulary.errors import OutcomeUnknownError, UnavailableError

QUICK = HeapSettings(batch_resolve_ms=20, batch_wait_ms=2_000, reopen_ms=20, tell_spine_ms=20)


def key_of(partition: int, partitions: int) -> str:
    """A key of this partition."""
    return next(key for key in map(str, range(1_000)) if partition_of_key(key, partitions) == partition)


def batch_over(partitions: int, number: int = 0, *, priority: int = 0) -> list[NewMessage]:
    """A message for each partition; the same number is the same batch again."""
    return [
        NewMessage(
            payload=b"%d/%d" % (number, partition),
            priority=priority,
            partition_key=key_of(partition, partitions),
            producer=ProducerSequence("p", 0, number),
        )
        for partition in range(partitions)
    ]


def leader(world: HeapWorld, partition: int, topic: str = "jobs") -> tuple[Node, HeapPartition] | None:
    """Who serves a partition now."""
    for node in world.cluster.nodes:
        if not node.task.done() and node.serving:
            for which, view in node.agent.local_heaps.open.items():
                if (which.topic, which.number) == (topic, partition):
                    return node, view
    return None


async def views(world: HeapWorld, partitions: int) -> list[HeapPartition]:
    """The partitions, once all are served."""
    await async_until(lambda: all(leader(world, number) is not None for number in range(partitions)))
    found = [leader(world, number) for number in range(partitions)]
    return [each[1] for each in found if each is not None]


async def enqueue_until_done(world: HeapWorld, messages: Sequence[NewMessage]) -> list[Enqueued]:
    """A batch at whoever leads the lowest partition, again and again, as a client does."""
    while True:
        found = leader(world, 0)
        if found is not None:
            try:
                return await found[0].agent.heaps.enqueue_batch("jobs", messages)
            except (NotLeaderError, UnavailableError, OutcomeUnknownError, BatchAbortedError):
                pass
        await world.clock.sleep_ms(10)


async def nothing_undecided(world: HeapWorld, partitions: int) -> list[HeapPartition]:
    """The partitions, once none of them has a batch that is not at its end."""

    def is_over() -> bool:
        found = [leader(world, number) for number in range(partitions)]
        return all(
            each is not None and not each[1].state.reserved.prepared and not each[1].state.reserved.to_forget
            for each in found
        )

    await async_until(is_over)
    return await views(world, partitions)


async def decisions(world: HeapWorld) -> list[str]:
    """The decisions that are kept in the store."""
    scan = await world.cluster.store.scan("log/", "log0")
    return [entry.key for entry in scan.entries if "/batch/" in entry.key]


def known(view: HeapPartition, number: int = 0) -> bool:
    """Whether the message of a batch was enqueued in a partition."""
    return view.state.dedup.find(ProducerSequence("p", 0, number)) is not None


def prepare_of(batch: str, coordinator: HeapPartition, partitions: int, message: NewMessage) -> Prepare:
    """What the leader of the lowest partition asks for."""
    return Prepare(batch, coordinator.log.epoch, tuple(range(partitions)), [message])
