"""Direct I/O: large files written and read past the page cache (O_DIRECT), where the system supports it.

Through the page cache, every page of a new file is found, cleared and written back: most of the cost of storing an object, and
again of reading it. What is written here is read later, or never, and rarely by this process. The end of the file that does not
fill a block, and file systems that refuse O_DIRECT, go through the cache; only speed depends on it.
"""

import fcntl
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from holdfast.objects.buffer_pool import BufferPool
from holdfast.vocabulary.alignment import DISK_BLOCK_BYTES
from holdfast.vocabulary.native import native
from holdfast.vocabulary.settings import KIB, MIB
from holdfast.vocabulary.tracked_memory import anonymous_mmap

DIRECT_FROM_BYTES: Final = MIB
# At once. The WAL's writes wait behind each: twice as long behind a MiB, with which a lone put is a seventh faster.
_WRITE_BYTES: Final = 256 * KIB

_FLAG: Final[int] = getattr(os, "O_DIRECT", 0)
_BUFFERS: Final = threading.local()


def write_direct(descriptor: int, parts: Sequence[memoryview]) -> int:
    """Write whole blocks of `parts` past the cache, as far as the file system accepts it; returns the bytes written."""
    with _direct(descriptor) as direct:
        return write_blocks(descriptor, parts, _buffer(), DISK_BLOCK_BYTES) if direct else 0


def _write_blocks(descriptor: int, parts: Sequence[memoryview], memory: memoryview, block_bytes: int, /) -> int:
    """The twin of the C kernel's `write_blocks`, which does not hold the interpreter while it copies."""
    if len(memory) < block_bytes:
        raise ValueError("memory must hold at least one block")
    written = 0
    for filled in _filled(memory[: len(memory) - len(memory) % block_bytes], parts):
        size = filled - filled % block_bytes
        try:
            done = os.write(descriptor, memory[:size]) if size else 0
        except OSError:
            break  # O_DIRECT refused after all: an error of the disk itself shows again through the cache
        written += done
        if done < size or size < filled:
            break
    return written


write_blocks = _write_blocks if native is None else native.write_blocks


def read_direct(path: Path, start: int, end: int, memory: BufferPool) -> memoryview | None:
    """Bytes [start, end) of a file, which must exist; None if they cannot be read past the cache."""
    if not _FLAG:
        return None
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | _FLAG)
    except OSError:
        return None  # an error of the file itself shows again through the cache
    first = start - start % DISK_BLOCK_BYTES
    size = end - first
    whole = size + -size % DISK_BLOCK_BYTES
    view = memory.take(whole)
    try:
        filled = 0
        while filled < size:
            done = os.preadv(descriptor, [view[filled:whole]], first + filled)
            if not done or (done % DISK_BLOCK_BYTES and filled + done < size):
                return None  # the file ends before `end`, or the read was no whole block
            filled += done
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return view[start - first : size].toreadonly()


@contextmanager
def _direct(descriptor: int) -> Iterator[bool]:
    """Whether writes in the body bypass the cache."""
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    try:
        if not _FLAG:
            yield False
            return
        try:
            fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | _FLAG)
        except OSError:
            yield False
            return
        yield True
    finally:
        with suppress(OSError):
            fcntl.fcntl(descriptor, fcntl.F_SETFL, flags)


def _filled(buffer: memoryview, parts: Sequence[memoryview]) -> Iterator[int]:
    """Copy `parts` through the buffer; yields the filled size each time it is full, and at the end."""
    at = 0
    for part in parts:
        while part:
            taken = min(len(buffer) - at, len(part))
            buffer[at : at + taken] = part[:taken]
            part = part[taken:]
            at += taken
            if at == len(buffer):
                yield at
                at = 0
    if at:
        yield at


def _buffer() -> memoryview:
    """This thread's buffer, page-aligned as O_DIRECT requires."""
    if not hasattr(_BUFFERS, "view"):
        _BUFFERS.view = memoryview(anonymous_mmap(_WRITE_BYTES))
    view: memoryview = _BUFFERS.view
    return view
