"""A fuzzer for both kernels: sound batches, broken in many ways, must get equal answers and never an unknown error.

`python -m tests.support.batch_fuzzer ROUNDS [SEED]` runs it for longer, also under a kernel built with sanitizers.
"""

import sys
from array import array
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from holdfast.log.batches import BatchHeader, Buffer, Record, RecordBatchLimits, encode, parse_header
from holdfast.log.batches.compression import CODECS
from holdfast.log.batches.header import CRC_AT, HEADER_BYTES, checksum
from holdfast.log.batches.kernels import BEST, NATIVE, PURE, BatchKernel, BatchSummary
from holdfast.log.batches.records import inflate_payload
from holdfast.log.batches.rules import CorruptBatchError
from holdfast.vocabulary.random import SeededRandom

if TYPE_CHECKING:
    from random import Random  # noqa: TID251 - the type of what a seeded chance holds

LIMITS = RecordBatchLimits(batch_bytes_max=100_000, records_max=10_000, inflated_bytes_max=1 << 20)
EDGES = (0, 1, 5, 6, 7, 0x0F, 0x10, 0x7F, 0x80, 0xFE, 0xFF)
WIDE_EDGES = (-(2**31), -2, -1, 0, 1, 48, 49, 2**31 - 1)


def some_bytes(random: "Random", most: int) -> bytes | None:
    return None if random.random() < 0.2 else random.randbytes(random.randrange(most))


def sound_batch(random: "Random") -> bytes:
    offset, records = 0, []
    for _ in range(random.choice((1, 1, 2, 5, 40))):
        headers = tuple((f"h{n}é" * random.randrange(6), some_bytes(random, 30)) for n in range(random.randrange(4)))
        time_ms = random.choice((-1, 0, 1_700_000_000_000, 2**62)) + random.randrange(1000)
        records.append(Record(offset, time_ms, some_bytes(random, 30), some_bytes(random, 200), headers))
        offset += 1 if random.random() < 0.9 else random.randrange(1, 2_000)
    return encode(
        records,
        compression=random.choice(CODECS) if random.random() < 0.3 else "none",
        producer_id=random.choice((-1, 7)),
        producer_epoch=random.choice((-1, 0)),
        base_sequence=random.choice((-1, 0)),
        control=random.random() < 0.05,
        kernel=BEST,
    )


def plain_batch(random: "Random") -> bytes:
    """What a producer sends that does not compress."""
    count, producer = random.choice((1, 1, 2, 5, 40)), random.choice((-1, 7))
    return encode(
        [
            Record(at, 1_700_000_000_000 + random.randrange(1000), some_bytes(random, 30), some_bytes(random, 200))
            for at in range(count)
        ],
        producer_id=producer,
        producer_epoch=min(producer, 0),
        base_sequence=min(producer, 0),
        kernel=BEST,
    )


def broken(random: "Random", batch: bytes) -> bytes:
    """The batch with up to four injuries, often with a length and checksum that hide them."""
    data = bytearray(batch)
    for _ in range(random.randrange(5)):
        at = random.randrange(len(data)) if data else 0
        match random.randrange(8) if data else 1:
            case 0:
                data[at] ^= 1 << random.randrange(8)
            case 1:
                data[at:at] = random.randbytes(random.randrange(1, 6))
            case 2:
                del data[at : at + random.randrange(1, 6)]
            case 3:
                del data[at:]
            case 4:
                data[at:at] = bytes([0xFF]) * random.randrange(1, 11)  # a varint without end
            case 5:
                field = random.choice((8, 23, 53, 57))
                data[field : field + 4] = random.choice(WIDE_EDGES).to_bytes(4, "big", signed=True)
            case 6:
                field = random.choice((0, 27, 35, 43))
                data[field : field + 8] = random.choice((-(2**63), -2, -1, 0, 2**63 - 1)).to_bytes(
                    8, "big", signed=True
                )
            case _:
                data[at] = random.choice(EDGES)
    if len(data) >= HEADER_BYTES and random.random() < 0.8:
        data[8:12] = (len(data) - 12).to_bytes(4, "big")
        data[16] = 2
        data[CRC_AT : CRC_AT + 4] = checksum(data).to_bytes(4, "big")
    return bytes(data)


def plain(answer: object) -> object:
    """The answer with every buffer as bytes, so that answers compare."""
    if isinstance(answer, bytearray | memoryview):
        return bytes(answer)
    if isinstance(answer, list | tuple):
        return [plain(each) for each in answer]
    return answer


def outcome(call: Callable[[], object]) -> object:
    try:
        return plain(call())
    except CorruptBatchError as error:  # what `inflate` raises passes through the kernel
        return error.args


def inflate(codec: int, payload: memoryview, at: int) -> Buffer:
    return inflate_payload(codec, payload, at=at, limits=LIMITS, stored=True)


def picked(kernel: BatchKernel, payload: bytes, header: BatchHeader, deltas: Sequence[int]) -> object:
    """What a kernel picks, in three buckets, and where it goes on; the same of two batches, as extents."""
    words = array("Q", [header.base_offset + delta << 8 | delta % 3 for delta in deltas]).tobytes()
    buffers = [bytearray() for _ in range(3)]
    end = kernel.pick(payload, header, words, 0, buffers)
    behind = header._replace(base_offset=header.base_offset + header.last_offset_delta + 1)
    extents = [kernel.pick_extents([(payload, header), (payload, behind)], words, 0, most) for most in (1, 200)]
    return end, [bytes(each) for each in buffers], extents


def answers(kernel: BatchKernel, buffers: list[bytes]) -> list[object]:
    """What a kernel says to all there is to ask about some buffers."""
    found = []
    limits = (LIMITS.batch_bytes_max, LIMITS.records_max)
    for buffer in buffers:
        for stored in (True, False):
            found.append(outcome(lambda b=buffer, s=stored: kernel.scan(b, s, *limits, BatchHeader)))  # type: ignore[misc]
        for end_offset in (0, 2, 1 << 62):
            found.append(outcome(lambda b=buffer, e=end_offset: kernel.summarize(b, e, BatchSummary)))  # type: ignore[misc]
        if len(buffer) < HEADER_BYTES:
            continue
        header, payload = parse_header(buffer), buffer[HEADER_BYTES:]
        if header.count > 100_000:
            continue
        for contiguous in (True, False):
            found.append(outcome(lambda h=header, p=payload, c=contiguous: kernel.check(p, h, c)))  # type: ignore[misc]
        for most in (1, 1_000):
            found.append(outcome(lambda h=header, p=payload, m=most: kernel.keyless(p, h, m)))  # type: ignore[misc]
        if 0 <= header.base_offset < 1 << 62:  # `decode` lets no other header pass
            found.append(outcome(lambda h=header, p=payload: kernel.read(p, h, (0, 0, -1), 1_000, Record)))  # type: ignore[misc]
            for deltas in ((), (0,), (1, 3), (-1, 2, 2, 1, 39), range(5_000)):
                found.append(outcome(lambda h=header, p=payload, d=deltas: kernel.read_chosen(p, h, d, Record)))  # type: ignore[misc]
            if header.base_offset < 1 << 55 and header.last_offset_delta >= 0:  # offsets of words have 56 bits
                for deltas in ((), (0,), (1, 3), (2, 39), range(5_000)):
                    found.append(outcome(lambda h=header, p=payload, d=deltas: picked(kernel, p, h, d)))  # type: ignore[misc]
    given: list[Buffer] = list(buffers)
    for at, block_bytes, bytes_max in ((0, 1, 1), (0, 200, 1 << 20), (1, 1 << 20, 1), (0, 1 << 20, 1 << 20)):
        found.append(outcome(partial(kernel.join_blocks, given, at, block_bytes, bytes_max, 0, BatchSummary)))
    for with_headers in (True, False):
        found.append(outcome(lambda w=with_headers: kernel.columns(buffers, inflate, w)))  # type: ignore[misc]
    return found


def fuzz(seed: int, rounds: int, *, twin: BatchKernel | None = NATIVE) -> int:
    """Compare a kernel with the pure one (or exercise that one alone); how many answers there were."""
    random = SeededRandom(seed).random
    compared = 0
    for number in range(rounds):
        buffers = [broken(random, sound_batch(random)) for _ in range(random.choice((1, 1, 3)))]
        if random.random() < 0.3:
            buffers.append(sound_batch(random) + buffers[0])
        expected = answers(PURE, buffers)
        if twin is not None:
            found = answers(twin, buffers)
            assert found == expected, f"seed {seed}, round {number}: {buffers!r}"
        compared += len(expected)
    return compared


if __name__ == "__main__":
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    print(fuzz(seed, int(sys.argv[1])), "answers compared, native kernel:", NATIVE is not None)
