"""Heaps as gateways use them: every gateway calls this, and nothing below it.

It checks what callers give, finds the partition, and serves what is led here. A partition that another agent leads is a
`NotLeaderError` that names it, and the gateway forwards. Errors are those of `heap.errors` and of the vocabulary.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from itertools import islice
from typing import Final, TypeVar

from holdfast.heap.administration import HeapAdministration, existing
from holdfast.heap.batch.model import check_partitions
from holdfast.heap.config import HeapConfig
from holdfast.heap.dead_letters import DeadLetters
from holdfast.heap.decisions import REASON_CHARS_MAX
from holdfast.heap.errors import LeaseLostError, MessageNotFoundError
from holdfast.heap.growth.partition_sets import sets_of
from holdfast.heap.lease_token import LeaseToken, parse_tokens
from holdfast.heap.local_heaps import DLQ_SUFFIX, LocalHeaps, heap_config
from holdfast.heap.message_id import parse_message_id
from holdfast.heap.model import Enqueued, NewMessage, PartitionStats, PeekedMessage, PoppedMessage
from holdfast.heap.moves import Deliver
from holdfast.heap.partition import HeapPartition
from holdfast.heap.records import Move, Op
from holdfast.heap.routing import MessageRouter
from holdfast.heap.spine.local_spines import LocalSpines
from holdfast.heap.spine.spine_shards import SpineShards
from holdfast.heap.validation import (
    DELAY_MS_MAX,
    WAIT_MS_MAX,
    check_count,
    check_messages,
    check_name,
    check_text,
    check_visibility,
)
from holdfast.kernel.lease import Held
from holdfast.log.errors import NotLeaderError
from holdfast.log.partition_snapshots import SnapshotRecord
from holdfast.log.topics import Topic, Topics, UnknownTopicError
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import InvalidError, UnavailableError
from holdfast.vocabulary.settings import check_between
from holdfast.vocabulary.tasks import LoopTurns

R = TypeVar("R")

_MOVING_MS: Final = 100  # between two looks at a partition that is opened or moves
_TOGETHER: Final = 1_000  # messages of a batch that needs no turns of the event loop
_HASHES_TOGETHER: Final = 10_000  # computed in one turn of it: about 10 ms


def destination_partition(heap: Topic, partition: int) -> int:
    """Where messages of a partition of another heap go. It never changes, so that what was delivered before is known there."""
    return partition % sets_of(heap).created_with


class HeapService:
    """The heaps of one process. `leader`: who leads a partition, as far as it is known here."""

    def __init__(
        self,
        heaps: LocalHeaps,
        *,
        topics: Topics,
        topic: Callable[[str], Topic | None],
        leader: Callable[[str, int], Held | None],
        clock: Clock,
    ) -> None:
        self.administration = HeapAdministration(topics)
        self._heaps, self._topics, self._topic, self._leader, self._clock = heaps, topics, topic, leader, clock
        self._router = MessageRouter()
        self.turns = LoopTurns()  # of requests with many messages or tokens
        self.dead_letters = DeadLetters(self._led, clock=clock, turns=self.turns)
        heaps.deliver = self.deliver
        self.spines: LocalSpines | None = None  # set where there is an agent
        self.spine_shards: SpineShards | None = None  # set where there is none

    # ── producers ──

    async def enqueue(self, topic: str, message: NewMessage, *, partition: int | None = None) -> Enqueued:
        """Enqueue a message; returns when it is durable. `partition`: only as a forwarding node asks, see `route`."""
        return (await self.enqueue_batch(topic, (message,), partition=partition))[0]

    async def enqueue_batch(
        self,
        topic: str,
        messages: Sequence[NewMessage],
        *,
        partition: int | None = None,
        places: Sequence[int] | None = None,
    ) -> list[Enqueued]:
        """Enqueue messages, all or none; returns when they are durable. Those of one partition keep their order.

        `partition`: of all of them; `places`: of each; without both they go where they belong. A batch over several partitions is
        served by the leader of the lowest. `BatchAbortedError`: see `LocalBatches.enqueue`.
        """
        if len(messages) > _TOGETHER:
            await self.turns.next()
        heap = await self._heap(topic, partition if places is None else max(places, default=0))
        check_messages(messages, heap_config(heap), self._heaps.settings)
        if partition is None or places is not None:
            places = await self._places(messages, heap.partitions) if places is None else places
            if len(places) != len(messages):
                raise InvalidError("places", len(places), f"{len(messages)}, as there are messages")
        began_ms = self._clock.boot_ms()
        if places is None or len(set(places)) == 1:
            number = places[0] if places is not None else partition
            enqueued = await self._partition(heap, number or 0).enqueue(messages)
        else:
            enqueued = await self._across(heap, messages, places)
        self._heaps.figures.enqueue_ms.observe(self._clock.boot_ms() - began_ms)
        return enqueued

    async def _across(self, heap: Topic, messages: Sequence[NewMessage], places: Sequence[int]) -> list[Enqueued]:
        check_partitions(len(set(places)))
        if max(places) >= heap.partitions:
            raise UnknownTopicError(f"{heap.name}:{max(places)}")
        view, batches = self._partition(heap, min(places)), self._heaps.batches
        if batches is None:
            raise UnavailableError(f"batch of {heap.name}", "this process leads no partitions")
        parts: dict[int, list[NewMessage]] = defaultdict(list)
        for message, number in zip(messages, places, strict=True):
            parts[number].append(message)
        found = {number: iter(each) for number, each in (await batches.enqueue(view, parts)).items()}
        return [next(found[number]) for number in places]

    async def route(self, topic: str, messages: Sequence[NewMessage], *, partitions: int = 1) -> list[int]:
        """The partitions of messages that are enqueued together. Those without key and producer follow the others.

        `partitions`: how many there are at least, as somebody knows for certain.
        """
        check_count(messages, self._heaps.settings)
        heap = await self._heap(topic, partitions - 1)
        return await self._places(messages, heap.partitions)

    async def _places(self, messages: Sequence[NewMessage], partitions: int) -> list[int]:
        if len(messages) * partitions <= _HASHES_TOGETHER:
            return self._router.batch(messages, partitions)
        places: list[int] = []
        each, count = self._router.each_of_batch(messages, partitions), max(1, _HASHES_TOGETHER // partitions)
        while some := list(islice(each, count)):
            places += some
            await self.turns.next()
        return places

    # ── consumers ──

    async def pop(
        self,
        topic: str,
        *,
        consumer: str,
        max_messages: int = 1,
        visibility_timeout_ms: int | None = None,
        wait_ms: float = 0,
        partition: int | None = None,
        whole: bool = False,
    ) -> list[PoppedMessage]:
        """Lease messages, the best first; none after `wait_ms` without any. While the partition is opened here, it waits, too.

        Of a heap of several partitions, each message is within the heap's rank bound, which it names; `partition` asks one alone,
        unless that is all there is, as far as the caller knows (`whole`).
        """
        began_ms = self._clock.boot_ms()
        partition, whole = (None, True) if whole else (partition, partition is None)
        heap = await self._heap(topic, partition)
        config = heap_config(heap)
        check_name("consumer", consumer)
        check_between("max_messages", max_messages, 1, self._heaps.settings.pop_messages_max)
        visibility_ms = config.visibility_timeout_ms if visibility_timeout_ms is None else visibility_timeout_ms
        check_visibility(visibility_ms, config)
        check_between("wait_ms", wait_ms, 0, WAIT_MS_MAX)
        deadline_ms = self._clock.boot_ms() + wait_ms
        while True:
            left_ms = deadline_ms - self._clock.boot_ms()
            try:
                if whole and heap.partitions > 1 and self.spines is not None:
                    found = await self.spines.pop(
                        heap,
                        count=max_messages,
                        consumer=consumer,
                        visibility_ms=visibility_ms,
                        wait_ms=max(0.0, left_ms),
                    )
                else:
                    view = self._partition(heap, self._only_partition(heap, partition))
                    if whole and view.spine is not None:
                        raise UnavailableError(f"heap {topic}", "it has more partitions than are known here")
                    found = await view.pop(
                        count=max_messages, consumer=consumer, visibility_ms=visibility_ms, wait_ms=max(0.0, left_ms)
                    )
                self._heaps.figures.popped(began_ms, found)
                return found
            except NotLeaderError as error:
                if error.leader or left_ms <= 0:
                    raise
            except UnavailableError:  # it is about to move, or the heap has grown
                if left_ms <= 0:
                    raise
            await self._heaps.changed.wait_ms(self._clock, min(left_ms, _MOVING_MS))
            heap = await self._heap(topic)  # it may be deleted by now

    async def ack(self, topic: str, tokens: Sequence[bytes]) -> list[LeaseLostError | None]:
        """The messages are done; returns when that is durable. For each token None, or why its lease is not the current one."""
        return await self._by_token(topic, tokens, lambda view, mine: view.ack(mine))

    async def nack(
        self, topic: str, tokens: Sequence[bytes], *, backoff_ms: int | None = None, reason: str = ""
    ) -> list[LeaseLostError | None]:
        """The messages failed: they are tried again after the heap's pause, or `backoff_ms`, or go to the dead letters."""
        if backoff_ms is not None:
            check_between("backoff_ms", backoff_ms, 0, DELAY_MS_MAX)
        check_text("reason", reason)
        return await self._by_token(
            topic, tokens, lambda view, mine: view.nack(mine, backoff_ms=backoff_ms, reason=reason)
        )

    async def release(self, topic: str, tokens: Sequence[bytes]) -> list[LeaseLostError | None]:
        """The messages were not worked on: they wait again at once, and it does not count as an attempt."""
        return await self._by_token(topic, tokens, lambda view, mine: view.nack(mine, op=Op.RELEASE))

    async def extend(self, topic: str, tokens: Sequence[bytes], extension_ms: int) -> list[int | LeaseLostError]:
        """Leases until `extension_ms` from now, capped by the heap's `lease_ms_max`; the new deadline of each."""
        check_visibility(extension_ms, heap_config(await self._heap(topic)))
        return await self._by_token(topic, tokens, lambda view, mine: view.extend(mine, extension_ms))

    async def _by_token(
        self,
        topic: str,
        tokens: Sequence[bytes],
        call: Callable[[HeapPartition, Sequence[LeaseToken]], Awaitable[list[R]]],
    ) -> list[R]:
        """The results for each token, from the partitions that issued them."""
        parsed = parse_tokens(tokens)
        numbers = {token[0] for token in parsed}
        heap = await self._heap(topic, max(numbers, default=0))
        if len(numbers) == 1:
            return await call(self._partition(heap, parsed[0].partition), parsed)
        places: dict[int, list[int]] = defaultdict(list)
        for at, token in enumerate(parsed):
            places[token.partition].append(at)
        views = {number: self._partition(heap, number) for number in places}
        results: dict[int, R] = {}
        for number, mine in places.items():
            found = await call(views[number], [parsed[at] for at in mine])
            results.update(zip(mine, found, strict=True))
        return [results[at] for at in range(len(tokens))]

    # ── operators ──

    async def peek(self, topic: str, *, limit: int = 10, partition: int | None = None) -> list[PeekedMessage]:
        """The messages that would be popped next, of a partition, or of each one that is led here."""
        check_between("limit", limit, 1, 1_000)
        heap = await self._heap(topic)
        found = [await view.peek(limit) for view in self._views(heap, partition)]
        return [message for messages in found for message in messages]

    async def purge(self, topic: str, *, partition: int | None = None) -> int:
        """Withdraw every message, leased ones too, of a partition or of all; how many there were."""
        return sum([await view.purge() for view in self._views(await self._heap(topic), partition)])

    async def cancel(self, topic: str, message_id: str) -> None:
        """Withdraw a message, leased or not. `MessageNotFoundError`."""
        view, offset, _ = await self._message(topic, message_id)
        if not await view.cancel((offset,)):
            raise MessageNotFoundError(topic, message_id)

    async def reprioritise(self, topic: str, message_id: str, priority: int) -> None:
        """Give a message another priority. One that is leased has it when it comes back. `MessageNotFoundError`."""
        check_messages((NewMessage(payload=b"", priority=priority),), HeapConfig(), self._heaps.settings)
        view, offset, _ = await self._message(topic, message_id)
        await view.reprioritise(offset, priority, message_id)

    async def move_to_dead_letters(self, topic: str, message_id: str, reason: str = "") -> None:
        """Send a message to the dead letters; its lease is lost. `MessageNotFoundError`."""
        view, offset, message = await self._message(topic, message_id)
        letters = view.rules.dead_letters
        if letters is None:
            raise InvalidError("heap", topic, "one with dead letters")
        check_text("reason", reason)
        why = reason[:REASON_CHARS_MAX] or "moved by an operator"
        if not await view.move((Move(offset, message.priority, *letters, message.attempts, why),)):
            raise MessageNotFoundError(topic, message_id)

    async def stats(self, topic: str, *, partition: int | None = None) -> list[PartitionStats]:
        """What is in a partition, or in each one that is led here."""
        heap = await self._heap(topic)
        if partition is not None:
            return [self._partition(heap, partition).stats()]
        return [view.stats() for number in range(heap.partitions) if (view := self._open(heap, number)) is not None]

    async def snapshot(self, topic: str, *, partition: int | None = None) -> list[SnapshotRecord]:
        """Take a snapshot of a partition now, or of each one that is led here; the newest of each then."""
        heap = await self._heap(topic)
        numbers = range(heap.partitions) if partition is None else (partition,)
        views = [view for number in numbers if (view := self._open(heap, number)) is not None]
        if partition is not None:
            views = [self._partition(heap, partition)]
        return [await view.snapshots.take() for view in views if view.snapshots is not None]

    async def _message(self, topic: str, message_id: str) -> tuple[HeapPartition, int, PeekedMessage]:
        heap = await self._heap(topic)
        place = parse_message_id(bytes.fromhex(heap.id), message_id)
        view = self._partition(heap, place.partition)
        for message in await view.find((place.offset,)):
            if message.message_id == message_id.upper():
                return view, place.offset, message
        raise MessageNotFoundError(topic, message_id)

    # ── finding them ──

    async def heap(self, name: str, *, partitions: int = 1) -> Topic:
        """The topic of a heap. `partitions`: how many it has at least. `UnknownTopicError`, `NotAHeapError`."""
        return await self._heap(name, partitions - 1)

    async def spine_resource(self, heap: Topic) -> str | None:
        """The lease under which a heap's spine runs; None: it needs none, or where that is is not known yet."""
        if heap.partitions == 1:
            return None
        if self.spines is not None:
            return self.spines.resource(heap)
        return None if self.spine_shards is None else await self.spine_shards.resource(heap)

    def serves(self, name: str, number: int) -> bool:
        """Whether a partition is open here."""
        heap = self._topic(name)
        return heap is not None and self._open(heap, number) is not None

    async def _heap(self, name: str, partition: int | None = None) -> Topic:
        """The heap; where a partition is asked for that is not known here, as the store has it: it may have grown."""
        known = self._topic(name)
        if known is None or (partition is not None and partition >= known.partitions):
            known = await self._topics.get(name)
        return existing(known)

    def _partition(self, heap: Topic, number: int) -> HeapPartition:
        if not 0 <= number < heap.partitions:
            raise UnknownTopicError(f"{heap.name}:{number}")
        try:
            return self._heaps.partition(heap, number)
        except NotLeaderError as error:
            if error.reason:
                raise
            held = self._leader(heap.name, number)
            raise NotLeaderError(heap.name, number, held.holder if held is not None else "") from error

    def _open(self, heap: Topic, number: int) -> HeapPartition | None:
        with suppress(NotLeaderError):
            return self._partition(heap, number)
        return None

    def _only_partition(self, heap: Topic, partition: int | None) -> int:
        if partition is None and heap.partitions > 1:
            raise InvalidError("partition", None, f"a number, as heap {heap.name} has {heap.partitions} partitions")
        return partition or 0

    def _views(self, heap: Topic, partition: int | None) -> list[HeapPartition]:
        numbers = range(heap.partitions) if partition is None else (partition,)
        return [self._partition(heap, number) for number in numbers]

    async def _led(self, topic: str, partition: int | None) -> list[HeapPartition]:
        return self._views(await self._heap(topic), partition)

    # ── messages of other heaps ──

    def deliver_through(self, deliver: Deliver) -> None:
        """Messages that leave a heap of this process go this way, which reaches every agent."""
        self._heaps.deliver = deliver

    async def deliver(self, topic: str, partition: int, messages: Sequence[NewMessage]) -> list[Enqueued]:
        """Take messages that were moved here from another heap. Those that were delivered before are duplicates."""
        heap = await self.destination(topic)
        return await self._partition(heap, destination_partition(heap, partition)).enqueue(messages)

    async def destination(self, topic: str) -> Topic:
        """The heap that messages are moved to. One of dead letters that is missing is created."""
        try:
            return await self._heap(topic)
        except UnknownTopicError:
            if not topic.endswith(DLQ_SUFFIX):
                raise
        await self.administration.ensure_dead_letters(await self._heap(topic.removesuffix(DLQ_SUFFIX)))
        return await self._heap(topic)
