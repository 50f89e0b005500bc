"""Any node answers: a request is served here, or forwarded to the leader of its partition or the owner of its cursor.

The rules: a forwarded request is never forwarded again. What failed without an effect is tried again until `request_ms` has passed;
what may have happened is not. Payloads that came together are appended together, in their order, or not at all.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from holdfast.cursors.cursor import CursorDeliveries, CursorRead
from holdfast.cursors.errors import NotCursorOwnerError
from holdfast.cursors.keys import shard_resource
from holdfast.gateways.text.backend import TextBackend
from holdfast.gateways.text.errors import RETRIABLE, RemoteRefusal, raise_remote
from holdfast.gateways.text.get_groups import GetGroups
from holdfast.gateways.text.node_connections import NodeConnections
from holdfast.gateways.text.put_groups import PutGroups
from holdfast.gateways.text.record_reads import ReadRecords, published_records, read_records, remote_records
from holdfast.gateways.text.records import encode_payloads
from holdfast.gateways.text.security import NODE_MARK
from holdfast.kernel.lease import Held
from holdfast.log.batches import Record, encode
from holdfast.log.errors import NotLeaderError
from holdfast.log.topics import Topic, TopicExistsError, UnknownTopicError
from holdfast.security.tls import CurrentContext
from holdfast.vocabulary.errors import (
    ClosedError,
    ExpiredError,
    FencedError,
    HoldfastError,
    InvalidError,
    OutcomeUnknownError,
    UnavailableError,
)
from holdfast.vocabulary.random import backoff_ms

T = TypeVar("T")

_RETRY_MS: Final = 5
_RETRY_MAX_MS: Final = 200
_READS_RETRIED: Final = (*RETRIABLE, FencedError, ExpiredError, ClosedError, OutcomeUnknownError)


def _node_token(backend: TextBackend) -> str:
    """What this node logs in with at other nodes."""
    return NODE_MARK + backend.security.secret.text_token if backend.security is not None else ""


class TopicRoutes:
    """Requests of one node to whoever serves them."""

    def __init__(self, backend: TextBackend) -> None:
        self._backend = backend
        self._nodes = NodeConnections(backend.settings, node=backend.node, token=_node_token(backend))
        self._puts = PutGroups(backend.settings.frame_bytes_max)
        self._gets = GetGroups(self._nodes, backend.counters)

    def forward_with(self, tls: CurrentContext) -> None:
        """Forward over TLS."""
        self._nodes.tls = tls

    @property
    def settling(self) -> bool:
        """Whether an owner has not heard yet which of its records were delivered."""
        return self._gets.settling

    async def close(self) -> None:
        """Close the connections to other nodes."""
        await self._gets.close()
        await self._puts.close()
        self._nodes.close()

    # ── topics ──

    async def register(self, name: str) -> None:
        """Create the topic, of one partition, unless it exists."""
        settings = self._backend.settings
        config: dict[str, object] = {"rotation_entries": settings.rotation_entries} if settings.rotation_entries else {}

        async def create() -> None:
            if self._backend.cluster.topic(name) is None:
                try:
                    await self._backend.log.create_topic(name, 1, config)
                except TopicExistsError:
                    return

        await self._retried(create, RETRIABLE, forwarded=False)

    async def _topic(self, name: str, *, create: bool = False) -> Topic:
        try:
            topic = self._backend.cluster.topic(name) or await self._backend.log.topics.get(name)
        except UnknownTopicError:
            if not create or not self._backend.settings.auto_create_topics:
                raise
            await self.register(name)
            topic = await self._backend.log.topics.get(name)
        if topic.partitions != 1:
            raise InvalidError(
                f"topic {name} of {topic.partitions} partitions", name, "one of a single partition: use FETCH, or Kafka"
            )
        return topic

    # ── PUT ──

    async def put(
        self, name: str, payloads: Sequence[bytes], *, forwarded: bool, create: bool = True
    ) -> list[HoldfastError | None]:
        """Append the payloads; an error for each, or None once it is as durable as its topic asks for.

        `create`: whether a missing topic may be created. A request that was forwarded found its topic before.
        """
        create = create and not forwarded

        async def append(together: Sequence[bytes]) -> None:
            await self._retried(lambda: self._put(name, together, forwarded, create), RETRIABLE, forwarded=forwarded)

        try:
            await self._puts.put((name, forwarded, create), payloads, append)
        except (InvalidError, RemoteRefusal) as error:
            if len(payloads) == 1 or forwarded or isinstance(error, UnknownTopicError):
                return [error] * len(payloads)
            # Nothing was appended, one of them is at fault: whose it is shows when each is appended by itself.
            return [(await self.put(name, [payload], forwarded=False, create=create))[0] for payload in payloads]
        except HoldfastError as error:
            return [error] * len(payloads)
        return [None] * len(payloads)

    async def _put(self, name: str, payloads: Sequence[bytes], forwarded: bool, create: bool) -> None:
        topic = await self._topic(name, create=create)
        backend = self._backend
        if backend.log.is_serving(name, 0) or forwarded:
            now_ms = backend.clock.now_ms()
            records = [Record(at, now_ms, None, payload) for at, payload in enumerate(payloads)]
            await backend.log.produce(name, 0, encode(records))
            return
        request = f"PUT {name} ".encode() + payloads[0]
        if len(payloads) > 1:
            request = f"PUTS {name} ".encode() + encode_payloads(payloads)
        async with self._nodes.connection(self._leader(topic, 0)) as connection:
            backend.counters.forwarded += len(payloads)
            raise_remote(await connection.ask(request), name, 0)

    # ── reads ──

    async def fetch(self, name: str, partition: int, offset: int, *, bytes_max: int) -> ReadRecords:
        """Records of a partition from an offset on, from its leader. Retried: a read has no effect."""

        async def read() -> ReadRecords:
            topic = self._backend.cluster.topic(name) or await self._backend.log.topics.get(name)
            return await self._read(topic, partition, offset, bytes_max)

        return await self._retried(read, _READS_RETRIED, forwarded=False)

    async def read(self, name: str, partition: int, offset: int, bytes_max: int) -> ReadRecords:
        """The same for another node, once: from the log of this one, which must lead the partition and limits the bytes."""
        most = max(self._backend.settings.fetch_bytes_max, self._backend.cursors.settings.read_bytes)
        return await read_records(self._backend.log, name, partition, offset, min(bytes_max, most))

    async def _read(self, topic: Topic, partition: int, offset: int, bytes_max: int) -> ReadRecords:
        log = self._backend.log
        if log.is_serving(topic.name, partition):
            return await read_records(log, topic.name, partition, offset, bytes_max)
        try:
            async with self._nodes.connection(self._leader(topic, partition)) as connection:
                return await remote_records(connection, topic.name, partition, offset, bytes_max)
        except (NotLeaderError, UnavailableError, OutcomeUnknownError):
            published = await published_records(log, topic.name, partition, offset, bytes_max)
            if published is None:
                raise  # what is not published is the leader's alone
            return published

    # ── GET ──

    async def take(self, name: str, count: int, *, forwarded: bool) -> CursorDeliveries:
        """The next records of a topic's cursor, at most `count`; none at the end. To be settled once."""
        return await self._retried(lambda: self._take(name, count, forwarded), _READS_RETRIED, forwarded=forwarded)

    async def _take(self, name: str, count: int, forwarded: bool) -> CursorDeliveries:
        topic = await self._topic(name)
        backend = self._backend
        try:
            return await backend.cursors.take(topic, count, self._read_for_cursor)
        except NotCursorOwnerError as error:
            if forwarded:
                raise
            held = backend.cluster.holder(shard_resource(error.shard))
            address = self._address(held)
            if not address:
                raise
        return await self._gets.take(address, name, count)

    async def _read_for_cursor(self, topic: Topic, offset: int, bytes_max: int) -> CursorRead:
        found = await self._read(topic, 0, offset, bytes_max)
        if not found.records and offset > found.end_offset:  # an acknowledged tail was lost with its disk
            return CursorRead((), found.end_offset)
        return CursorRead(found.records, max(found.next_offset, min(found.start_offset, found.end_offset)))

    # ── finding and trying again ──

    def _leader(self, topic: Topic, partition: int) -> str:
        """The text address of a partition's leader. `NotLeaderError`: it has none, or it is this node, which is opening it."""
        if not 0 <= partition < topic.partitions:
            raise UnknownTopicError(f"{topic.name}:{partition}")
        held = self._backend.cluster.leader(topic.name, partition)
        address = self._address(held)
        if not address:
            holder = "" if held is None else held.holder
            reason = f"its leader {holder} serves no text" if holder and holder != self._backend.agent else ""
            raise NotLeaderError(topic.name, partition, holder, reason)
        return address

    def _address(self, held: Held | None) -> str:
        if held is None or held.holder == self._backend.agent:
            return ""
        member = self._backend.cluster.member(held.holder)
        return "" if member is None else member.text_address

    async def _retried(
        self, work: Callable[[], Awaitable[T]], retried: tuple[type[HoldfastError], ...], *, forwarded: bool
    ) -> T:
        """Do the work, again after errors without an effect, within the time of a request. The forwarding node retries instead."""
        backend = self._backend
        deadline_ms, attempt = backend.clock.boot_ms() + backend.settings.request_ms, 0
        while True:
            try:
                return await work()
            except retried:
                pause_ms = backoff_ms(attempt, base_ms=_RETRY_MS, max_ms=_RETRY_MAX_MS, random=backend.random)
                if forwarded or backend.clock.boot_ms() + pause_ms >= deadline_ms:
                    raise
            attempt += 1
            backend.counters.retries += 1
            await backend.clock.sleep_ms(pause_ms)
