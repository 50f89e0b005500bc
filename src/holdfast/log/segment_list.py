"""The segments of one partition, newest keys in the store, older ones in index objects; and how to find an offset among them.

It owns the list, not the bytes: reading is `SegmentReader`'s. Any process may load it; the leader also changes it, together with
the commit that changes the store.
"""

from bisect import bisect_right
from collections.abc import AsyncIterator, Iterable, Sequence

import msgspec

from holdfast.contracts.objects import Missing, Objects
from holdfast.contracts.store import Entry, Store
from holdfast.contracts.validation import prefix_end
from holdfast.log.keys import indexes_prefix, segments_prefix
from holdfast.log.metadata import IndexRecord, SegmentRecord
from holdfast.vocabulary.errors import UnavailableError


class StaleListingError(UnavailableError):
    """What is known of the list is too old: load it again."""


class SegmentList:
    """Segments by base offset. `recent` have a key each in the store; `indexes` list the older ones."""

    __slots__ = (
        "_listed",
        "indexes",
        "recent",
        "stale",
    )

    def __init__(self, recent: Iterable[SegmentRecord] = (), indexes: Iterable[IndexRecord] = ()) -> None:
        self.recent = list(recent)
        self.indexes = list(indexes)
        self.stale = False  # the answer to a change of the list was lost: load it again before changing it
        self._listed: dict[str, tuple[SegmentRecord, ...]] = {}  # index objects never change

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments."""
        return sum(each.size_bytes for each in self.recent) + sum(each.size_bytes for each in self.indexes)

    @property
    def base_offset(self) -> int | None:
        """Where the oldest segment begins."""
        bases = [*(each.base_offset for each in self.indexes[:1]), *(each.base_offset for each in self.recent[:1])]
        return bases[0] if bases else None

    async def find(self, offset: int, objects: Objects) -> SegmentRecord | None:
        """The segment that holds `offset`, or the next one after a gap; None past the last. May raise `StaleListingError`."""
        recent = self.find_recent(offset)
        if recent is not None:
            return recent
        for index in list(self.indexes):
            if index.end_offset > offset:
                for each in await self._surely_listed(index, objects):
                    if each.end_offset > offset:
                        return each
        return None

    def find_recent(self, offset: int) -> SegmentRecord | None:
        """`find` among those with a key each in the store: without reading an index object."""
        for each in self.recent[max(0, bisect_right(self.recent, offset, key=_base) - 1) :]:
            if each.end_offset > offset and (each.base_offset <= offset or not self._indexed(offset)):
                return each
        return None

    async def all(self, objects: Objects) -> AsyncIterator[SegmentRecord]:
        """Every segment, oldest first. May raise `StaleListingError`."""
        for index in list(self.indexes):
            for each in await self._surely_listed(index, objects):
                yield each
        for each in list(self.recent):
            yield each

    async def listed(self, index: IndexRecord, objects: Objects) -> Sequence[SegmentRecord]:
        """What an index object lists; nothing if retention has removed it meanwhile."""
        if index.object not in self._listed:
            body = await objects.get(index.object)
            if isinstance(body, Missing):
                return ()
            self._listed = {index.object: msgspec.json.decode(body, type=tuple[SegmentRecord, ...])}  # one is enough
        return self._listed[index.object]

    async def _surely_listed(self, index: IndexRecord, objects: Objects) -> Sequence[SegmentRecord]:
        listed = await self.listed(index, objects)
        if not listed:
            raise StaleListingError(f"index object {index.object}", "it is gone: another one lists its segments now")
        return listed

    def _indexed(self, offset: int) -> bool:
        return any(index.end_offset > offset for index in self.indexes)


def _base(segment: SegmentRecord) -> int:
    return segment.base_offset


def read_segment(entry: Entry) -> SegmentRecord:
    """The segment in a store entry."""
    return msgspec.json.decode(entry.value, type=SegmentRecord)


def read_index(entry: Entry) -> IndexRecord:
    """The index object in a store entry."""
    return msgspec.json.decode(entry.value, type=IndexRecord)


async def load_segments(store: Store, topic_id: str, number: int) -> SegmentList:
    """The segments as the store lists them now."""
    # From the first index to the last segment: one scan, and nothing of the partition but these lies there.
    start, end = indexes_prefix(topic_id, number), prefix_end(segments_prefix(topic_id, number))
    return list_segments((await store.scan(start, end)).entries, topic_id, number)


def list_segments(entries: Iterable[Entry], topic_id: str, number: int) -> SegmentList:
    """The segments among the entries of a partition."""
    recent_prefix, index_prefix = segments_prefix(topic_id, number), indexes_prefix(topic_id, number)
    indexes = [read_index(entry) for entry in entries if entry.key.startswith(index_prefix)]
    listed_until = max((each.end_offset for each in indexes), default=0)
    recent = (read_segment(entry) for entry in entries if entry.key.startswith(recent_prefix))
    return SegmentList((each for each in recent if each.base_offset >= listed_until), indexes)
