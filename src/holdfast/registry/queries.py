"""Queries over many namespaces at once, for packages that keep registries of their own (pipelines) or must respect them (the log).

The one rule: nobody else spells a key of the registry or decodes one of its records. A family is all namespaces that start with the
same text. Nothing here changes a checkpoint, nor the owner of a namespace in use.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import msgspec

from holdfast.contracts.compare_and_swap import put_if_absent
from holdfast.contracts.store import AtVersion, Committed, Conflict, Delete, Entry, Operation, Put, Requirement, Store
from holdfast.contracts.validation import prefix_end
from holdfast.kernel.mirror import Mirror, open_mirror
from holdfast.registry import keys, records
from holdfast.registry.model import PartitionState, SourceTopic
from holdfast.registry.streams import retained_offsets, without_retained
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.random import Random

Commit = Callable[[Sequence[Requirement], Sequence[Operation]], Awaitable[Committed | Conflict]]


@dataclass(frozen=True, slots=True)
class TopicIntent:
    """A range of a topic's partition that somebody has begun, and may have to read again from `start` on."""

    topic: str
    partition: int
    start: int
    topic_id: str = ""
    """Empty: it is not known, and may be any topic of that name."""


class _TopicRange(msgspec.Struct, frozen=True):
    start: int
    topic: str = ""
    topic_id: str = msgspec.field(default="", name="topicId")


class _RecordWithIntent(msgspec.Struct, frozen=True):
    intent: _TopicRange | None = None


async def partition_count(store: Store, namespace: str) -> int | None:
    """How many partitions a namespace has; None before it was initialized."""
    entry = await store.get(keys.meta_key(namespace))
    return None if entry is None else records.decode_partition_count(entry)


async def partitions_of(store: Store, namespace: str) -> list[PartitionState]:
    """The partitions of a namespace, by number; none before it was initialized."""
    return [records.decode_partition(entry) for entry in await _scan(store, keys.partitions_prefix(namespace))]


async def partitions_by_namespace(store: Store, family: str) -> dict[str, list[PartitionState]]:
    """The partitions of every namespace of a family, from one scan."""
    found: dict[str, list[PartitionState]] = {}
    for entry in await _scan(store, keys.REGISTRIES + family):
        if keys.record_kind(entry.key) == keys.PARTITIONS:
            found.setdefault(keys.namespace_of(entry.key), []).append(records.decode_partition(entry))
    return found


async def streams_of(store: Store, family: str) -> list[Entry]:
    """The records of queries in a family, as their owners wrote them."""
    return [entry for entry in await _scan(store, keys.REGISTRIES + family) if keys.is_stream(entry.key)]


async def live_owners(store: Store, family: str) -> list[str]:
    """The owners of partitions in a family whose claims have not expired. The name of a dead owner stays in its records."""
    entries = await _scan(store, keys.REGISTRIES + family)
    alive = {_place(entry.key) for entry in entries if keys.record_kind(entry.key) == keys.HEARTBEATS}
    states = (
        records.decode_partition(entry)
        for entry in entries
        if keys.record_kind(entry.key) == keys.PARTITIONS and _place(entry.key) in alive
    )
    return sorted({state.owner for state in states if state.owner is not None})


async def clear_abandoned(store: Store, namespace: str, *, commit: Commit) -> bool:
    """For a retired namespace: partitions that nobody works on lose their owner and their intent, which nobody will finish. So does
    the record of a query lose what it retains.

    The epoch goes up with the owner, so that a zombie is refused. A partition whose claim is alive is left to its owner. True: none
    has an owner or an intent any more.
    """
    entries = await _scan(store, keys.namespace_prefix(namespace))
    alive = {
        (records.partition_number(entry.key), records.decode_heartbeat(entry).epoch)
        for entry in entries
        if keys.record_kind(entry.key) == keys.HEARTBEATS
    }
    clear = True
    for entry in entries:
        if keys.is_stream(entry.key) and not alive and retained_offsets(entry).retain:
            outcome = await commit([AtVersion(entry.key, entry.version)], [Put(entry.key, without_retained(entry))])
            clear = clear and isinstance(outcome, Committed)
        if keys.record_kind(entry.key) != keys.PARTITIONS:
            continue
        state = records.decode_partition(entry)
        if state.owner is None and state.intent is None:
            continue
        if state.owner is not None and (state.id, state.epoch) in alive:
            clear = False
            continue
        epoch = state.epoch if state.owner is None else state.epoch + 1
        value = records.encode_partition(replace(state, owner=None, epoch=epoch, intent=None))
        outcome = await commit([AtVersion(entry.key, entry.version)], [Put(entry.key, value)])
        clear = clear and isinstance(outcome, Committed)
    return clear


async def deletions(store: Store, family: str, *, limit: int) -> list[Delete]:
    """Operations that delete the first `limit` keys of a family with everything in it; none: all are gone."""
    prefix = keys.REGISTRIES + family
    return [Delete(entry.key) for entry in (await store.scan(prefix, prefix_end(prefix), limit=limit)).entries]


async def fix_start(store: Store, namespace: str, number: int, offset: int, *, clock: Clock, random: Random) -> int:
    """Decide once where a partition without a checkpoint begins: `offset`, or what was decided before."""
    key = keys.start_key(namespace, number)
    held = await put_if_absent(store, key, records.encode_start(offset), clock=clock, random=random)
    return records.decode_start(Entry(key, held, 0))


async def fix_source(store: Store, namespace: str, source: SourceTopic, *, clock: Clock, random: Random) -> SourceTopic:
    """Decide once which topic the checkpoints of a namespace are offsets of: `source`, or what was decided before."""
    key = keys.source_key(namespace)
    held = await put_if_absent(store, key, records.encode_source(source), clock=clock, random=random)
    return records.decode_source(Entry(key, held, 0))


async def fixed_source(store: Store, namespace: str) -> SourceTopic | None:
    """The topic of a namespace; None: nobody has read it yet, or only a release that did not record it."""
    entry = await store.get(keys.source_key(namespace))
    return None if entry is None else records.decode_source(entry)


async def fixed_starts(store: Store, namespace: str) -> dict[int, int]:
    """Where partitions were decided to begin, by number."""
    entries = await _scan(store, keys.starts_prefix(namespace))
    return {records.partition_number(entry.key): records.decode_start(entry) for entry in entries}


@asynccontextmanager
async def mirror_topic_intents(
    store: Store, *, clock: Clock, random: Random
) -> AsyncIterator[Mirror[tuple[TopicIntent, ...]]]:
    """The ranges begun in any namespace that name a topic, by record, kept up to date for the body."""
    async with open_mirror(store, keys.REGISTRIES, topic_intents, clock=clock, random=random) as mirror:
        yield mirror


def topic_intents(entry: Entry) -> tuple[TopicIntent, ...]:
    """The ranges of topics that a record has begun. A record that cannot be decoded is its owner's to report."""
    if keys.is_stream(entry.key):
        retained = retained_offsets(entry)
        ids = retained.topics
        return tuple(
            TopicIntent(each.topic, each.partition, each.start, ids.get(each.topic, "")) for each in retained.retain
        )
    if keys.record_kind(entry.key) != keys.PARTITIONS:
        return ()
    try:
        begun = msgspec.json.decode(entry.value, type=_RecordWithIntent).intent
    except msgspec.MsgspecError:
        return ()
    number = entry.key.rpartition("/")[2]
    if begun is None or not begun.topic or not number.isdecimal():
        return ()
    return (TopicIntent(begun.topic, int(number), begun.start, begun.topic_id),)


def _place(key: str) -> tuple[str, int]:
    return keys.namespace_of(key), records.partition_number(key)


async def _scan(store: Store, prefix: str) -> Sequence[Entry]:
    return (await store.scan(prefix, prefix_end(prefix))).entries
