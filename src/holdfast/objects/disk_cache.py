"""Disk cache: the second tier, ranges as files in a folder of this process, within a budget of bytes.

The one rule: what fails its check does not exist. Each file carries its name and a CRC-32C over everything; one that was torn
by a crash or damaged is removed and read again from the engine. So nothing is synced, and no failure of this disk reaches a
reader. Files are written in the background; when that falls behind, ranges are skipped.
"""

import fcntl
import hashlib
import os
import struct
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from crc32c import crc32c

from holdfast.contracts.objects import Buffer
from holdfast.objects.io_threads import IoThreads
from holdfast.objects.ram_cache import RangeKey
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.files import write_atomic
from holdfast.vocabulary.settings import MIB
from holdfast.vocabulary.tasks import Notify, background_tasks

_HEADER: Final = struct.Struct(">4sBIH")  # magic, version, CRC-32C of name and body, length of the name
_MAGIC: Final = b"HFSP"
_VERSION: Final = 1
_SUFFIX: Final = ".range"
_UNFINISHED: Final = ".new"
_DIGEST_CHARS: Final = 32


class DiskCache:
    """Ranges on disk, the least recently read ones removed first (after a restart: the first written)."""

    def __init__(self, folder: Path, *, bytes_max: int, threads: IoThreads, backlog_bytes_max: int = 64 * MIB) -> None:
        self._folder, self._bytes_max, self._threads = folder, bytes_max, threads
        self._files: OrderedDict[str, int] = OrderedDict()  # name → size
        self._waiting: deque[tuple[RangeKey, Buffer]] = deque()
        self._evicted: set[str] = set()  # keys evicted since the current write began
        self._notify = Notify()
        self._backlog_bytes, self._backlog_bytes_max = 0, backlog_bytes_max
        self.bytes_held = 0
        self.skipped = 0
        self.damaged = 0

    @classmethod
    @asynccontextmanager
    async def open(cls, folder: Path, *, bytes_max: int) -> AsyncIterator["DiskCache"]:
        """The tier in `folder`, with the files of an earlier process. One process at a time."""
        async with IoThreads.running(f"cache {folder}", threads_max=4) as threads:
            lock = await threads.run_to_end(_lock, folder)
            try:
                disk = cls(folder, bytes_max=bytes_max, threads=threads)
                await disk._load_existing()
                async with background_tasks(disk._write_behind()):
                    yield disk
            finally:
                os.close(lock)

    async def find(self, name: RangeKey) -> bytes | None:
        """The bytes of exactly this range."""
        file = _file_of(name)
        if file not in self._files:
            return None
        self._files.move_to_end(file)
        body = await self._threads.run(_read, self._folder / file, name)
        if body is None and file in self._files:
            self.damaged += 1
            await self._remove([file])
        return body

    def offer(self, name: RangeKey, body: Buffer) -> None:
        """Queue a range to be written, unless the backlog is full."""
        size = len(body)
        if _file_of(name) in self._files or size > self._bytes_max // 2:
            return
        if self._backlog_bytes + size > self._backlog_bytes_max:
            self.skipped += 1
            return
        self._backlog_bytes += size
        self._waiting.append((name, body))
        self._notify.notify()

    async def evict(self, keys: Collection[str]) -> None:
        """Remove every range of some objects, including queued ones and one being written."""
        self._evicted.update(keys)
        for _ in range(len(self._waiting)):
            name, body = self._waiting.popleft()
            if name[0] in keys:
                self._backlog_bytes -= len(body)
            else:
                self._waiting.append((name, body))
        digests = {_digest(key) for key in keys}
        await self._remove([file for file in self._files if file[:_DIGEST_CHARS] in digests])

    async def _write_behind(self) -> None:
        while True:
            while self._waiting:
                name, body = self._waiting.popleft()
                try:
                    await self._write(name, body)
                finally:
                    self._backlog_bytes -= len(body)
            await self._notify.wait()

    async def _write(self, name: RangeKey, body: Buffer) -> None:
        file = _file_of(name)
        if file in self._files:
            return
        size = _HEADER.size + len(_label(name)) + len(body)
        await self._make_room(size)
        self._evicted.clear()
        if await self._threads.run_to_end(_write, self._folder / file, name, body):
            self._files[file] = size
            self.bytes_held += size
            if name[0] in self._evicted:
                await self._remove([file])
        else:
            self.skipped += 1  # a full disk must not fail a read

    async def _make_room(self, size: int) -> None:
        held, oldest = self.bytes_held + size, []
        for file, file_size in self._files.items():
            if held <= self._bytes_max:
                break
            held -= file_size
            oldest.append(file)
        await self._remove(oldest)

    async def _remove(self, files: Sequence[str]) -> None:
        """The index is changed on the event loop only, the files in threads only."""
        for file in files:
            self.bytes_held -= self._files.pop(file, 0)
        if files:
            await self._threads.run_to_end(_unlink, [self._folder / file for file in files])

    async def _load_existing(self) -> None:
        for file, size in await self._threads.run_to_end(_existing_files, self._folder):
            self._files[file] = size
            self.bytes_held += size
        await self._make_room(0)


def _existing_files(folder: Path) -> Sequence[tuple[str, int]]:
    """Files of an earlier process with their sizes, oldest first; removes unfinished ones."""
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(_SUFFIX):
                stat = entry.stat()
                found.append((stat.st_mtime_ns, entry.name, stat.st_size))
            elif entry.name.endswith(_UNFINISHED):
                _unlink([folder / entry.name])
    return [(file, size) for _, file, size in sorted(found)]


def _write(path: Path, name: RangeKey, body: Buffer) -> bool:
    label = _label(name)
    header = _HEADER.pack(_MAGIC, _VERSION, crc32c(body, crc32c(label)), len(label))
    try:
        write_atomic(
            path, b"".join((header, label, body)), durable=False, unfinished=path.with_suffix(_UNFINISHED).name
        )
    except OSError:
        return False
    return True


def _unlink(paths: Sequence[Path]) -> None:
    for path in paths:
        with suppress(OSError):
            path.unlink()


def _read(path: Path, name: RangeKey) -> bytes | None:
    try:
        raw = path.read_bytes()
        magic, version, crc, label_size = _HEADER.unpack_from(raw)
    except (OSError, struct.error):
        return None
    rest = memoryview(raw)[_HEADER.size :]
    if (magic, version) != (_MAGIC, _VERSION) or crc32c(rest) != crc or rest[:label_size] != _label(name):
        return None
    return bytes(rest[label_size:])


def _label(name: RangeKey) -> bytes:
    key, start, end = name
    return f"{key}\n{start}\n{'' if end is None else end}".encode()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_CHARS]


def _file_of(name: RangeKey) -> str:
    return f"{_digest(name[0])}-{name[1]}-{'' if name[2] is None else name[2]}{_SUFFIX}"


def _lock(folder: Path) -> int:
    """A descriptor that locks the folder until it is closed, however this process ends."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise InvalidError("cache folder", str(folder), "used by one process at a time") from None
    return descriptor
