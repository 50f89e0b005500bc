"""Records: the registry's values as JSON in the store. A record that cannot have been written by it is a `CorruptError`."""

from typing import Final, NamedTuple, TypeVar

import msgspec

from holdfast.contracts.store import Entry
from holdfast.registry import intents
from holdfast.registry.model import ConsumerInfo, Heartbeat, PartitionState, SourceTopic
from holdfast.vocabulary.errors import CorruptError, InvalidError


class _PartitionRecord(msgspec.Struct, frozen=True):
    owner: str | None
    checkpoint: int
    epoch: int
    intent: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _HeartbeatRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    session: str
    epoch: int
    ttl_ms: int
    shared: bool = False


class _ConsumerRecord(msgspec.Struct, frozen=True):
    session: str
    ttl_ms: int
    registered_at_ms: int


class _MetaRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    partitions: int
    initial: int = 0


class _StartRecord(msgspec.Struct, frozen=True):
    offset: int


class _SourceRecord(msgspec.Struct, frozen=True):
    topic: str
    topic_id: str


_T = TypeVar("_T")
_encode: Final = msgspec.json.Encoder().encode


def _decode(kind: type[_T], entry: Entry) -> _T:
    try:
        return msgspec.json.decode(entry.value, type=kind)
    except msgspec.MsgspecError as error:
        raise CorruptError(entry.key, f"{entry.value[:80]!r} ({error})") from None


def partition_number(key: str) -> int:
    """The number of the partition a key belongs to."""
    digits = key.rpartition("/")[2]
    if not (digits.isascii() and digits.isdigit()):
        raise CorruptError(key, "the key does not end in a partition number")
    return int(digits)


def encode_partition(state: PartitionState) -> bytes:
    """`{"owner": …, "checkpoint": …, "epoch": …}`, and `"intent": {…}` while a range is begun."""
    intent = msgspec.UNSET if state.intent is None else msgspec.Raw(state.intent.encode())
    return _encode(_PartitionRecord(state.owner, state.checkpoint, state.epoch, intent))


def decode_partition(entry: Entry) -> PartitionState:
    """The partition a record describes."""
    record = _decode(_PartitionRecord, entry)
    if record.checkpoint < 0 or record.epoch < 0:
        raise CorruptError(entry.key, f"checkpoint {record.checkpoint}, epoch {record.epoch}")
    return PartitionState(
        id=partition_number(entry.key),
        owner=record.owner,
        epoch=record.epoch,
        checkpoint=record.checkpoint,
        intent=_decode_intent(entry.key, record.intent),
    )


def _decode_intent(key: str, raw: msgspec.Raw | msgspec.UnsetType) -> str | None:
    if raw is msgspec.UNSET:
        return None
    try:
        return intents.canonical_intent(bytes(raw))
    except InvalidError as error:
        raise CorruptError(key, str(error)) from None


def encode_heartbeat(session: str, epoch: int, ttl_ms: int, *, shared: bool = False) -> bytes:
    """The session is part of the value, so that the assigned consumer can renew it."""
    return _encode(_HeartbeatRecord(session, epoch, ttl_ms, shared))


def decode_heartbeat(entry: Entry) -> Heartbeat:
    """The heartbeat an entry holds."""
    record = _decode(_HeartbeatRecord, entry)
    return Heartbeat(
        epoch=record.epoch,
        session=record.session,
        ttl_ms=record.ttl_ms,
        version=entry.version,
        shared=record.shared,
    )


def encode_consumer(session: str, ttl_ms: int, registered_at_ms: int) -> bytes:
    """A registration."""
    return _encode(_ConsumerRecord(session, ttl_ms, registered_at_ms))


def decode_consumer(entry: Entry) -> ConsumerInfo:
    """The consumer an entry registers."""
    record = _decode(_ConsumerRecord, entry)
    return ConsumerInfo(
        id=entry.key.rpartition("/")[2],
        session=record.session,
        ttl_ms=record.ttl_ms,
        registered_at_ms=record.registered_at_ms,
        version=entry.version,
    )


class CountRecord(NamedTuple):
    """How many partitions a namespace has, and how many it was made with; the others were added."""

    partitions: int
    initial: int


def encode_meta(partitions: int) -> bytes:
    """How many partitions the namespace has."""
    return encode_count(CountRecord(partitions, partitions))


def decode_partition_count(entry: Entry) -> int:
    """How many partitions the namespace has."""
    return decode_count(entry).partitions


def encode_count(count: CountRecord) -> bytes:
    """The counts; as ever while nothing was added."""
    return _encode(_MetaRecord(count.partitions, 0 if count.initial == count.partitions else count.initial))


def decode_count(entry: Entry) -> CountRecord:
    """The counts of a namespace."""
    record = _decode(_MetaRecord, entry)
    return CountRecord(record.partitions, record.initial or record.partitions)


def encode_start(offset: int) -> bytes:
    """Where a partition without a checkpoint begins."""
    return _encode(_StartRecord(offset))


def decode_start(entry: Entry) -> int:
    """Where a partition without a checkpoint begins."""
    return _decode(_StartRecord, entry).offset


def encode_source(source: SourceTopic) -> bytes:
    """The topic of a namespace."""
    return _encode(_SourceRecord(source.topic, source.topic_id))


def decode_source(entry: Entry) -> SourceTopic:
    """The topic of a namespace."""
    record = _decode(_SourceRecord, entry)
    return SourceTopic(record.topic, record.topic_id)
