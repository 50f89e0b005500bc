"""Partitions of one topic that are claimed through a registry, with checkpoints instead of committed offsets.

The one rule: a checkpoint moves under the epoch that the partition was claimed with. A consumer that was frozen, or cut off
from the store, for longer than the TTL has been replaced by then, and its checkpoint is refused (`FencedError`), however late
it wakes up.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final

from holdfast.client.librdkafka import KafkaClient
from holdfast.client.records.model import TopicPartition
from holdfast.client.records.partition_source import SourceContext
from holdfast.registry.claim_loop import ClaimLoop
from holdfast.registry.coordinator import ConsumerCoordinator
from holdfast.registry.member import RegistryMember
from holdfast.registry.model import Assignment
from holdfast.registry.store import RegistryStore
from holdfast.vocabulary.errors import ClosedError, FencedError, HoldfastError, InvalidError
from holdfast.vocabulary.runtime import Runtime

_DRAIN_MS: Final = 5_000


class RegistrySource:
    """Membership in a registry, in a task of its own. `coordinate`: take part in sharing the partitions out."""

    def __init__(
        self,
        topic: str,
        registry: RegistryStore,
        name: str,
        *,
        coordinate: bool,
        max_poll_interval_ms: int,
        runtime: Runtime,
    ) -> None:
        self._topic, self._registry, self._name = topic, registry, name
        self._coordinate, self._max_poll_interval_ms, self._runtime = coordinate, max_poll_interval_ms, runtime
        self._epochs: dict[int, int] = {}  # of what is claimed, and of what was lost last
        self._context: SourceContext
        self._task: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()

    def properties(self) -> Mapping[str, Any]:
        # librdkafka requires the name of a group; it is never joined.
        return {"group.id": "holdfast-registry", "auto.offset.reset": "earliest"}

    async def open(self, context: SourceContext) -> None:
        self._context = context
        partitions, topic_id = await asyncio.to_thread(_describe, context.fetcher.client, self._topic)
        registry = self._registry
        if partitions != registry.settings.partitions:
            what = f"partitions of registry {registry.settings.namespace!r}"
            raise InvalidError(what, registry.settings.partitions, f"{partitions}, as topic {self._topic} has")
        await registry.initialize()
        await registry.bind_topic(self._topic, topic_id)
        joined = asyncio.Event()
        self._task = asyncio.create_task(self._live(joined))
        waiting = asyncio.ensure_future(joined.wait())
        try:
            await asyncio.wait((self._task, waiting), return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        self.check()

    async def _live(self, joined: asyncio.Event) -> None:
        clock, random = self._runtime.clock, self._runtime.random
        member = _Member(self, self._registry, self._name, self._runtime)
        async with AsyncExitStack() as stack:
            if self._coordinate:
                coordinator = ConsumerCoordinator(self._registry, clock=clock, random=random)
                await stack.enter_async_context(coordinator.running())
            await stack.enter_async_context(member.following())
            joined.set()
            await self._closing.wait()

    def check(self) -> None:
        if self._task is not None and self._task.done() and not self._task.cancelled():
            error = self._task.exception()
            raise error if error is not None else ClosedError(f"consumer {self._name}")

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, HoldfastError]:
        refused: dict[TopicPartition, HoldfastError] = {}
        for each, offset in offsets.items():
            epoch = self._epochs.get(each.partition)
            if each.topic != self._topic or epoch is None:
                refused[each] = InvalidError("partition to commit", str(each), "one that was assigned to this consumer")
            elif not await self._registry.update_checkpoint(each.partition, self._name, offset, epoch):
                refused[each] = await self.lost_error(each)
        return refused

    async def committed(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int | None]:
        return {each: await self._registry.checkpoint(each.partition) for each in partitions}

    async def lost_error(self, partition: TopicPartition) -> HoldfastError:
        state = await self._registry.partition(partition.partition)
        resource = f"{partition} in registry {self._registry.settings.namespace}"
        return FencedError(resource, self._epochs.get(partition.partition, 0), 0 if state is None else state.epoch)

    async def close(self) -> None:
        self._closing.set()
        if self._task is not None:
            await asyncio.wait((self._task,))
            if not self._task.cancelled():
                self._task.exception()  # `check` has raised it, or nobody asks any more

    def idle_too_long(self) -> bool:
        """The application has asked for nothing for so long that somebody else should have its partitions."""
        return self._context.idle_ms() > self._max_poll_interval_ms

    async def begin(self, assignment: Assignment) -> None:
        """Fetch from the checkpoint on."""
        partition = TopicPartition(self._topic, assignment.partition)
        self._epochs[assignment.partition] = assignment.epoch
        await self._context.events.assigned([partition])
        await self._context.fetcher.assign({partition: assignment.checkpoint})

    async def end(self, assignment: Assignment) -> None:
        """Stop fetching. A claim that is given back in order can still be checkpointed before that."""
        partition = TopicPartition(self._topic, assignment.partition)
        await self._context.events.revoked([partition], lost=not self._closing.is_set())
        await self._context.fetcher.unassign([partition])


class _Member(RegistryMember):
    def __init__(self, source: RegistrySource, registry: RegistryStore, name: str, runtime: Runtime) -> None:
        super().__init__(registry, name, clock=runtime.clock, random=runtime.random)
        self._source = source

    def _open_loop(self, assignment: Assignment) -> "_Claim":
        return _Claim(self._source, assignment, self._registry, self._clock, self._random)

    def _close_handlers(self) -> None:
        """There are none."""


class _Claim(ClaimLoop):
    def __init__(
        self, source: RegistrySource, assignment: Assignment, registry: RegistryStore, clock: Any, random: Any
    ) -> None:
        super().__init__(assignment, registry, drain_ms=_DRAIN_MS, clock=clock, random=random)
        self._source = source

    async def _work(self) -> None:
        """Heartbeats while the application asks for records: one that hangs loses its partitions although its process lives."""
        begun = False
        try:
            if await self._heartbeat_if_due():
                begun = True
                await self._source.begin(self.assignment)
            while not self._source.idle_too_long() and await self._heartbeat_if_due():
                await self._wake.wait_ms(self._clock, self._heartbeat_due_ms - self._clock.boot_ms())
        finally:
            if begun:
                await self._source.end(self.assignment)


def _describe(client: KafkaClient, topic: str) -> tuple[int, str]:
    """How many partitions a topic has, and its id."""
    found = client.describe([topic])[topic]
    return len(found.partitions), str(found.topic_id)
