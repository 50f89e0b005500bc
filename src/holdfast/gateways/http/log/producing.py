"""Appending records that came over HTTP, at this node or at the leaders of their partitions.

The rules: records of one partition are one batch, appended as a whole or not at all. A key decides the partition as in Kafka's own
clients; what has neither key nor partition goes to one partition per request, each in turn. With an idempotency key the same
request appends its records once: the log remembers it like a producer's first batch (`log.producer_expiry_ms`, a day).
"""

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Final, NamedTuple

from holdfast.client.brokers import TopicInfo
from holdfast.client.leader_client import LeaderClient
from holdfast.client.producer import OutOfSequenceError
from holdfast.gateways.http.log.backend import LogBackend
from holdfast.kafka.special_offsets import NO_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from holdfast.log.batches import Record, encode
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
# Ids that are given to producers count up from 0 and never come here.
_KEY_IDS: Final = 1 << 62


class PlacedRecord(NamedTuple):
    """Where a record is."""

    partition: int
    offset: int


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


class Producing:
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
        idempotency_key: str = "",
    ) -> list[PlacedRecord]:
        """Append the records; where each of them is. `partitions`: as each of them asks for."""
        if len(idempotency_key) > KEY_CHARS_MAX:
            raise InvalidError("Idempotency-Key", idempotency_key[:40] + "…", f"at most {KEY_CHARS_MAX} characters")
        topic = await self.topic(name)
        chosen = self._partitions(topic, records, partitions, idempotency_key)
        grouped: dict[int, list[int]] = defaultdict(list)
        for at, partition in enumerate(chosen):
            grouped[partition].append(at)
        producer = _key_producer(topic.id, idempotency_key) if idempotency_key else None

        async def append(partition: int, places: list[int]) -> int | HoldfastError:
            batch = encode(
                [records[at]._replace(offset=number) for number, at in enumerate(places)],
                producer_id=NO_PRODUCER_ID if producer is None else producer,
                producer_epoch=NO_EPOCH if producer is None else 0,
                base_sequence=NO_SEQUENCE if producer is None else 0,
            )
            try:
                return await self._append(topic, partition, batch, acks, stamped=producer is not None)
            except (ProducerRefusedError, OutOfSequenceError):
                return InvalidError("Idempotency-Key", idempotency_key, "used with the same records as before")
            except HoldfastError as error:
                return error

        found = dict(zip(grouped, await gather_or_cancel(*(append(*each) for each in grouped.items())), strict=True))
        _raise_failures(found)
        placed: list[PlacedRecord] = [PlacedRecord(0, 0)] * len(records)
        for partition, places in grouped.items():
            base = found[partition]
            assert isinstance(base, int)
            for number, at in enumerate(places):
                placed[at] = PlacedRecord(partition, base + number)
        return placed

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

    def _partitions(
        self, topic: Topic, records: Sequence[Record], wanted: Sequence[int | None], idempotency_key: str
    ) -> list[int]:
        if idempotency_key:  # the same request must choose the same
            others = kafka_partition(idempotency_key.encode(), topic.partitions)
        else:
            others = next(self._turns) % topic.partitions
        chosen = []
        for number, (record, partition) in enumerate(zip(records, wanted, strict=True)):
            if partition is None:
                partition = others if record.key is None else kafka_partition(record.key, topic.partitions)
            elif not 0 <= partition < topic.partitions:
                raise InvalidError(
                    f"records[{number}].partition", partition, f"0 to {topic.partitions - 1}, as topic {topic.name} has"
                )
            chosen.append(partition)
        return chosen


def _key_producer(topic_id: str, key: str) -> int:
    digest = hashlib.blake2b(f"{topic_id}/{key}".encode(), digest_size=8).digest()
    return _KEY_IDS | (int.from_bytes(digest, "big") & (_KEY_IDS - 1))


def _raise_failures(found: Mapping[int, int | HoldfastError]) -> None:
    failed = {partition: error for partition, error in found.items() if isinstance(error, HoldfastError)}
    if not failed:
        return
    if len(failed) < len(found):
        raise PartlyAppendedError(
            {partition: base for partition, base in found.items() if isinstance(base, int)}, failed
        )
    unknown = (OutcomeUnknownError, FencedError, ExpiredError, ClosedError)
    worst = next((error for error in failed.values() if isinstance(error, unknown)), None)
    if worst is not None:
        raise PartlyAppendedError({}, failed)
    raise next(iter(failed.values()))
