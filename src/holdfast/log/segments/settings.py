"""When a segment is rolled, how it is packed, and how it is read. Every limit is a setting."""

from dataclasses import dataclass
from typing import Final

from holdfast.vocabulary.settings import KIB, MIB, check_at_least, check_between, check_one_of

COMPRESSIONS: Final = ("none", "lz4")

# Measured: LZ4 packs and unpacks fastest while a block fits the cache, and gains little beyond its window of 64 KiB.
BLOCK_BYTES: Final = 128 * KIB


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentSettings:
    """Values an operator may tune. `roll_*` say when a partition closes a segment; below 1 MiB only tests roll."""

    roll_bytes_max: int = 8 * MIB
    roll_age_max_ms: int = 60_000
    compression: str = "lz4"
    block_bytes: int = BLOCK_BYTES
    tail_bytes: int = 16 * KIB  # the first read of a segment: footer, index, and all of a small segment
    thread_bytes_min: int = 256 * KIB  # a read of more than this is unpacked on a thread

    def __post_init__(self) -> None:
        check_between("roll_bytes_max", self.roll_bytes_max, 1 * KIB, 100 * MIB)
        check_at_least("roll_age_max_ms", self.roll_age_max_ms, 1)
        check_one_of("compression", self.compression, COMPRESSIONS)
        check_between("block_bytes", self.block_bytes, 1, 64 * MIB)
        check_between("tail_bytes", self.tail_bytes, 1 * KIB, 64 * MIB)
        check_at_least("thread_bytes_min", self.thread_bytes_min, 0)
