"""Alignment: padding that lets a large buffer be written with direct I/O without being copied first.

Direct I/O writes whole blocks from memory that starts at a block boundary. A buffer at any address can be written in place, except
for its two ends, if its offset within a block is the same in the file as in memory: the writer pads the file accordingly. Only
speed depends on it.
"""

from typing import Final

from holdfast.vocabulary.native import native

DISK_BLOCK_BYTES: Final = 4096  # accepted by every present device and file system


def alignment_padding(part: bytes | bytearray | memoryview, position: int, *, min_bytes: int) -> int:
    """The padding at `position` that lets `part` be written in place; 0 for parts smaller than `min_bytes`."""
    if native is None or len(part) < min_bytes:
        return 0
    return (native.address(part) - position) % DISK_BLOCK_BYTES
