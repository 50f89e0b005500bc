"""Messages of heaps as protobuf, and back. Pure."""

from collections.abc import Mapping, Sequence

from holdfast.gateways.grpc.entries import SETTINGS_MAX, check_count
from holdfast.gateways.heap.inspection import HeapStats
from holdfast.heap.administration import LOG_SETTINGS, HeapDescription
from holdfast.heap.message_id import id_text
from holdfast.heap.model import Enqueued, NewMessage, PartitionStats, PeekedMessage, PoppedMessage
from holdfast.heap.records import ProducerSequence
from holdfast.v1 import heap_service_pb2 as pb
from holdfast.vocabulary.errors import InvalidError

_MODES: Mapping[str, pb.HeapMode] = {"min": pb.HEAP_MODE_MIN, "max": pb.HEAP_MODE_MAX}
_MODE_NAMES = {pb.HEAP_MODE_UNSPECIFIED: "min", pb.HEAP_MODE_MIN: "min", pb.HEAP_MODE_MAX: "max"}


def new_message(given: pb.EnqueueRequest, where: str = "") -> NewMessage:
    """The message of a request; errors name its fields, below `where`."""
    producer = None
    if given.HasField("producer_id") != given.HasField("sequence"):
        missing = "sequence" if given.HasField("producer_id") else "producer_id"
        raise InvalidError(f"{where}{missing}", "nothing", "given with the other one of producer_id and sequence")
    if given.HasField("producer_id"):
        producer = ProducerSequence(given.producer_id, given.epoch, given.sequence)
    return NewMessage(
        payload=given.payload,
        priority=given.priority,
        delay_ms=given.not_before_delay_ms,
        max_retries=given.max_retries if given.HasField("max_retries") else None,
        partition_key=given.partition_key if given.HasField("partition_key") else None,
        producer=producer,
        headers=tuple(given.headers.items()),
        fairness_key=given.fairness_key if given.HasField("fairness_key") else None,
    )


def new_messages(given: Sequence[pb.EnqueueRequest]) -> list[NewMessage]:
    """The messages of a batch, which are of one heap."""
    topic = given[0].topic
    for at, each in enumerate(given):
        if each.topic != topic:
            raise InvalidError(f"requests[{at}].topic", each.topic[:80], f"{topic}: messages of one heap")
    return [new_message(each, f"requests[{at}].") for at, each in enumerate(given)]


def enqueued(found: Enqueued) -> pb.EnqueueResponse:
    """What became of an enqueue."""
    return pb.EnqueueResponse(message_id=found.message_id, duplicate=found.duplicate, partition_id=found.partition)


def popped(message: PoppedMessage) -> pb.PopItem:
    """A message that is leased."""
    producer, epoch, sequence = message.producer or (None, None, None)
    return pb.PopItem(
        message_id=message.message_id,
        topic=message.topic,
        partition_id=message.partition,
        payload=message.payload,
        priority=message.priority,
        enqueued_time_ms=message.enqueued_ms,
        lease_token=message.lease_token,
        lease_deadline_ms=message.lease_deadline_ms,
        attempts=message.attempts,
        max_retries=message.max_retries,
        producer_id=producer,
        epoch=epoch,
        sequence=sequence,
        bound=message.rank_bound or None,
        partition_key=message.partition_key,
        headers={name: value or b"" for name, value in message.headers},
        fairness_key=message.fairness_key,
        limited=message.limited,
    )


def waiting(message: PeekedMessage, *, dlq: bool = False) -> pb.WaitingMessage:
    """A message that waits."""
    origin = message.origin
    return pb.WaitingMessage(
        message_id=message.message_id,
        partition_id=message.partition,
        payload=message.payload,
        priority=message.priority,
        enqueued_time_ms=message.enqueued_ms,
        attempts=message.attempts if origin is None else origin.attempts,
        dlq=dlq,
        reason="" if origin is None else origin.reason,
        origin_topic="" if origin is None else origin.topic,
        origin_message_id="" if origin is None else id_text(origin.message_id),
        partition_key=message.partition_key,
        headers={name: value or b"" for name, value in message.headers},
        fairness_key=message.fairness_key,
    )


def new_heap(given: pb.MakeHeapRequest) -> tuple[dict[str, object], dict[str, object]]:
    """The settings of a new heap, and of the topic below it."""
    check_count("config", given.config, SETTINGS_MAX)
    if given.mode not in _MODE_NAMES:
        raise InvalidError("mode", given.mode, "HEAP_MODE_MIN or HEAP_MODE_MAX")
    named: dict[str, object] = {"mode": _MODE_NAMES[given.mode]}
    for field, setting in (
        ("top_k_bound", "top_k_bound"),
        ("visibility_timeout_default_ms", "visibility_timeout_ms"),
        ("max_retries_default", "max_retries"),
        ("max_payload_bytes", "payload_bytes_max"),
        ("replication_factor", "replication_factor"),
    ):
        if given.HasField(field):
            named[setting] = getattr(given, field)
    if given.HasField("compression_enabled"):
        named["compression"] = "zstd" if given.compression_enabled else "none"
    if given.HasField("dlq_policy"):
        named["dlq"] = given.dlq_policy.enabled
    for name, value in given.config.items():
        if name in named and str(named[name]) != value:
            raise InvalidError(f"config.{name}", value, "given once")
        named[name] = value
    log = {name: value for name, value in named.items() if name in LOG_SETTINGS}
    return {name: value for name, value in named.items() if name not in LOG_SETTINGS}, log


def heap(found: HeapDescription) -> pb.Heap:
    """A heap with its settings."""
    config = {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name in found.config.__dataclass_fields__
        for value in (getattr(found.config, name),)
    }
    return pb.Heap(
        topic=found.name,
        topic_id=found.topic_id,
        mode=_MODES[found.config.mode],
        partitions=found.partitions,
        replication_factor=found.replication_factor,
        top_k_bound=found.config.top_k_bound,
        durability=found.durability,
        dlq_topic=found.dead_letters,
        created_time_ms=found.created_at_ms,
        config=config,
    )


def figures(found: HeapStats) -> pb.HeapFigures:
    """The figures of a heap."""
    return pb.HeapFigures(
        topic=found.topic, dlq=found.dlq, totals=_counts(found.total), partitions=map(_counts, found.partitions)
    )


def _counts(found: PartitionStats) -> pb.PartitionCounts:
    return pb.PartitionCounts(
        partition=found.partition,
        ready=found.ready,
        delayed=found.delayed,
        inflight=found.inflight,
        moving=found.moving,
        enqueues=found.enqueued,
        pops=found.granted,
        acks=found.acked,
        nacks=found.nacked,
        retries=found.nacked + found.expired,
        timeouts=found.expired,
        released=found.released,
        moved=found.moved,
        cancelled=found.cancelled,
        duplicates=found.duplicates,
        keys=found.keys,
        keys_at_limit=found.keys_at_limit,
        keys_at_rate=found.keys_at_rate,
    )
