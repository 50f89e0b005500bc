"""Appending records that came through a gateway, at this node or at the leaders of their partitions.

The rules: records of one partition are one batch, appended as a whole or not at all. A key decides the partition as in Kafka's own
clients; what has neither key nor partition goes to one partition per request, each in turn. With an idempotency key the same
request appends its records once: the log remembers it like a producer's first batch (`log.producer_expiry_ms`, a day). Its first
sequence number is a digest of the records: other records under the same key are out of sequence, and refused.
"""

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import count
from typing import Final, NamedTuple

from holdfast.client.brokers import TopicInfo
from holdfast.client.leader_client import LeaderClient
from holdfast.client.producer import SEQUENCE_MODULUS, OutOfSequenceError
from holdfast.gateways.log_access.backend import LogBackend
from holdfast.gateways.log_access.off_loop import off_loop
from holdfast.kafka.special_offsets import NO_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from holdfast.log.batches import Buffer, Record, encode, encode_values
from holdfast.log.errors import NotLeaderError, ProducerRefusedError
from holdfast.log.model import ACKS_ALL
from holdfast.log.topics import Topic
from holdfast.vocabulary.errors import (
    ClosedError,
    ExpiredError,
    FencedError,
    HoldfastError,
    InvalidError,
    OutcomeUnknownError,
    UnavailableError,
)
from holdfast.vocabulary.hashing import kafka_partition
from holdfast.vocabulary.tasks import gather_or_cancel

KEY_CHARS_MAX: Final = 255
_KEYS_KEPT: Final = 65_536
# Ids that are given to producers count up from 0 and never come here.
_KEY_IDS: Final = 1 << 62
_KEY_BYTES_KEPT: Final = 128
_VALUES_SPEED: Final = 8  # values that are appended as they are cost so much less than records
_RECORD_BYTES: Final = 64  # what a record costs beside its key and value


class AppendedRecords(NamedTuple):
    """Where the records of a request are: of each partition its first offset, and which of them, in their order."""

    offsets: Mapping[int, int]
    members: Mapping[int, Sequence[int]]


class PreparedAppend(NamedTuple):
    """The records of a request as one batch for each partition, and which of them these are."""

    topic: Topic
    batches: Mapping[int, bytes]
    members: Mapping[int, Sequence[int]]
    acks: int
    idempotency_key: str | None


class PartlyAppendedError(OutcomeUnknownError):
    """Records of some partitions of a request are appended, those of others are not, or may not be."""

    def __init__(self, appended: Mapping[int, int], failed: Mapping[int, HoldfastError]) -> None:
        super().__init__("append", "")
        self.args = (appended, failed)
        self.appended, self.failed = appended, failed

    def __str__(self) -> str:
        done = ", ".join(f"{number} from offset {offset} on" for number, offset in sorted(self.appended.items()))
        number, error = min(self.failed.items())
        return (
            f"the records of partition {number} may not be appended ({error}); appended are those of partition {done or 'none'}. "
            "Sent again with the same Idempotency-Key, records are appended once"
        )


class LogAppends:
    """The producer of one node. `forward` is the client of the other nodes."""

    def __init__(self, backend: LogBackend, forward: LeaderClient) -> None:
        self._backend, self._forward = backend, forward
        self._turns = count()

    async def topic(self, name: str) -> Topic:
        """The topic. `UnknownTopicError`."""
        return self._backend.cluster.topic(name) or await self._backend.log.topics.get(name)

    async def append(
        self,
        name: str,
        records: Sequence[Record],
        partitions: Sequence[int | None],
        *,
        acks: int = ACKS_ALL,
        idempotency_key: str | None = None,
    ) -> AppendedRecords:
        """Append the records, whose offsets are their places; where they are. `partitions`: as each of them asks for."""
        prepared = await self.prepare(name, records, partitions, acks=acks, idempotency_key=idempotency_key)
        return await self.finish(prepared)

    async def prepare(
        self,
        name: str,
        records: Sequence[Record],
        partitions: Sequence[int | None],
        *,
        acks: int = ACKS_ALL,
        idempotency_key: str | None = None,
    ) -> PreparedAppend:
        """The same as batches that are not appended yet: what is prepared in turn and then finished is begun in that order."""
        if idempotency_key is not None and not 1 <= len(idempotency_key) <= KEY_CHARS_MAX:
            raise InvalidError("Idempotency-Key", idempotency_key[:40], f"1 to {KEY_CHARS_MAX} characters")
        topic = await self.topic(name)
        if idempotency_key:  # the same request must choose the same
            others = kafka_partition(idempotency_key.encode(), topic.partitions)
        else:
            others = next(self._turns) % topic.partitions
        producer = _key_producer(topic.id, idempotency_key) if idempotency_key else None

        def prepare() -> PreparedAppend:
            members = _by_partition(topic, records, partitions, others)
            batches = {partition: _batch(records, mine, producer) for partition, mine in members.items()}
            return PreparedAppend(topic, batches, members, acks, idempotency_key)

        size_bytes = sum(_RECORD_BYTES + len(each.key or b"") + len(each.value or b"") for each in records)
        return await off_loop(size_bytes, prepare)

    async def finish(self, prepared: PreparedAppend) -> AppendedRecords:
        """Append what was prepared; where it is, once it is durable."""
        topic, batches, members, acks, key = prepared

        async def append(partition: int, batch: bytes) -> int | HoldfastError:
            try:
                return await self._append(topic, partition, batch, acks, stamped=key is not None)
            except (ProducerRefusedError, OutOfSequenceError):
                return InvalidError("Idempotency-Key", key or "", "used with the same records as before")
            except HoldfastError as error:
                return error

        if len(batches) == 1:  # most requests: no task of its own
            found = [await append(*each) for each in batches.items()]
        else:
            found = await gather_or_cancel(*(append(*each) for each in batches.items()))
        return AppendedRecords(_offsets(dict(zip(batches, found, strict=True))), members)

    async def append_values(
        self,
        name: str,
        values: Sequence[Buffer],
        partition: int | None,
        *,
        key: bytes | None,
        timestamp_ms: int,
        acks: int = ACKS_ALL,
    ) -> tuple[int, int]:
        """Append values that have one key and one time, as one batch; the partition, and the first offset there."""
        topic = await self.topic(name)
        number = _partition(topic, partition, key, next(self._turns) % topic.partitions, at=0)
        size_bytes = sum(map(len, values)) // _VALUES_SPEED
        batch = await off_loop(size_bytes, lambda: encode_values(values, timestamp_ms=timestamp_ms, key=key))
        return number, await self._append(topic, number, batch, acks, stamped=False)

    async def _append(self, topic: Topic, partition: int, batch: bytes, acks: int, *, stamped: bool) -> int:
        """The offset of the batch, once it is as durable as `acks` asks for."""
        if self._backend.log.is_serving(topic.name, partition):
            try:
                return (await self._backend.log.produce(topic.name, partition, batch, acks=acks)).base_offset
            except (NotLeaderError, UnavailableError):
                pass  # nothing was appended: its next leader may do it
        info = TopicInfo(topic.name, topic.id, topic.partitions)
        forwarded = self._forward.append_stamped if stamped else self._forward.append
        return (await forwarded(info, partition, batch, acks=acks)).base_offset


_partition_of_key = lru_cache(maxsize=_KEYS_KEPT)(kafka_partition)


def _key_partition(key: bytes, partitions: int) -> int:
    """The partition of a key. Long ones are not kept: so many of them would be gigabytes."""
    return (_partition_of_key if len(key) <= _KEY_BYTES_KEPT else kafka_partition)(key, partitions)


def _by_partition(
    topic: Topic, records: Sequence[Record], wanted: Sequence[int | None], others: int
) -> dict[int, list[int]]:
    """The records of each partition, by their places. `others`: where those go that have neither key nor partition."""
    members: dict[int, list[int]] = defaultdict(list)
    for at, (record, partition) in enumerate(zip(records, wanted, strict=True)):
        members[_partition(topic, partition, record.key, others, at=at)].append(at)
    return dict(members)


def _partition(topic: Topic, wanted: int | None, key: bytes | None, others: int, *, at: int) -> int:
    """Where a record goes. `at`: its place in the request, for errors."""
    if wanted is None:
        return others if key is None else _key_partition(key, topic.partitions)
    if not 0 <= wanted < topic.partitions:
        raise InvalidError(
            f"records[{at}].partition", wanted, f"0 to {topic.partitions - 1}, as topic {topic.name} has"
        )
    return wanted


def _key_producer(topic_id: str, key: str) -> int:
    digest = hashlib.blake2b(f"{topic_id}/{key}".encode(), digest_size=8).digest()
    return _KEY_IDS | (int.from_bytes(digest, "big") & (_KEY_IDS - 1))


def _batch(records: Sequence[Record], places: Sequence[int], producer: int | None) -> bytes:
    """The records at these places as one batch, under the producer id of an idempotency key if there is one."""
    chosen = records
    if len(places) < len(records):
        chosen = [Record(number, *records[at][1:]) for number, at in enumerate(places)]
    if producer is None:
        return encode(chosen, producer_id=NO_PRODUCER_ID, producer_epoch=NO_EPOCH, base_sequence=NO_SEQUENCE)
    return encode(chosen, producer_id=producer, producer_epoch=0, base_sequence=_content_sequence(chosen))


def _content_sequence(records: Sequence[Record]) -> int:
    """A number by what the records are. Not by their timestamps: those of another try are later."""
    digest = hashlib.blake2b(digest_size=8)
    for record in records:
        named = ((name.encode(errors="surrogatepass"), data) for name, data in record.headers)
        for data in (record.key, record.value, *(each for pair in named for each in pair)):
            digest.update(b"\xff" * 8 if data is None else len(data).to_bytes(8, "big"))
            digest.update(data or b"")
        digest.update(len(record.headers).to_bytes(8, "big"))
    return int.from_bytes(digest.digest(), "big") % (SEQUENCE_MODULUS - len(records))


def _offsets(found: Mapping[int, int | HoldfastError]) -> dict[int, int]:
    """The first offset of each partition, if all of them took their records."""
    appended = {partition: base for partition, base in found.items() if isinstance(base, int)}
    failed = {partition: error for partition, error in found.items() if isinstance(error, HoldfastError)}
    unknown = (OutcomeUnknownError, FencedError, ExpiredError, ClosedError)
    if failed and (appended or any(isinstance(error, unknown) for error in failed.values())):
        raise PartlyAppendedError(appended, failed)
    for error in failed.values():
        raise error
    return appended
