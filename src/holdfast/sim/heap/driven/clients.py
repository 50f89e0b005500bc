"""Producers and consumers of a driven heap, as a client behaves: it tries again until it has an answer that it can act upon.

The one rule: what a leader answers is an event where the leader answers it. A client may not get the answer, and asks again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, Protocol

from holdfast.heap.errors import MESSAGE_GONE, LeaseLostError, ResourceExhaustedError
from holdfast.heap.lease_token import LeaseToken, parse_token
from holdfast.heap.message_id import parse_message_id
from holdfast.heap.model import NewMessage, PoppedMessage
from holdfast.heap.partition import HeapPartition
from holdfast.heap.records import Op, ProducerSequence
from holdfast.sim.heap.driven.configuration import DrivenConfiguration
from holdfast.sim.heap.driven.history import (
    AckAnswered,
    DrivenEvent,
    EnqueueAnswered,
    MessageDelivered,
    NackAnswered,
)
from holdfast.sim.heap.driven.leader import DrivenLeader
from holdfast.sim.heap.driven.network import SimNetwork
from holdfast.sim.heap.driven.spine import DrivenSpine
from holdfast.vocabulary.errors import HoldfastError, OutcomeUnknownError, UnavailableError

TOPIC_ID: Final = "ab" * 16
_RETRY_MS: Final = 10.0
_POP_TIMEOUT_MS: Final = 2_000.0


class DrivenCluster(Protocol):
    """What clients know of the world."""

    network: SimNetwork
    configuration: DrivenConfiguration
    is_healed: bool

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

    async def _call(self, partition: int, serve: Callable[[HeapPartition], Awaitable[Any]]) -> Any:
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

    async def _until_answered(self, partition: int, serve: Callable[[HeapPartition], Awaitable[Any]]) -> Any:
        while True:
            try:
                return await self._call(partition, serve)
            except HoldfastError:
                await self._network.sleep_ms(_RETRY_MS)

    # ── producers ──

    async def _produce(self, name: str) -> None:
        configuration, random = self._configuration, self._random
        sequence = 0
        for _ in range(configuration.calls):
            await self._network.sleep_ms(random.uniform(0.0, configuration.faults_ms / configuration.calls))
            partition, messages = random.randrange(configuration.partitions), list[NewMessage]()
            for _ in range(random.choice((1, 1, 1, 3))):
                sequence += 1
                self._numbers += 1
                messages.append(
                    NewMessage(
                        payload=str(self._numbers).encode(),
                        priority=random.randrange(configuration.priorities),
                        delay_ms=random.randint(1, 200) if random.random() < configuration.delayed else 0,
                        producer=ProducerSequence(name, 0, sequence),
                    )
                )
            await self._until_answered(partition, partial(self._enqueue, partition, messages))
        self.producing -= 1

    async def _enqueue(self, partition: int, messages: Sequence[NewMessage], view: HeapPartition) -> None:
        for message, found in zip(messages, await view.enqueue(messages), strict=True):
            offset = parse_message_id(bytes.fromhex(TOPIC_ID), found.message_id).offset
            self._cluster.add(EnqueueAnswered(self.now_ms, partition, offset, message.payload, found.duplicate))

    # ── consumers ──

    async def _consume(self, name: str) -> None:
        random = self._random
        while True:
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
                await self._finish(name, parse_token(message.lease_token))

    async def _pop(self, name: str) -> list[PoppedMessage]:
        """A pop of the spine, or of a partition; some are given up."""
        random, healed = self._random, self._cluster.is_healed
        count, wait_ms = random.choice((1, 1, 2, 5)), random.choice((0.0, 50.0, 200.0))
        visibility_ms = self._configuration.visibility_ms
        options: dict[str, Any] = {"count": count, "consumer": name, "visibility_ms": visibility_ms, "wait_ms": wait_ms}
        if random.random() < 0.1:
            partition = random.randrange(self._configuration.partitions)
            found: list[PoppedMessage] = await self._call(partition, lambda view: view.pop(**options))
            return found
        await self._network.pause()
        popping = self._network.start(self._cluster.spine().driver.pop(**options), name)
        patience_ms = random.uniform(0.0, 50.0) if not healed and random.random() < 0.1 else _POP_TIMEOUT_MS
        timer = asyncio.ensure_future(self._network.sleep_ms(patience_ms))
        await asyncio.wait({popping, timer}, return_when=_FIRST)
        timer.cancel()
        if not popping.done():
            popping.cancel()
            await asyncio.wait({popping})
        if popping.cancelled():
            return []
        await self._network.sleep_ms(_RETRY_MS if not popping.exception() and not popping.result() else 0.0)
        return list(popping.result())

    async def _finish(self, name: str, token: LeaseToken) -> None:
        """Work, and say how it went."""
        random, healed = self._random, self._cluster.is_healed
        await self._network.sleep_ms(random.uniform(0.0, 5.0))
        kind = random.random() if not healed else 0.0
        try:
            if kind < 0.7:
                await self._ack(name, token)
            elif kind < 0.85:
                await self._call(token.partition, partial(self._nack, token))
            elif kind < 0.92:
                await self._call(token.partition, lambda view: view.nack([token], op=Op.RELEASE))
            elif kind < 0.95:
                await self._call(token.partition, lambda view: view.extend([token], 200))
        except HoldfastError:
            pass  # it expires

    async def _ack(self, name: str, token: LeaseToken) -> None:
        """That the message is gone is as good as an answer for who has sent the ack before."""
        for tried in range(5):
            try:
                (lost,) = await self._call(token.partition, lambda view: view.ack([token]))
            except HoldfastError:
                await self._network.sleep_ms(_RETRY_MS)
                continue
            if lost is None or (tried and isinstance(lost, LeaseLostError) and lost.reason == MESSAGE_GONE):
                self._cluster.add(AckAnswered(self.now_ms, name, token.partition, token.offset))
            return

    async def _nack(self, token: LeaseToken, view: HeapPartition) -> None:
        (lost,) = await view.nack([token], backoff_ms=0)
        if lost is None:
            self._cluster.add(NackAnswered(self.now_ms, token.partition, token.offset, token.granted_at))


_FIRST: Final = asyncio.FIRST_COMPLETED
