"""Index objects: the older segments of a partition, listed in object storage instead of the store.

    {cluster id}/indexes/{topic id}/{partition}/{base offset}-{end offset}-{epoch}-{upload id}.v1.json

The body is a JSON list of segment records, oldest first. Like every object it never changes: a longer list is another object.
Entries that end at or below the partition's start are dead: retention need not rewrite an index for every segment it drops.
"""

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from holdfast.contracts.objects import Missing, Objects
from holdfast.log.metadata import IndexRecord, SegmentRecord
from holdfast.log.partition.leading_partition import LeadingPartition
from holdfast.log.segments.keys import CLUSTER, SegmentKey
from holdfast.vocabulary.errors import CorruptError
from holdfast.vocabulary.random import Random

INDEXES: Final = "indexes/"

_KEY: Final = re.compile(
    CLUSTER + r"indexes/([A-Za-z0-9_-]{1,64})/(\d{1,10})/(\d{20})-(\d{20})-(\d{1,19})-([A-Za-z0-9_-]{1,64})\.v1\.json",
    re.ASCII,
)


def parse_index_key(key: str) -> SegmentKey | None:
    """The parts of an index object's key; None for any other key."""
    found = _KEY.fullmatch(key)
    if found is None:
        return None
    return SegmentKey(found[1], int(found[2]), int(found[3]), int(found[4]), int(found[5]), found[6])


def index_record(
    partition: LeadingPartition, entries: Sequence[SegmentRecord], random: Random, *, prefix: str
) -> IndexRecord:
    """The record of a new index object with these entries, which is still to be written."""
    base, end = entries[0].base_offset, entries[-1].end_offset
    partition_id, epoch = partition.partition_id, partition.lease.epoch
    folder = f"{prefix}{INDEXES}{partition_id.topic_id}/{partition_id.number}/"
    key = f"{folder}{base:020d}-{end:020d}-{epoch}-{random.token()}.v1.json"
    return IndexRecord(
        base_offset=base,
        end_offset=end,
        object=key,
        entries=len(entries),
        size_bytes=sum(each.size_bytes for each in entries),
        dirty_bytes=sum(each.size_bytes for each in entries if not each.compacted_at_ms),
    )


async def write_index(index: IndexRecord, entries: Sequence[SegmentRecord], objects: Objects) -> None:
    """Put the object. `AlreadyExists` is our own upload, retried: the key holds a fresh upload id."""
    await objects.put(index.object, [msgspec.json.encode(list(entries))])


async def read_index_object(key: str, objects: Objects) -> tuple[SegmentRecord, ...] | Missing:
    """What an index object lists."""
    body = await objects.get(key)
    return body if isinstance(body, Missing) else msgspec.json.decode(body, type=tuple[SegmentRecord, ...])


async def entries_of(partition: LeadingPartition, index: IndexRecord, objects: Objects) -> list[SegmentRecord]:
    """What an index object of this partition lists, without what is dead. The caller has seen it referenced in the store.

    Not kept: thousands of partitions with thousands of entries each would fill the RAM of an agent.
    """
    listed = await read_index_object(index.object, objects)
    if isinstance(listed, Missing):
        raise CorruptError(f"object {index.object}", "it is referenced by the store and missing")
    return [each for each in listed if each.end_offset > partition.record.start]
