"""Writing and reading large files past the page cache (O_DIRECT), where the system can.

A new file through the page cache costs a page to be found, cleared and written back for every page of the file: most of what
storing an object costs, and again of what reading it costs. What is written here is read later, or never, and rarely by this
process. The end of the file that does not fill a block, and every file system that refuses, go through the cache as always; nothing
but speed depends on it.
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
from holdfast.vocabulary.settings import MIB
from holdfast.vocabulary.tracked_memory import anonymous_mmap

DIRECT_FROM_BYTES: Final = MIB

_FLAG: Final[int] = getattr(os, "O_DIRECT", 0)
_BUFFERS: Final = threading.local()


def write_direct(descriptor: int, parts: Sequence[memoryview]) -> int:
    """Write as many whole blocks of `parts` as the file system takes past its cache; how many bytes that were."""
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
            break  # it refuses after all: what is wrong with the disk itself, the cached way will say
        written += done
        if done < size or size < filled:
            break
    return written


write_blocks = _write_blocks if native is None else native.write_blocks


def read_direct(path: Path, start: int, end: int, memory: BufferPool) -> memoryview | None:
    """Bytes [start, end) of a file, which must be there; None if they cannot be read past the cache."""
    if not _FLAG:
        return None
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | _FLAG)
    except OSError:
        return None  # what is wrong with the file itself, the cached way will say
    first = start - start % DISK_BLOCK_BYTES
    size = end - first
    whole = size + -size % DISK_BLOCK_BYTES
    view = memory.take(whole)
    try:
        filled = 0
        while filled < size:
            done = os.preadv(descriptor, [view[filled:whole]], first + filled)
            if not done or (done % DISK_BLOCK_BYTES and filled + done < size):
                return None  # it ends before `end`, or gives what is no whole block
            filled += done
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return view[start - first : size].toreadonly()


@contextmanager
def _direct(descriptor: int) -> Iterator[bool]:
    """Whether writes of the body go past the cache."""
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
    """Copy `parts` through the buffer: how much of it is filled, each time it is full and at the end."""
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
    """This thread's own, in memory of its own, which begins at a page as O_DIRECT asks for."""
    if not hasattr(_BUFFERS, "view"):
        _BUFFERS.view = memoryview(anonymous_mmap(MIB))
    view: memoryview = _BUFFERS.view
    return view
