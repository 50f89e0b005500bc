"""The record of a query that owns a whole namespace: progress that is not offsets of one topic's partitions.

The one rule: it is replaced by whoever read it last. Every owner writes it before it does anything, so that the next write of a
former one is refused, whatever that one believes. Its fields are up to its writer, but for `retain`: the offsets that its owner may
have to read again, which retention keeps, and `topics`: the ids of the topics they are of.

A record of thousands of partitions is stored as {"zlib": …}, so that it fits into a commit.
"""

import zlib
from typing import Final

import msgspec

from holdfast.contracts.commits import commit_resolved
from holdfast.contracts.compare_and_swap import unchanged
from holdfast.contracts.store import Committed, Entry, Put, Store
from holdfast.registry import keys
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import CorruptError
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.settings import KIB, MIB

_COMPRESSED_FROM_BYTES: Final = 64 * KIB
_COMPRESSED_START: Final = b'{"zlib":'
_VALUE_BYTES_MAX: Final = 64 * MIB


class RetainedOffset(msgspec.Struct, frozen=True):
    """A partition of a topic, kept from `start` on."""

    topic: str
    partition: int
    start: int


class RetainedOffsets(msgspec.Struct, frozen=True):
    """What a record retains, and the ids of topics by name: an offset of another topic of that name is none of these."""

    retain: tuple[RetainedOffset, ...] = ()
    topics: dict[str, str] = {}


class _Compressed(msgspec.Struct, frozen=True):
    zlib: bytes


async def read_stream(store: Store, namespace: str) -> Entry | None:
    """The record of a namespace; None: it has none."""
    entry = await store.get(keys.stream_key(namespace))
    return None if entry is None else Entry(entry.key, _decompressed(entry), entry.version)


async def replace_stream(
    store: Store, namespace: str, before: Entry | None, value: bytes, *, clock: Clock, random: Random
) -> Entry | None:
    """The record after it was replaced; None: it is not as it was read."""
    key = keys.stream_key(namespace)
    outcome = await commit_resolved(
        store, clock=clock, random=random, require=[unchanged(key, before)], apply=[Put(key, _compressed(value))]
    )
    return Entry(key, value, outcome.version) if isinstance(outcome, Committed) else None


def retained_offsets(entry: Entry) -> RetainedOffsets:
    """What a record, as it is stored, retains. One that cannot be decoded is its owner's to report."""
    try:
        return msgspec.json.decode(_decompressed(entry), type=RetainedOffsets)
    except (msgspec.MsgspecError, CorruptError):
        return RetainedOffsets()


def without_retained(entry: Entry) -> bytes:
    """The record without what it retains, for a namespace that is retired; both as they are stored."""
    try:
        fields = msgspec.json.decode(_decompressed(entry), type=dict)
    except msgspec.MsgspecError as error:
        raise CorruptError(entry.key, str(error)) from None
    return _compressed(msgspec.json.encode({**fields, "retain": []}))


def _compressed(value: bytes) -> bytes:
    return value if len(value) < _COMPRESSED_FROM_BYTES else msgspec.json.encode(_Compressed(zlib.compress(value)))


def _decompressed(entry: Entry) -> bytes:
    if not entry.value.startswith(_COMPRESSED_START):
        return entry.value
    reader = zlib.decompressobj()
    try:
        packed = msgspec.json.decode(entry.value, type=_Compressed).zlib
        value = reader.decompress(packed, _VALUE_BYTES_MAX)
    except (msgspec.MsgspecError, zlib.error) as error:
        raise CorruptError(entry.key, str(error)) from None
    if not reader.eof:
        raise CorruptError(entry.key, f"cut off, or above {_VALUE_BYTES_MAX} bytes")
    return value
