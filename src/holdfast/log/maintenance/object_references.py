"""Who names an object: the question before anything is deleted.

An object itself shows which partitions can reference it: an own segment or an index by its key, a shared object by its directory.
So one look at the few partitions concerned answers it, however large the log is.

The one rule: in doubt an object is referenced. What cannot be checked (a foreign key, an unreadable directory) is never deleted.
"""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

import msgspec

from holdfast.contracts.objects import Missing, Objects
from holdfast.contracts.validation import prefix_end
from holdfast.log.keys import indexes_prefix, partition_prefix, segments_prefix, snapshots_key, state_key
from holdfast.log.maintenance.index_objects import parse_index_key, read_index_object
from holdfast.log.maintenance.settings import MaintenanceContext
from holdfast.log.metadata import IndexRecord, PartitionRecord
from holdfast.log.partition_snapshots import SnapshotList, parse_snapshot_key, read_snapshot_list
from holdfast.log.segment_list import read_index, read_segment
from holdfast.log.segments import parse_segment_key, read_directory
from holdfast.log.segments.keys import is_shared
from holdfast.log.segments.shared_object import directory_bytes, has_directory
from holdfast.vocabulary.errors import CorruptError

_TAIL_BYTES = 16 * 1024
_CLAIMS_MAX = 1_000  # shared objects, each of a few hundred partitions at most


class ReferenceStatus(Enum):
    """What is to become of an object."""

    NAMED = "a partition lists it"
    AWAITED = "a publication may still list it"
    FREE = "it is not listed, and cannot be any more"
    FREE_SHARED = "as FREE, and it held segments of several partitions"
    UNKNOWN = "it cannot be checked"


class PartitionOffsetRange(NamedTuple):
    """From where an object can be named: offsets [base, end) of one partition."""

    topic_id: str
    number: int
    base_offset: int
    end_offset: int


async def offset_ranges_of(key: str, objects: Objects) -> tuple[PartitionOffsetRange, ...] | Missing | None:
    """From where the object can be named; None: it does not say."""
    own = parse_segment_key(key) or parse_index_key(key) or parse_snapshot_key(key)
    if own is not None:
        return (PartitionOffsetRange(own.topic_id, own.partition, own.base_offset, own.end_offset),)
    if not is_shared(key):
        return None
    tail = await objects.get_tail(key, _TAIL_BYTES)
    if isinstance(tail, Missing):
        return tail
    try:
        if has_directory(tail) and directory_bytes(tail) > len(tail):
            tail = await objects.get_tail(key, directory_bytes(tail))
            if isinstance(tail, Missing):
                return tail
        return tuple(
            PartitionOffsetRange(each.topic_id, each.partition, each.base_offset, each.end_offset)
            for each in read_directory(tail)
        )
    except CorruptError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionListing:
    """What the store lists of one partition, all at one version. `state` is None where there is no such partition."""

    state: PartitionRecord | None = None
    state_version: int = 0
    recent: dict[int, str] = field(default_factory=dict)  # base offset to object
    indexes: list[IndexRecord] = field(default_factory=list)
    snapshots: SnapshotList = field(default_factory=SnapshotList)
    snapshots_version: int = 0

    def index_of(self, offset: int) -> IndexRecord | None:
        """The index object that lists `offset`, if one does."""
        at = bisect_right(self.indexes, offset, key=lambda index: index.base_offset) - 1
        return self.indexes[at] if at >= 0 and offset < self.indexes[at].end_offset else None


async def load_listing(topic_id: str, number: int, context: MaintenanceContext) -> PartitionListing:
    """One scan: the list as it stands."""
    prefix = partition_prefix(topic_id, number)
    segments, indexes = segments_prefix(topic_id, number), indexes_prefix(topic_id, number)
    state = snapshots = None
    listing = PartitionListing()
    for entry in (await context.store.scan(prefix, prefix_end(prefix))).entries:
        if entry.key.startswith(segments):
            segment = read_segment(entry)
            listing.recent[segment.base_offset] = segment.object
        elif entry.key.startswith(indexes):
            listing.indexes.append(read_index(entry))
        elif entry.key == state_key(topic_id, number):
            state = entry
        elif entry.key == snapshots_key(topic_id, number):
            snapshots = entry
    if state is None:
        return listing
    return PartitionListing(
        state=msgspec.json.decode(state.value, type=PartitionRecord),
        state_version=state.version,
        recent=listing.recent,
        indexes=listing.indexes,
        snapshots=SnapshotList() if snapshots is None else read_snapshot_list(snapshots.value),
        snapshots_version=0 if snapshots is None else snapshots.version,
    )


class ListingCache:
    """The lists that a round of verdicts needs, each loaded once. What is loaded ages: a new round takes a new one.

    `claims` does not: from where a shared object can be named stands in the object, which never changes. Rounds may share it.
    """

    def __init__(
        self, context: MaintenanceContext, claims: dict[str, tuple[PartitionOffsetRange, ...]] | None = None
    ) -> None:
        self._context = context
        self._claims = {} if claims is None else claims
        self._loaded: dict[tuple[str, int], PartitionListing] = {}
        self._listed: tuple[str, frozenset[str]] = ("", frozenset())  # the last index object that was read

    async def verdict(self, key: str) -> ReferenceStatus:
        """What is to become of an object that was listed once.

        A shared object is named by several commits, so one of them may still be to come, as long as its partition has not been
        published beyond: then the object is `AWAITED`.
        """
        claims = self._claims.get(key) or await offset_ranges_of(key, self._context.objects)
        if claims is None:
            return ReferenceStatus.UNKNOWN
        if isinstance(claims, Missing):
            return ReferenceStatus.FREE
        if is_shared(key):
            self._remember(key, claims)
        if await self.named(key, claims):
            return ReferenceStatus.NAMED
        if is_shared(key):
            for claim in claims:
                state = (await self.of(claim)).state
                if state is not None and state.published < claim.end_offset:
                    return ReferenceStatus.AWAITED
        return ReferenceStatus.FREE if len(claims) == 1 else ReferenceStatus.FREE_SHARED

    def _remember(self, key: str, claims: tuple[PartitionOffsetRange, ...]) -> None:
        if len(self._claims) >= _CLAIMS_MAX:
            self._claims.clear()
        self._claims[key] = claims

    async def named(self, key: str, claims: Iterable[PartitionOffsetRange]) -> bool:
        """Whether any of the partitions lists the object."""
        for claim in claims:
            if await self._names(key, claim):
                return True
        return False

    async def of(self, claim: PartitionOffsetRange) -> PartitionListing:
        """The list of a claim's partition."""
        partition_id = (claim.topic_id, claim.number)
        if partition_id not in self._loaded:
            self._loaded[partition_id] = await load_listing(*partition_id, self._context)
        return self._loaded[partition_id]

    async def _names(self, key: str, claim: PartitionOffsetRange) -> bool:
        listing = await self.of(claim)
        if any(each.object == key for each in listing.snapshots.snapshots):
            return True
        if listing.recent.get(claim.base_offset) == key or any(each.object == key for each in listing.indexes):
            return True
        index = listing.index_of(claim.base_offset)
        if index is None:
            return False
        entries = await self._entries(index, listing)
        if entries is None:  # it was replaced since the list was loaded
            del self._loaded[claim.topic_id, claim.number]
            listing = await self.of(claim)
            if index in listing.indexes:
                raise CorruptError(f"object {index.object}", "it is referenced by the store and missing")
            return await self._names(key, claim)
        return key in entries

    async def _entries(self, index: IndexRecord, listing: PartitionListing) -> frozenset[str] | None:
        """The live objects of an index: what ends below the partition's start is listed no more."""
        if self._listed[0] != index.object:
            found = await read_index_object(index.object, self._context.objects)
            if isinstance(found, Missing):
                return None
            start = listing.state.start if listing.state is not None else 0
            self._listed = index.object, frozenset(each.object for each in found if each.end_offset > start)
        return self._listed[1]
