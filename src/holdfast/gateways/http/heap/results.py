"""Heaps as JSON: what a client gets. Pure. Times are ISO 8601 in UTC, lease tokens base64url, payloads base64."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import msgspec

from holdfast.gateways.heap.inspection import HeapStats
from holdfast.gateways.http.heap.bodies import show_token
from holdfast.heap.administration import HeapDescription
from holdfast.heap.message_id import id_text
from holdfast.heap.model import Enqueued, PartitionStats, PeekedMessage, PoppedMessage
from holdfast.heap.records import Headers
from holdfast.heap.wire import LostLease


class EnqueuedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an enqueue. `duplicate`: the message was there already."""

    message_id: str
    duplicate: bool
    partition_id: int

    @classmethod
    def of(cls, found: Enqueued) -> "EnqueuedMessage":
        """As JSON."""
        return cls(message_id=found.message_id, duplicate=found.duplicate, partition_id=found.partition)


class EnqueuedBatch(msgspec.Struct, frozen=True, kw_only=True):
    """What became of each message, in the order they were sent."""

    results: Sequence[EnqueuedMessage]


class PoppedItem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message that is leased to the caller. `bound`: its rank among all that were ready is at most this.

    `limited`: the heap has limits of keys or rates, and the bound is among the messages that none of them held back.
    """

    message_id: str
    topic: str
    partition_id: int
    priority: int
    payload_base64: str
    enqueued_time: str
    lease_token: str
    lease_deadline: str
    attempts: int
    max_retries: int
    bound: int | None = None
    producer_id: str | None = None
    epoch: int | None = None
    sequence: int | None = None
    partition_key: str | None = None
    headers: Mapping[str, str] = {}
    headers_base64: Mapping[str, str] = {}
    fairness_key: str | None = None
    limited: bool = False

    @classmethod
    def of(cls, message: PoppedMessage) -> "PoppedItem":
        """As JSON."""
        text, binary = _headers(message.headers)
        producer, epoch, sequence = message.producer or (None, None, None)
        return cls(
            message_id=message.message_id,
            topic=message.topic,
            partition_id=message.partition,
            priority=message.priority,
            payload_base64=b64encode(message.payload).decode(),
            enqueued_time=time_text(message.enqueued_ms),
            lease_token=show_token(message.lease_token),
            lease_deadline=time_text(message.lease_deadline_ms),
            attempts=message.attempts,
            max_retries=message.max_retries,
            bound=message.rank_bound or None,
            producer_id=producer,
            epoch=epoch,
            sequence=sequence,
            partition_key=message.partition_key,
            headers=text,
            headers_base64=binary,
            fairness_key=message.fairness_key,
            limited=message.limited,
        )


class PoppedItems(msgspec.Struct, frozen=True, kw_only=True):
    """Messages, the best first; none came while the pop waited."""

    items: Sequence[PoppedItem] = ()


class LostLeaseInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A token of several that is not the current lease of its message, and had no effect."""

    lease_token: str
    message_id: str
    reason: str


class SettledLeases(msgspec.Struct, frozen=True, kw_only=True):
    """How many leases were settled, and which were lost before."""

    settled: int
    lost: Sequence[LostLeaseInfo] = ()


class ExtendedLeases(SettledLeases, frozen=True, kw_only=True, omit_defaults=True):
    """The new deadlines, in the order of the tokens; null for one that was lost."""

    lease_deadline: str = ""
    lease_deadlines: Sequence[str | None] = ()


class PeekedItem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message that waits. Of a dead letter also where it was, and why it is one."""

    message_id: str
    partition_id: int
    priority: int
    payload_base64: str | None = None
    payload_bytes: int
    enqueued_time: str
    attempts: int
    dlq: bool = False
    reason: str = ""
    origin_topic: str = ""
    origin_partition_id: int | None = None
    origin_message_id: str = ""
    partition_key: str | None = None
    headers: Mapping[str, str] = {}
    headers_base64: Mapping[str, str] = {}
    fairness_key: str | None = None

    @classmethod
    def of(cls, message: PeekedMessage, *, dlq: bool = False, payload: bool = True) -> "PeekedItem":
        """As JSON. A dead letter's attempts are those that it had where it came from."""
        text, binary = _headers(message.headers)
        origin = message.origin
        return cls(
            message_id=message.message_id,
            partition_id=message.partition,
            priority=message.priority,
            payload_base64=b64encode(message.payload).decode() if payload else None,
            payload_bytes=len(message.payload),
            enqueued_time=time_text(message.enqueued_ms),
            attempts=message.attempts if origin is None else origin.attempts,
            dlq=dlq,
            reason="" if origin is None else origin.reason,
            origin_topic="" if origin is None else origin.topic,
            origin_partition_id=None if origin is None else origin.partition,
            origin_message_id="" if origin is None else id_text(origin.message_id),
            partition_key=message.partition_key,
            headers=text,
            headers_base64=binary,
            fairness_key=message.fairness_key,
        )


class PeekedItems(msgspec.Struct, frozen=True, kw_only=True):
    """Messages that wait, the best first."""

    items: Sequence[PeekedItem]


class PartitionFigures(msgspec.Struct, frozen=True, kw_only=True):
    """A partition as of now, and what happened in it so far.

    `keys`: fairness keys told apart; `keys_at_limit`, `keys_at_rate`: those whose messages wait for a lease to end, or a rate.
    """

    ready: int
    delayed: int
    inflight: int
    moving: int
    enqueues: int
    pops: int
    acks: int
    nacks: int
    timeouts: int
    retries: int
    released: int
    moved: int
    cancelled: int
    duplicates: int
    keys: int
    keys_at_limit: int
    keys_at_rate: int

    @classmethod
    def members(cls, found: PartitionStats) -> dict[str, int]:
        """The figures by name."""
        return {
            "ready": found.ready,
            "delayed": found.delayed,
            "inflight": found.inflight,
            "moving": found.moving,
            "enqueues": found.enqueued,
            "pops": found.granted,
            "acks": found.acked,
            "nacks": found.nacked,
            "timeouts": found.expired,
            "retries": found.nacked + found.expired,
            "released": found.released,
            "moved": found.moved,
            "cancelled": found.cancelled,
            "duplicates": found.duplicates,
            "keys": found.keys,
            "keys_at_limit": found.keys_at_limit,
            "keys_at_rate": found.keys_at_rate,
        }


class NumberedPartition(PartitionFigures, frozen=True, kw_only=True):
    """The figures of one partition."""

    partition_id: int


class HeapFigures(PartitionFigures, frozen=True, kw_only=True):
    """The figures of a heap. `dlq`: its dead letters."""

    topic: str
    dlq: int
    partitions: Sequence[NumberedPartition]

    @classmethod
    def of(cls, found: HeapStats) -> "HeapFigures":
        """As JSON."""
        return cls(
            **cls.members(found.total),
            topic=found.topic,
            dlq=found.dlq,
            partitions=[
                NumberedPartition(**cls.members(each), partition_id=each.partition) for each in found.partitions
            ],
        )


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of heaps, by name."""

    heaps: Sequence[HeapFigures]


class Purged(msgspec.Struct, frozen=True, kw_only=True):
    """How many messages were withdrawn."""

    purged: int


class ChangedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """The message that was changed."""

    message_id: str


class DeadLettersChanged(msgspec.Struct, frozen=True, kw_only=True):
    """What was done, or would be. `more`: there may be others that match."""

    matched: int
    changed: int
    dry_run: bool
    more: bool


class HeapPage(msgspec.Struct, frozen=True, kw_only=True):
    """Heaps by name. `next_page_token`: empty, or where the next page begins."""

    heaps: Sequence[Mapping[str, Any]]
    next_page_token: str


def heap_json(heap: HeapDescription) -> dict[str, object]:
    """A heap with all its settings."""
    return {
        "topic": heap.name,
        "topic_id": heap.topic_id,
        "partitions": heap.partitions,
        "created_time": time_text(heap.created_at_ms),
        "durability": heap.durability,
        "replication_factor": heap.replication_factor,
        "dlq_topic": heap.dead_letters,
        **asdict(heap.config),
    }


def settled_leases(tokens: Sequence[bytes], found: Sequence[object]) -> SettledLeases:
    """What became of leases."""
    lost = lost_leases(tokens, found)
    return SettledLeases(settled=len(tokens) - len(lost), lost=lost)


def lost_leases(tokens: Sequence[bytes], found: Sequence[object]) -> list[LostLeaseInfo]:
    """Those that had no effect."""
    return [
        LostLeaseInfo(lease_token=show_token(token), message_id=each.message_id, reason=each.reason)
        for token, each in zip(tokens, found, strict=True)
        if isinstance(each, LostLease)
    ]


def time_text(time_ms: int) -> str:
    """A time in UTC, to the millisecond."""
    shown = datetime.fromtimestamp(time_ms / 1_000, UTC).isoformat(timespec="milliseconds")
    return shown.replace("+00:00", "Z")


def _headers(headers: Headers) -> tuple[dict[str, str], dict[str, str]]:
    text: dict[str, str] = {}
    binary: dict[str, str] = {}
    for name, value in headers:
        try:
            text[name] = (value or b"").decode()
        except UnicodeDecodeError:
            binary[name] = b64encode(value or b"").decode()
    return text, binary
