"""Batches, segments and an object store to try them on."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from hypothesis import strategies as st

from holdfast.contracts.objects import AlreadyExists, Buffer, Missing, ObjectInfo, Stored
from holdfast.log.batches import Record, encode
from holdfast.log.segments import BuiltSegment, build_segment

NOW_MS = 1_700_000_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def a_batch(base_offset: int, *, records: int = 3, compression: str = "none", value: bytes = b"v" * 40) -> bytes:
    made = [
        Record(base_offset + n, NOW_MS + base_offset + n, b"k%d" % n, value, (("h", b"x"),)) for n in range(records)
    ]
    return encode(made, base_offset=base_offset, compression=compression)


def a_batch_at(base_offset: int, *timestamps_ms: int) -> bytes:
    made = [Record(base_offset + n, at_ms, None, b"v") for n, at_ms in enumerate(timestamps_ms)]
    return encode(made, base_offset=base_offset)


def some_batches(count: int, *, records: int = 3, base_offset: int = 0, value: bytes = b"v" * 40) -> list[bytes]:
    return [a_batch(base_offset + n * records, records=records, value=value) for n in range(count)]


def body(built: BuiltSegment) -> bytes:
    return b"".join(built.parts)


def a_segment(batches: Sequence[Buffer] | None = None, *, block_bytes: int = 512, compression: str = "lz4") -> bytes:
    chosen = batches if batches is not None else some_batches(20)
    return body(build_segment(chosen, topic_id="t1", partition=3, block_bytes=block_bytes, compression=compression))


records = st.builds(
    Record,
    offset=st.just(0),
    timestamp_ms=st.one_of(st.just(-1), st.integers(0, 2**45)),
    key=st.none() | st.binary(max_size=20),
    value=st.none() | st.binary(max_size=60) | st.integers(0, 300).map(lambda n: b"abc" * n),
    headers=st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=2).map(tuple),
)


@st.composite
def batch_lists(draw: st.DrawFn) -> list[bytes]:
    """Any mix of batches: packed by their producers or not, with gaps between and within them, or empty after compaction."""
    offset = draw(st.integers(0, 2**40))
    batches = []
    for _ in range(draw(st.integers(1, 12))):
        offset += draw(st.sampled_from((0, 0, 0, 1, 1000)))
        at, numbered = offset, []
        for record in draw(st.lists(records, max_size=5)):
            numbered.append(record._replace(offset=at))
            at += draw(st.sampled_from((1, 1, 1, 7)))
        last_offset = max(at - 1, offset) + draw(st.sampled_from((0, 0, 5)))
        compression = draw(st.sampled_from(CODECS))
        batches.append(encode(numbered, base_offset=offset, last_offset=last_offset, compression=compression))
        offset = last_offset + 1
    return batches


@dataclass
class MemoryObjects:
    """Objects in a dict, with every ranged get on record."""

    blobs: dict[str, bytes] = field(default_factory=dict)
    gets: list[tuple[int, int]] = field(default_factory=list)

    async def put(self, key: str, body: Sequence[Buffer]) -> Stored | AlreadyExists:
        if key in self.blobs:
            return AlreadyExists(key)
        self.blobs[key] = b"".join(body)
        return Stored(key, len(self.blobs[key]))

    async def get(self, key: str, *, start: int = 0, end: int | None = None) -> bytes | Missing:
        if key not in self.blobs:
            return Missing(key)
        found = self.blobs[key][start:end]
        self.gets.append((start, len(found)))
        return found

    async def get_tail(self, key: str, size_bytes: int) -> bytes | Missing:
        return Missing(key) if key not in self.blobs else self.blobs[key][-size_bytes:]

    async def list(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectInfo]:
        for key in sorted(self.blobs):
            if key.startswith(prefix) and key > after:
                yield ObjectInfo(key, len(self.blobs[key]), 0)

    async def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            self.blobs.pop(key, None)
