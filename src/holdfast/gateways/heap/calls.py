"""Any node answers: a heap request is served here, or forwarded to the leader of its partition.

The rules: a forwarded request is never forwarded again. What failed without an effect is tried again until the request's time is
over; what may have happened is not. A request over several partitions is one for each of them.
"""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import msgspec

from holdfast.agent.cluster import Cluster
from holdfast.client.broker_login import BrokerLogin
from holdfast.client.heap_connection import HeapConnection
from holdfast.gateways.heap.dead_letter_calls import DeadLetterCalls
from holdfast.gateways.heap.node_connections import HeapNodeConnections
from holdfast.heap.dead_letters import WITHOUT_EFFECT
from holdfast.heap.errors import LeaseLostError, PartitionsGrownError
from holdfast.heap.lease_token import parse_tokens
from holdfast.heap.local_heaps import DLQ_SUFFIX
from holdfast.heap.message_id import parse_message_id
from holdfast.heap.model import Enqueued, NewMessage
from holdfast.heap.service import HeapService, destination_partition
from holdfast.heap.wire import (
    AckRequest,
    CancelRequest,
    CreateRequest,
    DeadLettersRequest,
    DeleteRequest,
    DeliverRequest,
    DescribeRequest,
    EnqueueBatchRequest,
    EnqueueRequest,
    ExtendRequest,
    HeapRequest,
    LostLease,
    MoveRequest,
    NackRequest,
    PeekRequest,
    PlacesRequest,
    PopRequest,
    PurgeRequest,
    ReleaseRequest,
    ReprioritiseRequest,
    SpineRequest,
    StatsRequest,
    UpdateRequest,
)
from holdfast.kernel.lease import Held
from holdfast.log.settings import TopicSettings
from holdfast.log.topics import Topic
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import HoldfastError, InvalidError, OutcomeUnknownError
from holdfast.vocabulary.random import Random, backoff_ms
from holdfast.vocabulary.tasks import gather_or_cancel

R = TypeVar("R")

_RETRY_MS: Final = 5
_RETRY_MAX_MS: Final = 200
_TOKENS_TOGETHER: Final = 1_000  # applied in one turn of the event loop: up to 15 ms


@dataclass(frozen=True, slots=True, kw_only=True)
class HeapBackend:
    """What heap requests need of a node. `request_ms`: how long one is tried, beside the time a pop waits.

    `agent`: this node's own, if it has one. `login`: how this node logs in to others; None: nobody needs to.
    `topic_settings`: rules for all topics.
    """

    heaps: HeapService
    cluster: Cluster
    clock: Clock
    random: Random
    agent: str = ""
    login: BrokerLogin | None = None
    topic_settings: TopicSettings = field(default_factory=TopicSettings)
    request_ms: int = 30_000


class HeapCalls:
    """The heap requests of one node. `administration`: heaps as topics: create, change, list, delete."""

    def __init__(self, backend: HeapBackend) -> None:
        self._backend = backend
        self.administration = backend.heaps.administration.under(backend.topic_settings)
        self._nodes = HeapNodeConnections(backend.cluster, backend.login, backend.clock)
        self._letters = DeadLetterCalls(backend.heaps, backend.clock, lambda request: self._tried(request))
        backend.heaps.deliver_through(self._deliver)

    async def heap(self, topic: str) -> Topic:
        """The topic of a heap. `UnknownTopicError`, `NotAHeapError`."""
        return await self._backend.heaps.heap(topic)

    def close(self) -> None:
        """Close the connections to other nodes."""
        self._nodes.close()

    async def call(self, request: HeapRequest) -> Any:
        """The result of a request, as `heap.wire` lists them. Raises the errors of `HeapService`."""
        if isinstance(request, EnqueueRequest | EnqueueBatchRequest) and not request.forwarded:
            return await self._enqueue(request)
        if isinstance(request, AckRequest | NackRequest | ReleaseRequest | ExtendRequest) and (
            request.partition is None or len(request.tokens) > _TOKENS_TOGETHER
        ):
            return await self._by_token(request)
        of_one = request.partition is not None
        if isinstance(request, DeadLettersRequest) and request.action != "list" and not (request.forwarded and of_one):
            return await self._letters.change(request)
        if of_one:
            return await self._tried(request)
        match request:
            case CreateRequest():
                return await self.administration.create(request.topic, request.partitions, request.config, request.log)
            case DeleteRequest():
                return await self.administration.delete(request.topic)
            case DescribeRequest():
                return await self.administration.describe(request.topic)
            case UpdateRequest():
                return await self.administration.update(request.topic, request.config, partitions=request.partitions)
            case CancelRequest() | ReprioritiseRequest() | MoveRequest():
                heap = await self._backend.heaps.heap(request.topic)
                place = parse_message_id(bytes.fromhex(heap.id), request.message_id)
                return await self._tried(msgspec.structs.replace(request, partition=place.partition))
            case PopRequest():
                return await self._tried(request)
            case PlacesRequest():
                heap = await self._backend.heaps.heap(request.topic)
                leaders = (self._backend.cluster.leader(request.topic, number) for number in range(heap.partitions))
                return [self._address_of(each) for each in leaders]
            case SpineRequest():
                heap = await self._backend.heaps.heap(request.topic)
                resource = await self._backend.heaps.spine_resource(heap)
                return "" if resource is None else self._address_of(self._backend.cluster.holder(resource))
            case _:
                return await self._of_all(request)

    def _address_of(self, held: Held | None) -> str:
        """Of who holds it; "": nobody does, or cannot be reached."""
        member = None if held is None else self._backend.cluster.reachable_member(held.holder)
        return "" if member is None else member.address

    async def _deliver(self, topic: str, partition: int, messages: Sequence[NewMessage]) -> list[Enqueued]:
        """Messages that were moved to another heap, at the leader of their partition there. The same again are duplicates."""
        heap = await self._backend.heaps.destination(topic)
        number = destination_partition(heap, partition)
        request = DeliverRequest(topic=topic, partition=number, messages=messages)
        delivered: list[Enqueued] = await self._tried(request)
        return delivered

    # ── requests of several partitions ──

    async def _enqueue(self, request: EnqueueRequest | EnqueueBatchRequest) -> Any:
        """All or none: of one partition at its leader, of several at the leader of the lowest, which coordinates the others.

        If the heap has grown, messages that belong elsewhere by now are routed again; those that are pinned stay.
        """
        places = _places(request)
        if places is None:
            places = await self._backend.heaps.route(request.topic, request.messages)
        partitions = 0
        while True:
            try:
                return await self._enqueue_at(request, places)
            except PartitionsGrownError as error:
                if error.partitions <= partitions:
                    raise
                partitions = error.partitions
            routed = await self._backend.heaps.route(request.topic, request.messages, partitions=partitions)
            given = zip(request.messages, places, routed, strict=True)
            places = [place if message.pinned else home for message, place, home in given]

    async def _enqueue_at(self, request: EnqueueRequest | EnqueueBatchRequest, places: Sequence[int]) -> Any:
        topic, messages = request.topic, request.messages
        if not places:
            raise InvalidError("messages", "none", "at least one")
        lowest = min(places)
        if lowest == max(places):
            return await self._tried(EnqueueRequest(topic=topic, partition=lowest, messages=messages))
        return await self._tried(EnqueueBatchRequest(topic=topic, partition=lowest, messages=messages, places=places))

    async def _by_token(self, request: AckRequest | NackRequest | ReleaseRequest | ExtendRequest) -> Any:
        """A request for each partition; of many tokens several, one in each turn of the event loop. None, if a token is none.

        `OutcomeUnknownError`: some of them failed, others were done or may be.
        """
        tokens, places = request.tokens, defaultdict[int, list[int]](list)
        for first in range(0, len(tokens), _TOKENS_TOGETHER):
            if first:
                await self._backend.heaps.turns.next()
            for at, token in enumerate(parse_tokens(tokens[first : first + _TOKENS_TOGETHER]), first):
                places[token.partition if request.partition is None else request.partition].append(at)
        parts = [
            (number, mine[first : first + _TOKENS_TOGETHER])
            for number, mine in places.items()
            for first in range(0, len(mine), _TOKENS_TOGETHER)
        ]
        requests = [
            msgspec.structs.replace(request, partition=number, tokens=[tokens[at] for at in mine])
            for number, mine in parts
        ]
        found = await self._outcomes(requests, in_turns=len(tokens) > _TOKENS_TOGETHER)
        failure = next((each for each in found if isinstance(each, HoldfastError)), None)
        if failure is not None:
            if isinstance(failure, WITHOUT_EFFECT) and not all(isinstance(each, WITHOUT_EFFECT) for each in found):
                what = f"{type(request).__name__} of {request.topic}"
                raise OutcomeUnknownError(what, f"a part of it may be done: {failure}")
            raise failure
        results = {
            at: each
            for (_, mine), several in zip(parts, found, strict=True)
            for at, each in zip(mine, several, strict=True)
        }
        return [results[at] for at in range(len(results))]

    async def _of_all(self, request: HeapRequest) -> Any:
        if isinstance(request, DeadLettersRequest):
            return await self._letters.list(request)
        heap = await self._backend.heaps.heap(request.topic)
        parts = [msgspec.structs.replace(request, partition=number) for number in range(heap.partitions)]
        found = await self._all(parts)
        match request:
            case PurgeRequest():
                return sum(found)
        return [each for several in found for each in several]

    async def _all(self, requests: Sequence[HeapRequest]) -> list[Any]:
        """The results of requests for several partitions. All of them are made; the first failure is raised."""
        found = await self._outcomes(requests)
        for each in found:
            if isinstance(each, HoldfastError):
                raise each
        return found

    async def _outcomes(self, requests: Sequence[HeapRequest], *, in_turns: bool = False) -> list[Any]:
        """The results of requests, or their errors."""

        async def tried(request: HeapRequest) -> Any:
            try:
                if in_turns:
                    await self._backend.heaps.turns.next()
                return await self._tried(request)
            except HoldfastError as error:
                return error

        return await gather_or_cancel(*map(tried, requests))

    # ── one partition ──

    async def _tried(self, request: HeapRequest) -> Any:
        """The result of a request of one partition, here or at its leader."""
        clock = self._backend.clock
        wait_ms = request.wait_ms if isinstance(request, PopRequest) else 0
        began_ms = clock.boot_ms()
        attempt = 0
        while True:
            try:
                return await self._once(request)
            except PartitionsGrownError:
                raise  # the same again would be refused again
            except WITHOUT_EFFECT:
                left_ms = began_ms + self._backend.request_ms - clock.boot_ms()
                if request.forwarded or left_ms <= _RETRY_MAX_MS:
                    raise
            await clock.sleep_ms(
                backoff_ms(attempt, base_ms=_RETRY_MS, max_ms=_RETRY_MAX_MS, random=self._backend.random)
            )
            attempt += 1
            if isinstance(request, PopRequest):  # it waits once in all
                waits_ms = max(0.0, began_ms + wait_ms - clock.boot_ms())
                request = msgspec.structs.replace(request, wait_ms=waits_ms)

    async def _once(self, request: HeapRequest) -> Any:
        if isinstance(request, PopRequest) and request.partition is None:
            # Of one partition at its leader; of several through the spine, which every agent reaches. A heap may be made anew.
            heap = await self._backend.heaps.heap(request.topic)
            if heap.partitions == 1:
                request = msgspec.structs.replace(request, partition=0, whole=True)
        agent = self._elsewhere(request)
        if agent and (connection := await self._nodes.to(agent, request)) is not None:
            return await self._forwarded(connection, msgspec.structs.replace(request, forwarded=True))
        return await self._serve(request)

    async def _forwarded(self, connection: HeapConnection, request: HeapRequest) -> Any:
        """The result at another node. One that is frozen keeps its connections, and answers nothing."""
        within_ms: float | None = self._backend.request_ms
        if isinstance(request, PopRequest):
            within_ms = self._backend.request_ms + request.wait_ms
        elif isinstance(request, DeadLettersRequest):
            within_ms = None  # a replay takes the time that its rate gives it
        try:
            async with asyncio.timeout(None if within_ms is None else within_ms / 1000):
                return await connection.call(request)
        except TimeoutError:
            connection.close()
            what = f"{type(request).__name__} of {request.topic}"
            raise OutcomeUnknownError(what, f"no answer of its leader within {within_ms:.0f} ms") from None
        except asyncio.CancelledError:
            if isinstance(request, PopRequest):
                connection.close()  # what it leases now would be nobody's: the leader sees that its client is gone
            raise

    def _elsewhere(self, request: HeapRequest) -> str:
        """The agent that serves the request; "": this node does, if anybody."""
        heaps, cluster = self._backend.heaps, self._backend.cluster
        if request.forwarded or (request.partition is None and heaps.spines is not None):
            return ""
        # Dead letters are asked for by the name of the heap that they were in.
        topic = request.topic + DLQ_SUFFIX if isinstance(request, DeadLettersRequest) else request.topic
        if request.partition is not None and heaps.serves(topic, request.partition):
            return ""
        held = cluster.leader(topic, request.partition or 0)
        # One that is about to open it here is not asked over the network: that address may not be reachable from here.
        return "" if held is None or held.holder == self._backend.agent else held.holder

    async def _serve(self, request: HeapRequest) -> Any:
        heaps, topic, partition = self._backend.heaps, request.topic, request.partition
        match request:
            case EnqueueRequest():
                return await heaps.enqueue_batch(topic, request.messages, partition=partition)
            case EnqueueBatchRequest():
                return await heaps.enqueue_batch(topic, request.messages, places=request.places)
            case DeliverRequest():
                return await heaps.deliver(topic, partition or 0, request.messages)
            case PopRequest():
                return await heaps.pop(
                    topic,
                    consumer=request.consumer,
                    max_messages=request.max_messages,
                    visibility_timeout_ms=request.visibility_timeout_ms,
                    wait_ms=request.wait_ms,
                    partition=partition,
                    whole=request.whole,
                )
            case AckRequest():
                return _settled(await heaps.ack(topic, request.tokens))
            case NackRequest():
                nacked = heaps.nack(topic, request.tokens, backoff_ms=request.backoff_ms, reason=request.reason)
                return _settled(await nacked)
            case ReleaseRequest():
                return _settled(await heaps.release(topic, request.tokens))
            case ExtendRequest():
                return _settled(await heaps.extend(topic, request.tokens, request.extension_ms))
            case PeekRequest():
                return await heaps.peek(topic, limit=request.limit, partition=partition)
            case StatsRequest():
                return await heaps.stats(topic, partition=partition)
            case CancelRequest():
                return await heaps.cancel(topic, request.message_id)
            case ReprioritiseRequest():
                return await heaps.reprioritise(topic, request.message_id, request.priority)
            case MoveRequest():
                return await heaps.move_to_dead_letters(topic, request.message_id, request.reason)
            case PurgeRequest():
                return await heaps.purge(topic, partition=partition)
            case DeadLettersRequest():
                return await self._letters.serve(request)
        raise InvalidError("heap request", type(request).__name__, "one of this protocol")


def _places(request: EnqueueRequest | EnqueueBatchRequest) -> Sequence[int] | None:
    """Where the caller sends each message; None: wherever it belongs."""
    if isinstance(request, EnqueueBatchRequest):
        if len(request.places) != len(request.messages):
            raise InvalidError("places", len(request.places), f"{len(request.messages)}, as there are messages")
        return request.places
    return None if request.partition is None else [request.partition] * len(request.messages)


def _settled(found: Sequence[R | LeaseLostError]) -> list[R | LostLease]:
    return [
        LostLease(each.message_id, each.reason, each.epochs, each.now_ms) if isinstance(each, LeaseLostError) else each
        for each in found
    ]
