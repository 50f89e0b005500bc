"""Producers and consumers of a driven heap, as a client behaves: it tries again until it has an answer that it can act upon.

The one rule: what a leader answers is an event where the leader answers it. A client may not get the answer, and asks again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, Protocol, cast

from holdfast.heap.errors import MESSAGE_GONE, LeaseLostError, ResourceExhaustedError
from holdfast.heap.growth.growing_partition import GrowingPartition
from holdfast.heap.lease_token import LeaseToken, parse_token
from holdfast.heap.message_id import parse_message_id
from holdfast.heap.model import NewMessage, PoppedMessage
from holdfast.heap.records import Op, ProducerSequence
from holdfast.heap.routing import MessageRouter
from holdfast.heap.wire import LostLease
from holdfast.heaps.leases import Leases
from holdfast.heaps.message import Message
from holdfast.heaps.repeated_ack import ack_outcome
from holdfast.sim.heap.driven.configuration import DrivenConfiguration
from holdfast.sim.heap.driven.history import (
    AckAnswered,
    DrivenEvent,
    EnqueueAnswered,
    MessageDelivered,
    NackAnswered,
    PopFailed,
)
from holdfast.sim.heap.driven.leader import DrivenLeader
from holdfast.sim.heap.driven.network import SimNetwork
from holdfast.sim.heap.driven.spine import DrivenSpine
from holdfast.sim.heap.driven.topic import TOPIC_ID
from holdfast.vocabulary.errors import HoldfastError, OutcomeUnknownError, UnavailableError

_RETRY_MS: Final = 10.0
_POP_TIMEOUT_MS: Final = 2_000.0


class DrivenCluster(Protocol):
    """What clients know of the world."""

    network: SimNetwork
    configuration: DrivenConfiguration
    is_healed: bool

    @property
    def partitions(self) -> int:
        """How many there are."""
        ...

    def leader(self, partition: int) -> DrivenLeader:
        """Whom a client takes for the leader."""
        ...

    def spine(self) -> DrivenSpine:
        """Whom a client takes for the spine."""
        ...

    def add(self, event: DrivenEvent) -> None:
        """An event."""
        ...


class SimClients:
    """All clients of one world."""

    def __init__(self, cluster: DrivenCluster) -> None:
        self._cluster, self._network, self._random = cluster, cluster.network, cluster.network.random
        self._configuration = cluster.configuration
        self.producing = 0
        self._numbers = 0
        self._router = MessageRouter()

    @property
    def now_ms(self) -> float:
        """Virtual time."""
        return self._network.loop.now_ms

    def start(self) -> None:
        """Start everybody."""
        for number in range(self._configuration.producers):
            self.producing += 1
            self._network.start(self._produce(f"producer{number}"), f"producer{number}")
        for number in range(self._configuration.consumers):
            self._network.start(self._consume(f"consumer{number}"), f"consumer{number}")

    async def call(self, partition: int, serve: Callable[[GrowingPartition], Awaitable[Any]]) -> Any:
        """A call of a leader. Raises what it raises; `OutcomeUnknownError`, `UnavailableError`: there is no answer."""
        network = self._network
        timeout_ms = 1_000.0 if self._cluster.is_healed else self._configuration.timeout_ms
        await network.pause()
        leader = self._cluster.leader(partition)
        if network.is_lost():
            await network.sleep_ms(timeout_ms)
            raise UnavailableError("leader", "it cannot be reached")

        async def at_leader() -> Any:
            return await serve(leader.open_view())

        call = network.start(at_leader(), f"call of p{partition}")
        await asyncio.wait({call, timer := asyncio.ensure_future(network.sleep_ms(timeout_ms))}, return_when=_FIRST)
        timer.cancel()
        if not call.done() or leader.is_dead or network.is_lost():
            await network.pause()
            raise OutcomeUnknownError("call", "there is no answer")
        await network.pause()
        return call.result()

    async def _until_answered(self, partition: int, serve: Callable[[GrowingPartition], Awaitable[Any]]) -> Any:
        while True:
            try:
                return await self.call(partition, serve)
            except HoldfastError:
                await self._network.sleep_ms(_RETRY_MS)

    # ── producers ──

    async def _produce(self, name: str) -> None:
        configuration, random, keys = self._configuration, self._random, self._configuration.features.keys
        sequence = 0
        for _ in range(configuration.calls):
            await self._network.sleep_ms(random.uniform(0.0, configuration.faults_ms / configuration.calls))
            partition, messages = random.randrange(self._cluster.partitions), list[NewMessage]()
            for _ in range(random.choice((1, 1, 1, 3))):
                sequence += 1
                self._numbers += 1
                messages.append(
                    NewMessage(
                        payload=str(self._numbers).encode(),
                        priority=random.randrange(configuration.priorities),
                        delay_ms=random.randint(1, 200) if random.random() < configuration.delayed else 0,
                        producer=ProducerSequence(name, 0, sequence),
                        fairness_key=random.choice(keys) if keys else None,
                    )
                )
            if configuration.features.growths:
                for message in messages:
                    await self._enqueue_where_it_belongs(message)
            else:
                await self._until_answered(partition, partial(self._enqueue, messages))
        self.producing -= 1

    async def _enqueue(self, messages: Sequence[NewMessage], view: GrowingPartition) -> None:
        for message, found in zip(messages, await view.enqueue(messages), strict=True):
            place = parse_message_id(bytes.fromhex(TOPIC_ID), found.message_id)
            self._cluster.add(
                EnqueueAnswered(self.now_ms, place.partition, place.offset, message.payload, found.duplicate)
            )

    async def _enqueue_where_it_belongs(self, message: NewMessage) -> None:
        """Each try is through a node that knows of some number of partitions."""
        random, first = self._random, self._configuration.partitions
        while True:
            known = random.randint(first, self._cluster.partitions)
            try:
                partition = self._router.partition(message, known)
                await self.call(partition, partial(self._enqueue, [message]))
                return
            except HoldfastError:
                await self._network.sleep_ms(_RETRY_MS)

    # ── consumers ──

    async def _consume(self, name: str) -> None:
        random = self._random
        while True:
            asked_ms = self.now_ms
            try:
                messages = await self._pop(name)
            except ResourceExhaustedError:
                await self._network.sleep_ms(self._configuration.visibility_ms)
                continue
            except HoldfastError:
                await self._network.sleep_ms(_RETRY_MS)
                continue
            for message in messages:
                token = parse_token(message.lease_token)
                event = MessageDelivered(
                    self.now_ms,
                    name,
                    token.partition,
                    token.epoch,
                    token.granted_at,
                    token.offset,
                    message.rank_bound,
                )
                self._cluster.add(event)
            if not self._cluster.is_healed and random.random() < 0.05:
                continue  # it dies, and another one takes its place
            for message in messages:
                await self._finish(name, message, asked_ms)

    async def _pop(self, name: str) -> list[PoppedMessage]:
        """A pop of the spine, or of a partition; some are given up."""
        random, healed = self._random, self._cluster.is_healed
        count, wait_ms = random.choice((1, 1, 2, 5)), random.choice((0.0, 50.0, 200.0))
        visibility_ms = self._configuration.visibility_ms
        options: dict[str, Any] = {"count": count, "consumer": name, "visibility_ms": visibility_ms, "wait_ms": wait_ms}
        if random.random() < 0.1:
            partition = random.randrange(self._cluster.partitions)
            found: list[PoppedMessage] = await self.call(partition, lambda view: view.pop(**options))
            return found
        await self._network.pause()
        spine = self._cluster.spine()
        popping = self._network.start(spine.driver.pop(**options), name)
        patience_ms = random.uniform(0.0, 50.0) if not healed and random.random() < 0.1 else _POP_TIMEOUT_MS
        timer = asyncio.ensure_future(self._network.sleep_ms(patience_ms))
        await asyncio.wait({popping, timer}, return_when=_FIRST)
        timer.cancel()
        if not popping.done():
            popping.cancel()
            await asyncio.wait({popping})
        if popping.cancelled():
            return []
        error = popping.exception()
        if error is not None and not isinstance(error, ResourceExhaustedError) and not spine.is_over:
            self._cluster.add(PopFailed(self.now_ms, name, repr(error)))
        await self._network.sleep_ms(_RETRY_MS if not popping.exception() and not popping.result() else 0.0)
        return list(popping.result())

    async def _finish(self, name: str, message: PoppedMessage, asked_ms: float) -> None:
        """Work, and say how it went."""
        token = parse_token(message.lease_token)
        random, healed = self._random, self._cluster.is_healed
        await self._network.sleep_ms(random.uniform(0.0, 5.0))
        kind = random.random() if not healed else 0.0
        try:
            if kind < 0.7:
                await self._ack(name, token, self._held(message, asked_ms))
            elif kind < 0.85:
                await self.call(token.partition, partial(self._nack, token))
            elif kind < 0.92:
                await self.call(token.partition, lambda view: view.nack([token], op=Op.RELEASE))
            elif kind < 0.95:
                await self.call(token.partition, lambda view: view.extend([token], 200))
        except HoldfastError:
            pass  # it expires

    def _held(self, message: PoppedMessage, asked_ms: float) -> Message:
        """The message as the SDK has it."""
        visibility_ms = self._configuration.visibility_ms
        return Message(message, visibility_ms, cast(Leases, None), message.lease_deadline_ms, asked_ms)

    async def _ack(self, name: str, token: LeaseToken, held: Message) -> None:
        """That the message is gone is as good as an answer for who has sent the ack before: unless there are dead letters, by the
        rule of the SDK then."""
        for tried in range(5):
            try:
                (lost,) = await self.call(token.partition, lambda view: view.ack([token]))
            except HoldfastError:
                held.ack_unanswered = True
                await self._network.sleep_ms(_RETRY_MS)
                continue
            if lost is None or (tried and lost.reason == MESSAGE_GONE and self._was_acked(held, lost)):
                self._cluster.add(AckAnswered(self.now_ms, name, token.partition, token.offset))
            return

    def _was_acked(self, held: Message, lost: LeaseLostError) -> bool:
        wire = LostLease(lost.message_id, lost.reason, lost.epochs, lost.now_ms)
        return not self._configuration.features.has_dead_letters or ack_outcome(held, wire, self.now_ms) is None

    async def _nack(self, token: LeaseToken, view: GrowingPartition) -> None:
        (lost,) = await view.nack([token], backoff_ms=0)
        if lost is None:
            self._cluster.add(NackAnswered(self.now_ms, token.partition, token.offset, token.granted_at))


_FIRST: Final = asyncio.FIRST_COMPLETED
