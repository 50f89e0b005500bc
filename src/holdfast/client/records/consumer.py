"""Consumer: reads records from an event loop, by group, by registry, or on its own.

The one rule: a record that the application has not finished with is never committed. It has finished with a record when it asks
for the next one, or calls `commit`. A call that was cancelled has lost no record: the next one returns it.
"""

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Final, Self

from holdfast.client.connection_settings import ConnectionSettings, connection_settings
from holdfast.client.librdkafka import KafkaClient
from holdfast.client.partition_offsets import PartitionOffsets, partition_offsets
from holdfast.client.records.assigned_source import AssignedSource, resolve_position, to_position
from holdfast.client.records.fetcher import Fetcher
from holdfast.client.records.group_source import GroupSource
from holdfast.client.records.model import Record, TopicPartition
from holdfast.client.records.partition_source import PartitionSource, SourceContext
from holdfast.client.records.progress import ConsumerProgress
from holdfast.client.records.record_buffer import Fetched
from holdfast.client.records.record_decoder import RecordDecoder
from holdfast.client.records.registry_source import RegistrySource
from holdfast.client.records.serializers import Deserializer
from holdfast.client.records.settings import ConsumerSettings
from holdfast.registry.store import RegistryStore
from holdfast.vocabulary.errors import ClosedError, HoldfastError, UsageError
from holdfast.vocabulary.runtime import Runtime

_log: Final = logging.getLogger(__name__)

TEND_INTERVAL_MS: Final = 1_000  # an application that is slow with a batch keeps its membership
_RECORDS_PER_CLOCK: Final = 32
RebalanceCallback = Callable[[Sequence[TopicPartition]], Awaitable[None] | None]


class Consumer:
    """Reads records. `async with Consumer("localhost:9092", "orders", group_id="billing") as consumer:`, then iterate over it.

    With `group_id`, partitions are shared with the other members of the group, and processed offsets are committed every
    `ConsumerSettings.auto_commit_interval_ms` and when the consumer closes. Without, it reads all partitions of its topics, or the
    `partitions` given, from `start` on, and commits nothing. `start` is `earliest`, `latest`, an offset, a `datetime` or `-1h`; for
    a group, it is where partitions without a committed offset begin: `earliest`, `latest` or `error`. `on_assigned` and
    `on_revoked` are functions of the partitions, asynchronous or not; they cannot commit. It belongs to one task of one loop.
    """

    def __init__(
        self,
        connection: str | ConnectionSettings = "localhost:9092",
        *topics: str,
        group_id: str = "",
        partitions: Sequence[TopicPartition] = (),
        start: str | int | datetime = "earliest",
        value_deserializer: str | Deserializer = "bytes",
        key_deserializer: str | Deserializer = "bytes",
        on_assigned: RebalanceCallback | None = None,
        on_revoked: RebalanceCallback | None = None,
        settings: ConsumerSettings | None = None,
        runtime: Runtime | None = None,
    ) -> None:
        self._connection = connection_settings(connection)
        self._settings, self._runtime = settings or ConsumerSettings(), runtime or Runtime()
        self._clock = self._runtime.clock
        self._decoder = RecordDecoder(value_deserializer, key_deserializer)
        self._on_assigned, self._on_revoked = on_assigned, on_revoked
        self._source: PartitionSource = (
            GroupSource(group_id, topics, start)
            if group_id
            else AssignedSource(topics, partitions, start, clock=self._clock)
        )
        self._commits = bool(group_id)
        self._fetcher: Fetcher | None = None
        self._closed = False
        self._assigned: set[TopicPartition] = set()
        self._progress = ConsumerProgress()
        self._until_clock = 0
        self._asked_at_ms = self._committed_at_ms = self._tended_at_ms = 0

    @classmethod
    def from_registry(
        cls,
        connection: str | ConnectionSettings,
        topic: str,
        registry: RegistryStore,
        *,
        name: str,
        coordinate: bool = True,
        value_deserializer: str | Deserializer = "bytes",
        key_deserializer: str | Deserializer = "bytes",
        on_assigned: RebalanceCallback | None = None,
        on_revoked: RebalanceCallback | None = None,
        settings: ConsumerSettings | None = None,
        runtime: Runtime | None = None,
    ) -> Self:
        """A consumer called `name` whose partitions are claimed through a registry (`hf.registry("billing", partitions=6)`).

        Its checkpoints are fenced: `commit` raises `FencedError` for a partition that somebody else has claimed since, also when
        this process was frozen and does not know it yet. The registry must have as many partitions as the topic, and is bound to
        it; it begins at the start of the log. `coordinate=False`: some other process shares the partitions out.
        """
        consumer = cls(
            connection,
            topic,
            value_deserializer=value_deserializer,
            key_deserializer=key_deserializer,
            on_assigned=on_assigned,
            on_revoked=on_revoked,
            settings=settings,
            runtime=runtime,
        )
        consumer._commits = True
        consumer._source = RegistrySource(
            topic,
            registry,
            name,
            coordinate=coordinate,
            max_poll_interval_ms=consumer._settings.max_poll_interval_ms,
            runtime=consumer._runtime,
        )
        return consumer

    async def __aenter__(self) -> Self:
        if self._fetcher is not None or self._closed:
            raise UsageError("a consumer is opened once: make another one")
        client = await asyncio.to_thread(KafkaClient, self._connection.bootstrap())
        properties = {**self._settings.properties(), **self._source.properties()}
        self._fetcher = fetcher = Fetcher(client, properties, clock=self._clock)
        self._asked_at_ms = self._committed_at_ms = self._clock.boot_ms()
        try:
            await self._source.open(SourceContext(fetcher, _Events(self), self._idle_ms))
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.close()
        except Exception:
            if error is None:  # that of the body came first
                raise

    async def close(self) -> None:
        """Commit what is processed (unless offsets are committed by `commit` alone), give all partitions back, and close."""
        fetcher, self._fetcher, self._closed = self._fetcher, None, True
        if fetcher is None:
            return
        try:
            if self._auto_commits:
                await self._commit_processed()
        finally:
            try:
                await self._source.close()
            finally:
                await fetcher.close()

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are read at present."""
        return frozenset(self._assigned)

    def __aiter__(self) -> AsyncIterator[Record]:
        return self

    async def __anext__(self) -> Record:
        return self._next_buffered() or (await self._next(1, None))[0]

    async def batches(self, max_records: int = 500) -> AsyncIterator[list[Record]]:
        """Records as they arrive, up to `max_records` at once: the fastest way to read. A batch is processed at the next."""
        while True:
            yield await self._next(max_records, None)

    async def fetch(self, max_records: int = 500, *, timeout_ms: int | None = None) -> list[Record]:
        """At least one record, and `max_records` at most; empty after `timeout_ms` without any."""
        return await self._next(max_records, timeout_ms)

    async def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Commit `offsets` (of the next record of each partition), or all records that were delivered so far.

        `ExpiredError`, or `FencedError` of a registry: partitions were taken away before; their records will be delivered to
        another consumer again. Those of other partitions are committed all the same.
        """
        self._open_fetcher()
        self._source.check()
        if offsets is None:
            self._progress.mark_processed()
        lost = self._progress.take_lost()
        refused = await self._commit(self._progress.uncommitted() if offsets is None else offsets)
        for error in refused.values():
            raise error
        for partition in lost:
            raise await self._source.lost_error(partition)

    async def committed(self, *partitions: TopicPartition) -> dict[TopicPartition, int | None]:
        """The committed offset of each partition, by default of those assigned; None: there is none."""
        self._open_fetcher()
        return await self._source.committed(partitions or sorted(self._assigned))

    async def seek(self, partition: TopicPartition, position: str | int | datetime) -> None:
        """Continue at an offset, a time, `earliest` or `latest`."""
        fetcher = self._open_fetcher()
        self._require_assigned([partition])
        wanted = to_position(position, option="position", now_ms=self._clock.now_ms())
        offsets = await asyncio.to_thread(resolve_position, fetcher.client, wanted, [partition])
        await fetcher.seek(TopicPartition(*partition), offsets[TopicPartition(*partition)])
        self._progress.move(TopicPartition(*partition))

    def position(self, partition: TopicPartition) -> int | None:
        """The offset after the last record that was delivered; None: none was since it was assigned."""
        return self._progress.position(TopicPartition(*partition))

    async def pause(self, *partitions: TopicPartition) -> None:
        """Deliver nothing of these partitions (by default, of all) until `resume`. They stay assigned."""
        chosen = self._require_assigned(partitions)
        await self._open_fetcher().pause(chosen)

    async def resume(self, *partitions: TopicPartition) -> None:
        """Deliver records of these partitions (by default, of all) again."""
        chosen = self._require_assigned(partitions)
        await self._open_fetcher().resume(chosen)

    async def lag(self) -> dict[TopicPartition, int | None]:
        """How many records each assigned partition has that were not delivered; None: it has no leader at present."""
        fetcher = self._open_fetcher()
        partitions = sorted(self._assigned)
        unread = [each for each in partitions if self._progress.position(each) is None]
        starts = await self._source.committed(unread) if unread and self._commits else {}
        found = await asyncio.to_thread(partition_offsets, fetcher.client, partitions)
        lag: dict[TopicPartition, int | None] = {}
        for each in partitions:
            known = found[each]
            if not isinstance(known, PartitionOffsets):
                lag[each] = None
                continue
            position = self._progress.position(each)
            position = starts.get(each) if position is None else position
            lag[each] = known.offsets.end - known.offsets.clamp(known.offsets.start if position is None else position)
        return lag

    async def _next(self, count: int, timeout_ms: int | None) -> list[Record]:
        if count < 1:
            raise UsageError("max_records must be at least 1")
        self._progress.mark_processed()
        taken = await self._take(count, timeout_ms)
        return [self._deliver(each, record) for each, record in taken]

    def _next_buffered(self) -> Record | None:
        """The next record if one is here, and nothing is due between records. From any thread."""
        fetcher = self._open_fetcher()
        self._until_clock -= 1
        if self._until_clock <= 0:  # to ask for the time costs as much as a record
            self._until_clock = _RECORDS_PER_CLOCK
            self._asked_at_ms = self._clock.boot_ms()
            if self._asked_at_ms - self._tended_at_ms >= TEND_INTERVAL_MS:
                return None
        self._progress.mark_processed()
        taken = [each for each in fetcher.buffer.take(1) if each[0] in self._assigned]
        return self._deliver(*self._decoded(fetcher, taken)[0]) if taken else None

    async def _take(self, count: int, timeout_ms: int | None) -> list[tuple[TopicPartition, Record]]:
        """Records that nobody has been given yet; empty at the time-out."""
        started_ms = self._asked_at_ms = self._clock.boot_ms()
        while True:
            fetcher = self._open_fetcher()
            await self._tend()
            taken = [each for each in fetcher.buffer.take(count) if each[0] in self._assigned]
            if taken:
                return self._decoded(fetcher, taken)
            await fetcher.poll()
            self._asked_at_ms = now_ms = self._clock.boot_ms()
            if timeout_ms is not None and not len(fetcher.buffer) and now_ms - started_ms >= timeout_ms:
                return []

    def _decoded(self, fetcher: Fetcher, taken: list[Fetched]) -> list[tuple[TopicPartition, Record]]:
        done: list[tuple[TopicPartition, Record]] = []
        for index, (partition, message) in enumerate(taken):
            try:
                done.append((partition, self._decoder.decode(message)))
            except HoldfastError:
                fetcher.buffer.put_back(taken[index:])
                if not done:
                    raise
                break  # those before it first
        return done

    def _deliver(self, partition: TopicPartition, record: Record) -> Record:
        self._progress.deliver(partition, record.offset)
        return record

    async def _tend(self) -> None:
        """What has to happen between records: the membership, rebalances, and commits that are due."""
        self._source.check()
        fetcher, now_ms = self._open_fetcher(), self._clock.boot_ms()
        self._tended_at_ms = now_ms
        if now_ms - fetcher.polled_at_ms >= TEND_INTERVAL_MS and len(fetcher.buffer):
            await fetcher.poll()
        if self._auto_commits and now_ms - self._committed_at_ms >= self._settings.auto_commit_interval_ms:
            self._committed_at_ms = now_ms
            await self._commit_processed()

    @property
    def _auto_commits(self) -> bool:
        return self._commits and self._settings.auto_commit_interval_ms > 0

    async def _commit_processed(self) -> None:
        """For whoever does not commit by himself. What is refused is read again by others, or committed at the next time."""
        for partition in self._progress.take_lost():
            _log.warning("records of %s were delivered and not committed when it was taken away", partition)
        for partition, error in (await self._commit(self._progress.uncommitted())).items():
            _log.warning("processed records of %s are not committed: %s", partition, error)

    async def _commit(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, HoldfastError]:
        if not offsets:
            return {}
        refused = await self._source.commit(offsets)
        self._progress.commit({each: offset for each, offset in offsets.items() if each not in refused})
        return refused

    async def _after_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self._assigned.update(partitions)
        await _call(self._on_assigned, partitions)

    async def _after_revoked(self, partitions: Sequence[TopicPartition], *, lost: bool) -> None:
        try:
            await _call(self._on_revoked, partitions)
            if self._auto_commits and not lost:
                await self._commit_processed()
        finally:
            self._assigned.difference_update(partitions)
            self._progress.lose(partitions)

    def _to_commit_before_revoked(self) -> dict[TopicPartition, int]:
        return self._progress.uncommitted() if self._auto_commits else {}

    def _idle_ms(self) -> float:
        return self._clock.boot_ms() - self._asked_at_ms

    def _require_assigned(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        for each in partitions:
            if each not in self._assigned:
                raise UsageError(f"partition {each[0]}-{each[1]} is not assigned to this consumer")
        return [TopicPartition(*each) for each in partitions or sorted(self._assigned)]

    def _open_fetcher(self) -> Fetcher:
        if self._closed:
            raise ClosedError("consumer")
        if self._fetcher is None:
            raise UsageError("open the consumer first: `async with Consumer(…) as consumer:`")
        return self._fetcher


class _Events:
    """What the source tells the consumer."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    async def assigned(self, partitions: Sequence[TopicPartition]) -> None:
        await self._consumer._after_assigned(partitions)

    async def revoked(self, partitions: Sequence[TopicPartition], *, lost: bool) -> None:
        await self._consumer._after_revoked(partitions, lost=lost)

    def to_commit(self) -> dict[TopicPartition, int]:
        return self._consumer._to_commit_before_revoked()

    def was_committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._consumer._progress.commit(offsets)


async def _call(callback: RebalanceCallback | None, partitions: Sequence[TopicPartition]) -> None:
    if callback is not None:
        done = callback(list(partitions))
        if inspect.isawaitable(done):
            await done
