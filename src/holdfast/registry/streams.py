"""The record of a query that owns a whole namespace: progress that is not offsets of one topic's partitions.

The one rule: it is replaced by whoever read it last. Every owner writes it before it does anything, so that the next write of a
former one is refused, whatever that one believes. Its fields are up to its writer, but for `retain`: the offsets that its owner may
have to read again, which retention keeps.
"""

import msgspec

from holdfast.contracts.commits import commit_resolved
from holdfast.contracts.compare_and_swap import unchanged
from holdfast.contracts.store import Committed, Entry, Put, Store
from holdfast.registry import keys
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import CorruptError
from holdfast.vocabulary.random import Random


class RetainedOffset(msgspec.Struct, frozen=True):
    """A partition of a topic, kept from `start` on."""

    topic: str
    partition: int
    start: int


class _Retained(msgspec.Struct, frozen=True):
    retain: tuple[RetainedOffset, ...] = ()


async def read_stream(store: Store, namespace: str) -> Entry | None:
    """The record of a namespace; None: it has none."""
    return await store.get(keys.stream_key(namespace))


async def replace_stream(
    store: Store, namespace: str, before: Entry | None, value: bytes, *, clock: Clock, random: Random
) -> Entry | None:
    """The record after it was replaced; None: it is not as it was read."""
    key = keys.stream_key(namespace)
    outcome = await commit_resolved(
        store, clock=clock, random=random, require=[unchanged(key, before)], apply=[Put(key, value)]
    )
    return Entry(key, value, outcome.version) if isinstance(outcome, Committed) else None


def retained_offsets(entry: Entry) -> tuple[RetainedOffset, ...]:
    """What a record retains. One that cannot be decoded is its owner's to report."""
    try:
        return msgspec.json.decode(entry.value, type=_Retained).retain
    except msgspec.MsgspecError:
        return ()


def without_retained(entry: Entry) -> bytes:
    """The record without what it retains, for a namespace that is retired."""
    try:
        fields = msgspec.json.decode(entry.value, type=dict)
    except msgspec.MsgspecError as error:
        raise CorruptError(entry.key, str(error)) from None
    return msgspec.json.encode({**fields, "retain": []})
