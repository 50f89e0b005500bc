"""An asynchronous client of a cluster's brokers: topics, offsets, the tail of a partition, and the URLs of store and objects.

    DescribeConfigs v4, Metadata v12, ListOffsets v7, Fetch v13 (by topic id: a recreated topic is another one)

The one rule: metadata is refreshed where a leader is unknown and after every refusal, and a request is retried until its deadline:
a partition without a leader usually gets one soon.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID

from holdfast.client.addresses import BrokerAddress, parse_bootstrap
from holdfast.client.broker_login import BrokerLogin, LoginRefusedError
from holdfast.client.connection import BrokerConnection
from holdfast.kafka.codec import prepare
from holdfast.kafka.enums import ConfigResourceType
from holdfast.kafka.error_codes import RETRIABLE, ErrorCode, error_name
from holdfast.kafka.special_offsets import EARLIEST, LATEST
from holdfast.log.errors import OffsetOutOfRangeError
from holdfast.log.topics import UnknownTopicError
from holdfast.vocabulary.clock import Clock, RealClock
from holdfast.vocabulary.errors import HoldfastError, InvalidError, UnavailableError
from holdfast.vocabulary.settings import MIB

T = TypeVar("T")

STORE_URL: Final = "holdfast.store.url"
OBJECTS_URL: Final = "holdfast.objects.url"

CONTACT_MS: Final = 3_000
"""How long to wait for the first answer where an address that is wrong is more likely than brokers that are restarting."""
_RETRY_PAUSE_MS: Final = 100


class ClusterUrls(NamedTuple):
    """URLs of store and objects; "" where the brokers do not advertise one."""

    store: str
    objects: str


class TopicInfo(NamedTuple):
    """A topic's name, id and number of partitions."""

    name: str
    id: str
    partitions: int


class FetchResult(NamedTuple):
    """Consecutive batches, the last perhaps truncated; and where the log starts and ends."""

    records: memoryview
    start_offset: int
    high_watermark: int


@dataclass(slots=True)
class _MetadataCache:
    """The cluster as of the last Metadata response."""

    addresses: dict[int, BrokerAddress] = field(default_factory=dict)
    leaders: dict[tuple[str, int], int] = field(default_factory=dict)


class BrokerClient:
    """A client of one cluster's brokers. Belongs to one event loop.

    `login`: how to log in, and TLS; None: neither.
    `contact_ms` is how long it waits for the first answer of any; by default as long as for every later one.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        clock: Clock | None = None,
        timeout_ms: int = 30_000,
        contact_ms: int | None = None,
        login: BrokerLogin | None = None,
    ) -> None:
        self._login = login
        self._bootstrap = parse_bootstrap(bootstrap)
        self._clock = clock if clock is not None else RealClock()
        self._timeout_ms = timeout_ms
        self._contact_ms = timeout_ms if contact_ms is None else contact_ms
        self._answering: BrokerAddress | None = None  # who answered last
        self._connections: dict[BrokerAddress, BrokerConnection] = {}
        self._metadata_cache = _MetadataCache()

    @classmethod
    async def fetch_cluster_urls(
        cls, bootstrap: str, *, contact_ms: int | None = None, login: BrokerLogin | None = None
    ) -> ClusterUrls:
        """`urls()` over connections of its own."""
        client = cls(bootstrap, contact_ms=contact_ms, login=login)
        try:
            return await client.urls()
        finally:
            await client.close()

    async def close(self) -> None:
        """Close every connection."""
        for connection in self._connections.values():
            await connection.close()
        self._connections.clear()

    async def urls(self) -> ClusterUrls:
        """The URLs of store and objects, as a broker advertises them."""
        return await self._retry_until_deadline(self._urls)

    async def cluster_id(self) -> str:
        """The cluster's id."""
        return str((await self._retry_until_deadline(lambda: self._metadata(()))).cluster_id or "")

    async def topics(self) -> list[TopicInfo]:
        """Every topic that is not internal, by name."""
        answer = await self._retry_until_deadline(lambda: self._metadata(None))
        return sorted(
            _topic_info(each) for each in answer.topics if not each.is_internal and each.error_code == ErrorCode.NONE
        )

    async def topic(self, name: str, *, create: bool = False) -> TopicInfo:
        """One topic. `UnknownTopicError`. With `create` the brokers create it, if they create topics on demand."""

        async def find() -> TopicInfo:
            (found,) = (await self._metadata((name,), create=create)).topics
            if int(found.error_code) in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION):
                raise UnknownTopicError(name)
            if int(found.error_code) == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                raise InvalidError("topic", name, "one that this login may describe")
            if found.error_code != ErrorCode.NONE:
                raise UnavailableError(f"topic {name}", f"the brokers say {found.error_code.name}")
            return _topic_info(found)

        return await self._retry_until_deadline(find)

    async def available_offsets(self, topic: str, times_ms: dict[int, int], *, wait_ms: int) -> dict[int, int]:
        """`offsets` of the partitions whose leader answers within `wait_ms`. `LoginRefusedError`."""
        found: dict[int, int] = {}
        try:
            async with asyncio.timeout(wait_ms / 1_000):  # a frozen broker never answers
                await self.offsets(topic, times_ms, wait_ms=wait_ms, found=found)
        except LoginRefusedError:
            raise
        except (UnavailableError, TimeoutError):
            pass
        return found

    async def offsets(
        self,
        topic: str,
        times_ms: dict[int, int],
        *,
        wait_ms: int | None = None,
        found: dict[int, int] | None = None,
    ) -> dict[int, int]:
        """Partition → the first offset at or after its time (-1 if there is none); EARLIEST and LATEST are times, too.

        Results are added to `found` as they arrive.
        """
        found = {} if found is None else found

        async def find() -> dict[int, int]:
            if len(found) == len(times_ms):
                return found
            missing = {number: time_ms for number, time_ms in times_ms.items() if number not in found}
            for node, numbers in (await self._group_by_leader(topic, missing)).items():
                found.update(await self._list_offsets(node, topic, {number: times_ms[number] for number in numbers}))
            if len(found) < len(times_ms):
                raise UnavailableError(f"topic {topic}", "some of its partitions have no leader")
            return found

        return await self._retry_until_deadline(find, wait_ms=wait_ms)

    async def fetch(
        self, topic: TopicInfo, number: int, offset: int, *, bytes_max: int = 4 * MIB, wait_ms: int = 0
    ) -> FetchResult:
        """The leader's records from `offset` on; none at its end, unless some arrive within `wait_ms`.

        `OffsetOutOfRangeError`, `UnknownTopicError`.
        """
        return await self._retry_until_deadline(lambda: self._fetch(topic, number, offset, bytes_max, wait_ms))

    async def _fetch(self, info: TopicInfo, number: int, offset: int, bytes_max: int, wait_ms: int) -> FetchResult:
        from kio.schema.fetch.v13.request import FetchPartition, FetchRequest, FetchTopic

        topic = info.name
        node = next(iter(await self._group_by_leader(topic, {number: 0})))
        partition: Any = FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=bytes_max)  # type: ignore[arg-type]
        request = FetchRequest(
            max_wait=timedelta(milliseconds=wait_ms),  # type: ignore[arg-type]
            min_bytes=1 if wait_ms else 0,  # type: ignore[arg-type]
            max_bytes=bytes_max,  # type: ignore[arg-type]
            topics=(FetchTopic(topic_id=UUID(info.id), partitions=(partition,)),),
            forgotten_topics_data=(),
        )
        answer = await self._request(node, request)
        self._check(topic, number, int(answer.error_code))
        (found,) = answer.responses[0].partitions
        if found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            ends = await self.offsets(topic, {number: LATEST})
            starts = await self.offsets(topic, {number: EARLIEST})
            raise OffsetOutOfRangeError(f"{topic}:{number}", offset, starts[number], ends[number])
        if found.error_code == ErrorCode.UNKNOWN_TOPIC_ID and (await self.topic(topic)).id != info.id:
            raise UnknownTopicError(topic)
        self._check(topic, number, int(found.error_code))
        return FetchResult(memoryview(found.records or b""), found.log_start_offset, found.high_watermark)

    async def _list_offsets(self, node: int, topic: str, times_ms: dict[int, int]) -> dict[int, int]:
        from kio.schema.list_offsets.v7.request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

        asked = tuple(
            ListOffsetsPartition(partition_index=number, timestamp=time_ms)  # type: ignore[arg-type]
            for number, time_ms in times_ms.items()
        )
        request = ListOffsetsRequest(
            replica_id=-1,  # type: ignore[arg-type]
            isolation_level=0,  # type: ignore[arg-type]
            topics=(ListOffsetsTopic(name=topic, partitions=asked),),  # type: ignore[arg-type]
        )
        found = {}
        for each in (await self._request(node, request)).topics[0].partitions:
            with suppress(UnavailableError):  # the others have their offset; this one is retried
                self._check(topic, each.partition_index, int(each.error_code))
                found[each.partition_index] = each.offset
        return found

    async def _urls(self) -> ClusterUrls:
        from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource

        nodes = {each.node_id for each in (await self._metadata(())).brokers}
        for node in sorted(nodes):
            resource = DescribeConfigsResource(
                resource_type=ConfigResourceType.BROKER,  # type: ignore[arg-type]
                resource_name=str(node),
                configuration_keys=(STORE_URL, OBJECTS_URL),
            )
            answer = await self._request(node, DescribeConfigsRequest(resources=(resource,)))
            values = {row.name: row.value or "" for each in answer.results for row in each.configs}
            if values:
                return ClusterUrls(values.get(STORE_URL, ""), values.get(OBJECTS_URL, ""))
        return ClusterUrls("", "")

    async def _metadata(self, topics: tuple[str, ...] | None, *, create: bool = False) -> Any:
        """Metadata of these topics (None: of all) from any broker; leaders are cached."""
        from kio.schema.metadata.v12.request import MetadataRequest, MetadataRequestTopic

        asked = (
            None if topics is None else tuple(MetadataRequestTopic(topic_id=None, name=name) for name in topics)  # type: ignore[arg-type]
        )
        request = MetadataRequest(
            topics=asked, allow_auto_topic_creation=create, include_topic_authorized_operations=False
        )
        answer = await self._request_any(request)
        self._metadata_cache.addresses = {each.node_id: BrokerAddress(each.host, each.port) for each in answer.brokers}
        for topic in answer.topics:
            for each in topic.partitions:
                self._metadata_cache.leaders[topic.name, each.partition_index] = each.leader_id
        return answer

    async def _group_by_leader(self, topic: str, numbers: dict[int, int]) -> dict[int, list[int]]:
        """Partitions by leader; those without one are left out. `UnavailableError` if none has one."""
        if any((topic, number) not in self._metadata_cache.leaders for number in numbers):
            (found,) = (await self._metadata((topic,))).topics
            if found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise UnknownTopicError(topic)
        led: dict[int, list[int]] = {}
        for number in numbers:
            node = self._metadata_cache.leaders.get((topic, number), -1)
            if node >= 0:
                led.setdefault(node, []).append(number)
            else:
                self._metadata_cache.leaders.pop((topic, number), None)
        if not led:
            raise UnavailableError(f"topic {topic}", f"partition {min(numbers)} has no leader")
        return led

    def _check(self, topic: str, number: int, code: int) -> None:
        if code == ErrorCode.NONE:
            return
        self._metadata_cache.leaders.pop((topic, number), None)
        if code in RETRIABLE:  # a new leader may not know the topic yet, nor its id
            raise UnavailableError(f"partition {topic}:{number}", f"the broker answered with {error_name(code)}")
        raise HoldfastError(f"partition {topic}:{number}: the broker answered with {error_name(code)}")

    async def _request(self, node: int, request: Any) -> Any:
        if node not in self._metadata_cache.addresses:
            await self._metadata(())
        address = self._metadata_cache.addresses.get(node)
        if address is None:
            self._forget(node)
            raise UnavailableError(f"broker {node}", "it is not in the cluster")
        try:
            return await self._connection(address).request(request)
        except UnavailableError:
            self._forget(node)
            raise

    def _forget(self, node: int) -> None:
        self._metadata_cache.leaders = {
            which: leader for which, leader in self._metadata_cache.leaders.items() if leader != node
        }

    async def _request_any(self, request: Any) -> Any:
        failed: UnavailableError | None = None
        first = () if self._answering is None else (self._answering,)
        share_s = self._contact_ms / 1_000 / len(self._bootstrap)
        for address in dict.fromkeys((*first, *self._bootstrap, *self._metadata_cache.addresses.values())):
            try:
                async with asyncio.timeout(share_s if self._answering is None else None):
                    answer = await self._connection(address).request(request)
            except LoginRefusedError:
                raise  # it is the same at every broker, and each try counts against its user
            except UnavailableError as error:
                failed = error
            except TimeoutError:
                failed = UnavailableError(f"broker {address}", f"no answer within {share_s:g} s")
            else:
                self._answering = address
                return answer
        assert failed is not None
        raise failed

    async def _await_first_answer(self) -> None:
        """`UnavailableError` that names the addresses, if none of them answers within `contact_ms`."""
        from kio.schema.metadata.v12.request import MetadataRequest

        prepare(MetadataRequest)  # before the clock starts: on a busy machine it takes longer than a broker may
        reason = ""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._contact_ms / 1_000):
                while self._answering is None:
                    try:
                        await self._metadata(())
                    except LoginRefusedError:
                        raise
                    except UnavailableError as error:
                        reason = f" ({error.reason})"
                        await self._clock.sleep_ms(_RETRY_PAUSE_MS)
        if self._answering is None:
            servers = ",".join(map(str, self._bootstrap))
            within = f"no broker answered within {self._contact_ms / 1_000:g} s"
            raise UnavailableError(f"Kafka at {servers}", within + reason)

    def _connection(self, address: BrokerAddress) -> BrokerConnection:
        if address not in self._connections:
            self._connections[address] = BrokerConnection(address, timeout_s=self._timeout_ms / 1000, login=self._login)
        return self._connections[address]

    async def _retry_until_deadline(self, call: Callable[[], Awaitable[T]], *, wait_ms: int | None = None) -> T:
        if self._answering is None:
            await self._await_first_answer()
        deadline_ms = self._clock.boot_ms() + (self._timeout_ms if wait_ms is None else wait_ms)
        while True:
            try:
                return await call()
            except LoginRefusedError:
                raise
            except UnavailableError:
                if self._clock.boot_ms() + _RETRY_PAUSE_MS > deadline_ms:
                    raise
            await self._clock.sleep_ms(_RETRY_PAUSE_MS)


def _topic_info(topic: Any) -> TopicInfo:
    return TopicInfo(str(topic.name), (topic.topic_id or UUID(int=0)).hex, len(topic.partitions))
