"""In place: large buffers that go from memory to a file past the page cache without being copied on the way.

The kernel takes whole blocks of a file from memory that begins at a block. A buffer that lies anywhere can still go from where it
is, but for its two ends, if it comes to lie in the file as it lies in memory, counted in blocks: who lays out the file leaves a gap
before it. Nothing but speed depends on it.
"""

from typing import Final

from holdfast.vocabulary.native import native

DISK_BLOCK_BYTES: Final = 4096  # what every device and file system of today can do


def alignment_padding(part: bytes | bytearray | memoryview, position: int, *, min_bytes: int) -> int:
    """How many bytes to leave at `position` so that `part` can be written from where it is; none before smaller ones."""
    if native is None or len(part) < min_bytes:
        return 0
    return (native.address(part) - position) % DISK_BLOCK_BYTES
