"""A client of heaps: enqueue, pop, and what operators do."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

import msgspec

from holdfast.client.broker_login import LoginRefusedError
from holdfast.heap.administration import HeapDescription
from holdfast.heap.dead_letters import DeadLetterReport
from holdfast.heap.errors import ResourceExhaustedError
from holdfast.heap.model import Enqueued, NewMessage, PartitionStats, PeekedMessage, PoppedMessage
from holdfast.heap.records import ProducerSequence
from holdfast.heap.wire import (
    CancelRequest,
    ConfirmRequest,
    CreateRequest,
    DeadLettersRequest,
    DeleteRequest,
    DescribeRequest,
    MoveRequest,
    PeekRequest,
    PopRequest,
    PurgeRequest,
    ReleaseRequest,
    ReprioritiseRequest,
    StatsRequest,
    UpdateRequest,
)
from holdfast.heaps.enqueuer import Enqueuer
from holdfast.heaps.leases import Leases
from holdfast.heaps.login import heap_login
from holdfast.heaps.message import Message
from holdfast.heaps.nodes import HeapNodes
from holdfast.heaps.popper import Popper
from holdfast.heaps.tracing import traced
from holdfast.log.errors import NotLeaderError
from holdfast.log.topics import TopicExistsError
from holdfast.vocabulary.errors import ClosedError, HoldfastError, InvalidError, OutcomeUnknownError, UnavailableError
from holdfast.vocabulary.runtime import Runtime
from holdfast.vocabulary.settings import MIB, check_between

_log: Final = logging.getLogger(__name__)

_WAIT_MS: Final = 20_000
_EARLY_MS: Final = 100  # a pop that is answered so long before its time is asked again
_EXHAUSTED_MS: Final = 1_000  # after which a consumer with all the leases it may have asks again
_VISIBILITY_MS: Final = 30_000  # a heap's default
_LINGER_MS_MAX: Final = 60_000


class HeapClient:
    """Heaps of one cluster. Made by `connect`; belongs to one event loop."""

    def __init__(self, nodes: HeapNodes, *, name: str, buffered_bytes_max: int, linger_ms: float) -> None:
        self._nodes, self.name = nodes, name
        self._leases = Leases(nodes)
        self._enqueuing = Enqueuer(nodes, name=name, bytes_max=buffered_bytes_max, linger_ms=linger_ms)
        self._popping = Popper(nodes, consumer=name, give_back=self._give_back)
        self._prefetched: list[list[Message]] = []  # of each stream: what it has not handed out
        self._closed = False

    async def create(
        self,
        topic: str,
        *,
        partitions: int = 1,
        config: Mapping[str, object] | None = None,
        log: Mapping[str, object] | None = None,
        exist_ok: bool = False,
    ) -> HeapDescription:
        """Create a heap and its dead letters. `config`, `log`: docs/heaps.md. `TopicExistsError`, unless `exist_ok`."""
        request = CreateRequest(topic=topic, partitions=partitions, config=dict(config or {}), log=dict(log or {}))
        try:
            made: HeapDescription = await self._nodes.call(request, again=exist_ok)
        except TopicExistsError:
            if not exist_ok:
                raise
            return await self.describe(topic)
        return made

    async def describe(self, topic: str) -> HeapDescription:
        """How a heap is configured. `UnknownTopicError`, `NotAHeapError`."""
        found: HeapDescription = await self._nodes.call(DescribeRequest(topic=topic), again=True)
        return found

    async def update(
        self, topic: str, *, partitions: int | None = None, config: Mapping[str, object | None] | None = None
    ) -> HeapDescription:
        """Change settings of a heap, None takes one back to its default, and give it more `partitions`: docs/heaps.md.

        `PartitionCountError`: it has more than that already.
        """
        request = UpdateRequest(topic=topic, partitions=partitions, config=dict(config or {}))
        changed: HeapDescription = await self._nodes.call(request, again=True)
        self._nodes.places.forget(topic)
        return changed

    async def confirm(self, action: str, topic: str) -> str:
        """A token for one call that destroys messages, good once: `heap.delete`, `heap.purge`, `heap.dlq.delete`."""
        token: str = (await self._nodes.call(ConfirmRequest(topic=topic, action=action), again=True))[0]
        return token

    async def delete(self, topic: str, *, confirmation_token: str = "") -> None:
        """Delete a heap, its dead letters, and everything in both. `UnconfirmedError`: without a token of `confirm`."""
        self._nodes.places.forget(topic)
        request = DeleteRequest(topic=topic, force=True, confirmation_token=confirmation_token)
        await self._nodes.call(request, again=False)

    async def enqueue(
        self,
        topic: str,
        payload: bytes,
        *,
        priority: int = 0,
        delay: float = 0,
        max_retries: int | None = None,
        partition_key: str | None = None,
        producer: tuple[str, int, int] | None = None,
        headers: Mapping[str, bytes] | None = None,
        fairness_key: str | None = None,
    ) -> Enqueued:
        """Enqueue a message; returns when it is durable. It is enqueued once, also if an answer is lost on the way.

        `delay`: seconds until it may be popped. `producer`: your own (producer, epoch, sequence), if the same message may be
        enqueued by another process, too. `fairness_key`: whose message it is, where the heap is fair to keys.
        """
        message = NewMessage(
            payload=payload,
            priority=priority,
            delay_ms=round(delay * 1000),
            max_retries=max_retries,
            partition_key=partition_key,
            producer=None if producer is None else ProducerSequence(*producer),
            headers=tuple((headers or {}).items()),
            fairness_key=fairness_key,
        )
        return await self._enqueuing.enqueue(topic, await self._nodes.places.count(topic), traced([message])[0])

    async def enqueue_many(self, topic: str, messages: Sequence[NewMessage]) -> list[Enqueued]:
        """Enqueue messages; returns when all are durable, each once. The error of one that is refused is raised at the end."""
        return await self._enqueuing.enqueue_many(topic, await self._nodes.places.count(topic), traced(messages))

    async def enqueue_batch(self, topic: str, messages: Sequence[NewMessage]) -> list[Enqueued]:
        """Enqueue messages, all of them or none, also if they are of several partitions; returns when they are durable.

        It happens once, also if an answer is lost on the way. `BatchAbortedError`: other batches with the same producers' numbers
        were in the way for as long as a call is tried.
        """
        return await self._enqueuing.enqueue_batch(topic, await self._nodes.places.count(topic), traced(messages))

    async def ack(self, messages: Sequence[Message]) -> None:
        """The work on these is done: they are gone. Returns when that is durable. `LeaseLostError`: of the first that was lost."""
        await self._leases.ack_many(messages)

    async def pop(
        self, topic: str, *, max_messages: int = 1, visibility: float | None = None, wait: float = 0
    ) -> list[Message]:
        """Lease messages, the best first. `wait`: seconds for the first one. They are renewed until they are settled.

        `visibility`: seconds until a consumer that is gone loses them; as the heap is configured by default.
        """
        if self._closed:
            raise ClosedError("heap client")
        visibility_ms = None if visibility is None else round(visibility * 1000)
        await self._nodes.places.find(topic)
        asked_ms = began_ms = self._nodes.clock.boot_ms()
        if wait > 0:
            request = PopRequest(
                topic=topic,
                consumer=self.name,
                max_messages=max_messages,
                visibility_timeout_ms=visibility_ms,
                wait_ms=wait * 1000,
            )
            found = await self._nodes.pop(request)
            while not found and not self._closed:
                left_ms = wait * 1000 - (self._nodes.clock.boot_ms() - began_ms)
                if left_ms < _EARLY_MS:
                    break
                await self._nodes.pause(0)  # the session of its connection is over: the next one has another
                asked_ms = self._nodes.clock.boot_ms()
                found = await self._nodes.pop(msgspec.structs.replace(request, wait_ms=left_ms))
        else:
            found = await self._popping.pop(topic, max_messages, visibility_ms)
        if self._closed:  # meanwhile: nobody would renew them
            await self._give_back(topic, found)
            raise ClosedError("heap client")
        leases = self._leases
        if visibility_ms is None:
            visibility_ms = found[0].visibility_ms or await self._visibility_ms(topic) if found else 0
        popped = [Message(each, visibility_ms, leases, each.lease_deadline_ms, asked_ms) for each in found]
        self._leases.keep(popped)
        return popped

    async def release(self, messages: Sequence[Message]) -> None:
        """Give messages back that were not worked on, together. What cannot be given back comes back when its lease is over."""
        await self._leases.release_all([each for each in messages if not each.settled])

    async def abandon(self, popping: "asyncio.Future[Message] | asyncio.Future[list[Message]]") -> None:
        """End a pop that nobody waits for any more. What it has got is given back."""
        popping.cancel()
        await asyncio.wait((popping,))
        if not popping.cancelled() and popping.exception() is None:
            found = popping.result()
            await self.release(found if isinstance(found, list) else [found])

    async def pop_stream(
        self, topic: str, *, prefetch: int = 1, visibility: float | None = None
    ) -> AsyncGenerator[Message, None]:
        """Messages for as long as it is iterated, through every failover.

        At most `prefetch` of them are leased and not settled at any time: more hide what is more urgent from other consumers. Where
        the heap allows a consumer less, it waits for a lease to end. What was not handed out when it ends is given back.
        """
        if prefetch < 1:
            raise InvalidError("prefetch", prefetch, "at least 1")
        waiting: list[Message] = []
        self._prefetched.append(waiting)
        out: list[Message] = []
        attempt = 0
        try:
            while True:
                if waiting:
                    message = waiting.pop(0)
                    if not message.is_lost:
                        out.append(message)
                        yield message
                    continue
                out = [message for message in out if not message.settled and not message.is_lost]
                room = prefetch - len(out)
                if room <= 0:
                    await self._leases.changed.wait()
                    continue
                try:
                    waiting += await self.pop(topic, max_messages=room, visibility=visibility, wait=_WAIT_MS / 1000)
                    attempt = 0
                except LoginRefusedError:
                    raise
                except (NotLeaderError, UnavailableError, OutcomeUnknownError):
                    await self._nodes.pause(attempt)  # a failover: leases whose answer was lost come back by themselves
                    attempt += 1
                except ResourceExhaustedError as error:  # leases of this consumer end here, or in another process
                    if not attempt:
                        _log.warning("pops of heap %s wait for a lease to end: %s", topic, error)
                    await self._leases.changed.wait_ms(self._nodes.clock, _EXHAUSTED_MS)
                    attempt += 1
        finally:
            self._prefetched = [each for each in self._prefetched if each is not waiting]
            await asyncio.shield(self._leases.release_all(waiting))

    async def peek(self, topic: str, *, limit: int = 10) -> list[PeekedMessage]:
        """What would be popped next, not leased."""
        found: list[PeekedMessage] = await self._nodes.call(PeekRequest(topic=topic, limit=limit), again=True)
        return found

    async def stats(self, topic: str) -> list[PartitionStats]:
        """What is in each partition."""
        found: list[PartitionStats] = await self._nodes.call(StatsRequest(topic=topic), again=True)
        return found

    async def cancel(self, topic: str, message_id: str) -> None:
        """Withdraw a message, leased or not."""
        await self._nodes.call(CancelRequest(topic=topic, message_id=message_id), again=False)

    async def reprioritise(self, topic: str, message_id: str, priority: int) -> None:
        """Give a message another priority."""
        request = ReprioritiseRequest(topic=topic, message_id=message_id, priority=priority)
        await self._nodes.call(request, again=True)

    async def move_to_dead_letters(self, topic: str, message_id: str, reason: str = "") -> None:
        """Send a message to the dead letters."""
        await self._nodes.call(MoveRequest(topic=topic, message_id=message_id, reason=reason), again=False)

    async def dead_letters(
        self,
        topic: str,
        *,
        message_ids: Sequence[str] | None = None,
        reason_contains: str = "",
        attempts_min: int = 0,
        limit: int = 100,
    ) -> list[PeekedMessage]:
        """Dead letters of a heap that match everything that is given; those that are leased are left out."""
        request = DeadLettersRequest(
            topic=topic,
            action="list",
            message_ids=message_ids,
            reason_contains=reason_contains,
            attempts_min=attempts_min,
            limit=limit,
        )
        found: list[PeekedMessage] = await self._nodes.call(request, again=True)
        return found

    async def replay_dead_letters(
        self,
        topic: str,
        *,
        message_ids: Sequence[str] | None = None,
        reason_contains: str = "",
        attempts_min: int = 0,
        limit: int | None = None,
        dry_run: bool = False,
        rate_per_s: float | None = None,
    ) -> DeadLetterReport:
        """Enqueue dead letters again, with all their tries; how many matched and were. They arrive soon after, each once.

        `rate_per_s`: so many a second; it takes the time that this gives it.
        """
        request = DeadLettersRequest(
            topic=topic,
            action="replay",
            message_ids=message_ids,
            reason_contains=reason_contains,
            attempts_min=attempts_min,
            limit=limit,
            dry_run=dry_run,
            rate_per_s=rate_per_s,
        )
        report: DeadLetterReport = await self._nodes.call(request, again=False)
        return report

    async def delete_dead_letters(
        self,
        topic: str,
        *,
        message_ids: Sequence[str] | None = None,
        reason_contains: str = "",
        attempts_min: int = 0,
        limit: int | None = None,
        dry_run: bool = False,
        confirmation_token: str = "",
    ) -> DeadLetterReport:
        """Delete dead letters; how many matched and were. `UnconfirmedError`: without a token of `confirm`."""
        request = DeadLettersRequest(
            topic=topic,
            action="delete",
            message_ids=message_ids,
            reason_contains=reason_contains,
            attempts_min=attempts_min,
            limit=limit,
            dry_run=dry_run,
            force=True,
            confirmation_token=confirmation_token,
        )
        report: DeadLetterReport = await self._nodes.call(request, again=False)
        return report

    async def purge(self, topic: str, *, confirmation_token: str = "") -> int:
        """Withdraw every message; how many there were. `UnconfirmedError`: without a token of `confirm`."""
        request = PurgeRequest(topic=topic, force=True, confirmation_token=confirmation_token)
        found: int = await self._nodes.call(request, again=False)
        return found

    async def flush(self) -> None:
        """Return when everything that was given to `enqueue` has an answer."""
        await self._enqueuing.flush()

    async def close(self) -> None:
        """Finish what is on its way, and close. What a pop gets meanwhile, and streams have not handed out, is given back."""
        self._closed = True
        await self._enqueuing.flush()
        await self._popping.close()
        await self._nodes.end_pops()
        await self._leases.release_all([each for waiting in self._prefetched for each in waiting])
        await self._leases.close()
        self._nodes.close()

    async def _visibility_ms(self, topic: str) -> int:
        """How long a heap leases messages, where its nodes are of an older release and do not say so in their answers."""
        try:
            return (await self.describe(topic)).config.visibility_timeout_ms
        except HoldfastError:
            return _VISIBILITY_MS

    async def _give_back(self, topic: str, popped: Sequence[PoppedMessage]) -> None:
        with suppress(HoldfastError):  # what cannot be given back comes back when its lease is over
            tokens = [each.lease_token for each in popped]
            await self._nodes.call(ReleaseRequest(topic=topic, tokens=tokens), again=True)


@asynccontextmanager
async def connect(
    bootstrap: str = "127.0.0.1:9092",
    *,
    name: str = "",
    user: str = "",
    password: str = "",
    api_key: str = "",
    mechanism: str = "SCRAM-SHA-512",
    tls_ca: str = "",
    tls_cert: str = "",
    tls_key: str = "",
    timeout: float = 30.0,
    buffered_bytes_max: int = 64 * MIB,
    linger_ms: float = 5.0,
    runtime: Runtime | None = None,
) -> AsyncIterator[HeapClient]:
    """A client of the heaps of a cluster. `name`: of the consumer, for people; a random one by default.

    `timeout`: seconds that a call is tried. `buffered_bytes_max`: payloads on their way; `enqueue` waits beyond. `linger_ms`: how
    long messages that may go to any partition wait for more while others are on their way; they leave together, to one partition.
    `user` and `password`, or `api_key`: who logs in; `mechanism`: how a password does (`PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512`; a
    key always by PLAIN). `tls_ca`: PEM file of the authorities of the nodes' certificates, with which there is TLS; `tls_cert` and
    `tls_key`: the client's own certificate, where nodes ask for one. Calls raise `LoginRefusedError` at once.
    """
    check_between("linger_ms", linger_ms, 0, _LINGER_MS_MAX)
    runtime = runtime or Runtime()
    login = heap_login(
        user=user,
        password=password,
        api_key=api_key,
        mechanism=mechanism,
        tls_ca=tls_ca,
        tls_cert=tls_cert,
        tls_key=tls_key,
        random=runtime.random,
    )
    nodes = HeapNodes(bootstrap, timeout_ms=round(timeout * 1000), runtime=runtime, login=login)
    client = HeapClient(
        nodes,
        name=name or f"client-{runtime.random.token()}",
        buffered_bytes_max=buffered_bytes_max,
        linger_ms=linger_ms,
    )
    try:
        yield client
    finally:
        await client.close()
