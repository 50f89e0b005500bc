"""Segments: building and reading one, against LZ4 alone on the same bytes in the same blocks, per core.

LZ4 alone does neither checksums nor an index nor a look at any batch header, and keeps what it makes.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

import lz4.block

from bench.events import event_batches
from bench.figures import Figure, against
from bench.measure import Compared, compare_work
from holdfast.log.segments import BuiltSegment, SegmentReader, build_segment
from holdfast.log.segments.settings import BLOCK_BYTES
from holdfast.objects.memory import MemoryObjects
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.settings import KIB, MIB

PART: Final = "segments"
_TOPIC: Final = "00" * 16


async def measure(directory: Path, *, quick: bool, say: Callable[[str], None]) -> AsyncIterator[Figure]:
    rounds = 5 if quick else 15
    for batch_bytes in (16 * KIB, 128 * KIB):
        say(f"batches of {batch_bytes // KIB} KiB")
        data = f"8 MiB of {batch_bytes // KIB} KiB batches"
        # On a thread: reading is given an event loop of its own there, so that both sides are plain calls.
        writing, reading, note = await asyncio.to_thread(_compare, event_batches(8 * MIB, batch_bytes), rounds)
        yield against(PART, f"build, {data}", "MB/s", writing, note=note)
        yield against(PART, f"read from memory, {data}", "MB/s", reading, note=note)


def _compare(batches: list[bytes], rounds: int) -> tuple[Compared, Compared, str]:
    amount = sum(map(len, batches)) / 1e6
    blocks = _blocks(batches)
    packed = [(lz4.block.compress(block, store_size=False), len(block)) for block in blocks]
    built, objects = _build(batches), MemoryObjects(clock=RealClock())

    def compress() -> object:
        return [lz4.block.compress(block, store_size=False) for block in blocks]

    def decompress() -> object:
        return [lz4.block.decompress(block, uncompressed_size=size) for block, size in packed]

    async def read() -> None:
        found = await SegmentReader(objects, "segment", 0, built.meta.bytes).read(0, 1 << 30)
        assert isinstance(found, list)
        assert len(found) == built.meta.batch_count

    with asyncio.Runner() as runner:
        runner.run(objects.put("segment", built.parts))
        writing = compare_work(lambda: _build(batches), compress, amount=amount, rounds=rounds)
        reading = compare_work(lambda: runner.run(read()), decompress, amount=amount, rounds=rounds)
    return writing, reading, f"one core; packed {amount * 1e6 / built.meta.bytes:.1f} : 1; reference: LZ4 alone"


def _build(batches: list[bytes]) -> BuiltSegment:
    return build_segment(batches, topic_id=_TOPIC, partition=0, epochs=[(1, 0)])


def _blocks(batches: list[bytes]) -> list[bytes]:
    """The batches joined as a segment joins them."""
    blocks, chosen = [], b""
    for batch in batches:
        if chosen and len(chosen) + len(batch) > BLOCK_BYTES:
            blocks.append(chosen)
            chosen = b""
        chosen += batch
    return [*blocks, chosen]
