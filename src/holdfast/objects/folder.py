"""Folder: objects as files, named by their keys, on a local file system.

The one rule: a name appears only when all its bytes are durable. A put writes its own file in `.uploads/`, syncs it, links it to
its name (which fails if the name is taken), and syncs the folder before it returns `Stored`. A process that dies in between leaves
a file in `.uploads/`, removed by a later opening, and never half an object.

A folder that is away (unmounted, removed) is unavailable, not empty: nothing can be said about its objects.

Empty folders are kept. The file system must support hard links and be case-sensitive.
"""

import errno
import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final, ParamSpec, TypeVar
from urllib.parse import unquote

from holdfast.contracts.objects import AlreadyExists, Buffer, Missing, ObjectInfo, Objects, Stored
from holdfast.objects.buffer_pool import BufferPool
from holdfast.objects.checks import check_key, check_prefix, check_range, check_tail
from holdfast.objects.direct_io import DIRECT_FROM_BYTES, read_direct
from holdfast.objects.errors import RequestRefusedError
from holdfast.objects.folder_disk import FolderDisk
from holdfast.objects.folder_listing import FolderEntry, FolderPage, read_page
from holdfast.objects.io_threads import IoThreads
from holdfast.objects.urls import ObjectsUrl
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import InvalidError, UnavailableError
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.settings import MIB, check_at_least, check_between

P = ParamSpec("P")
T = TypeVar("T")

UPLOADS: Final = ".uploads"
_TRANSIENT: Final = (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.EINTR, errno.ENOBUFS, errno.ENOMEM)


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderSettings:
    """`leftovers_ms`: age after which an unfinished upload counts as a dead process's.

    `read_idle_bytes_max`: memory of large reads kept for reuse.
    """

    threads_max: int = 8
    leftovers_ms: int = 3_600_000
    read_idle_bytes_max: int = 128 * MIB

    def __post_init__(self) -> None:
        check_between("threads_max", self.threads_max, 1, 1_024)
        check_at_least("leftovers_ms", self.leftovers_ms, 0)
        check_at_least("read_idle_bytes_max", self.read_idle_bytes_max, 0)


class FolderObjects:
    """All objects below one folder. Several processes may share it."""

    def __init__(
        self, root: Path, *, threads: IoThreads, random: Random, disk: FolderDisk, buffers: BufferPool
    ) -> None:
        self.service = f"folder {root}"
        self._buffers = buffers
        self._root, self._threads, self._random, self._disk = root, threads, random, disk
        self._durable: set[Path] = set()  # folders whose own names are durable

    @classmethod
    @asynccontextmanager
    async def open(
        cls, root: Path, *, clock: Clock, random: Random, settings: FolderSettings, disk: FolderDisk | None = None
    ) -> AsyncIterator["FolderObjects"]:
        """The folder, created if missing, without the leftovers of dead processes."""
        async with IoThreads.running(f"folder {root}", threads_max=settings.threads_max) as threads:
            buffers = BufferPool(settings.read_idle_bytes_max)
            objects = cls(root, threads=threads, random=random, disk=disk or FolderDisk(), buffers=buffers)
            await objects._do(objects._prepare, clock.now_ms() - settings.leftovers_ms)
            yield objects

    async def put(self, key: str, body: Sequence[Buffer]) -> Stored | AlreadyExists:
        check_key(key)
        return await self._do(self._put, key, body)

    async def get(self, key: str, *, start: int = 0, end: int | None = None) -> Buffer | Missing:
        check_key(key)
        check_range(key, start, end)
        if end is not None and end - start >= DIRECT_FROM_BYTES:
            return await self._do(self._read_large, key, start, end)
        return await self._do(self._read, key, start, end)

    async def get_tail(self, key: str, size_bytes: int) -> bytes | Missing:
        check_key(key)
        check_tail(key, size_bytes)
        return await self._do(self._read, key, -size_bytes, None)

    async def list(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectInfo]:
        """Page by page of one folder after the other: memory holds one page for each level of the tree."""
        check_prefix(prefix)
        found = False
        levels: list[Iterator[FolderEntry | FolderPage]] = [iter([FolderPage(prefix.rpartition("/")[0], (), "")])]
        while levels:
            entry = next(levels[-1], None)
            if entry is None:
                levels.pop()
            elif isinstance(entry, FolderPage):  # the last of its level: the page before it is done with
                levels[-1] = await self._level(entry.folder, prefix, after, entry.last or "")
            elif entry.is_folder:
                levels.append(await self._level(entry.key, prefix, after, ""))
            else:
                found = True
                yield ObjectInfo(entry.key, entry.size_bytes, entry.modified_ms)
        if not found:
            await self._do(self._check_there)

    async def _level(self, folder: str, prefix: str, after: str, last: str) -> "Iterator[FolderEntry | FolderPage]":
        page = await self._do(partial(read_page, self._root, folder, prefix=prefix, after=after, last=last))
        return chain(page.entries, () if page.last is None else (replace(page, entries=()),))

    async def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            check_key(key)
        await self._do(self._delete, keys)

    async def _do(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call in a thread and wait for its end even when cancelled: it reads the caller's buffers."""
        try:
            return await self._threads.run_to_end(call, *args, **kwargs)
        except OSError as error:
            what = f"{error.strerror} ({error.filename})" if error.filename else str(error.strerror)
            kind = UnavailableError if error.errno in _TRANSIENT else RequestRefusedError
            raise kind(self.service, what) from None

    def _prepare(self, before_ms: int) -> None:
        uploads = self._root / UPLOADS
        self._make_durable(uploads)
        with os.scandir(uploads) as found:
            for leftover in found:
                with suppress(FileNotFoundError):  # another opening removes it too
                    if leftover.stat().st_mtime_ns // 1_000_000 < before_ms:
                        self._disk.unlink(uploads / leftover.name)

    def _check_there(self) -> None:
        """`RequestRefusedError` if the folder is away: an opening leaves something in it."""
        if (self._root / UPLOADS).is_dir():
            return
        with suppress(FileNotFoundError, NotADirectoryError):
            if any(self._root.iterdir()):
                return
        raise RequestRefusedError(self.service, "it is not there: it was unmounted or removed")

    def _make_durable(self, folder: Path) -> None:
        """Create a folder and its parents, beyond the root if necessary, and sync all their names.

        Existing ones too: their creator may have died before the sync.
        """
        chain = []
        while folder not in self._durable:
            chain.append(folder)
            if self._root.is_relative_to(folder) and folder.parent.exists():
                break
            folder = folder.parent
        for each in reversed(chain):
            self._disk.make_folder(each)
            try:
                self._disk.sync_folder(each.parent)
            except PermissionError:
                if each != self._root:  # the root's parent may be unreadable
                    raise
            self._durable.add(each)

    def _put(self, key: str, body: Sequence[Buffer]) -> Stored | AlreadyExists:
        target = self._root / key
        upload = self._root / UPLOADS / self._random.token()
        size = self._write(upload, body)
        try:
            return self._publish(key, upload, target, size)
        finally:
            with suppress(OSError):  # a later opening removes it
                self._disk.unlink(upload)

    def _write(self, upload: Path, body: Sequence[Buffer]) -> int:
        try:
            descriptor = self._disk.create(upload)
        except FileNotFoundError:
            self._check_there()
            self._durable.clear()
            self._make_durable(upload.parent)
            descriptor = self._disk.create(upload)
        try:
            size = self._disk.write(descriptor, body)
            self._disk.sync(descriptor)
        except BaseException:
            with suppress(OSError):
                self._disk.unlink(upload)
            raise
        finally:
            self._disk.close(descriptor)
        return size

    def _publish(self, key: str, upload: Path, target: Path, size: int) -> Stored | AlreadyExists:
        try:
            self._make_durable(target.parent)
            self._disk.link(upload, target)
            outcome: Stored | AlreadyExists = Stored(key, size)
        except FileNotFoundError:
            self._durable.clear()  # a folder was removed meanwhile: the retry creates it again
            raise UnavailableError(self.service, f"the folder of {key} was removed") from None
        except (FileExistsError, NotADirectoryError):
            if not target.is_file():
                raise InvalidError("object key", key, "neither a folder of other keys nor below another key") from None
            outcome = AlreadyExists(key)
        # Also for `AlreadyExists`: its writer, perhaps an earlier attempt of ours, may have failed before this step.
        self._disk.sync_folder(target.parent)
        return outcome

    def _read_large(self, key: str, start: int, end: int) -> Buffer | Missing:
        return read_direct(self._root / key, start, end, self._buffers) or self._read(key, start, end)

    def _read(self, key: str, start: int, end: int | None) -> bytes | Missing:
        try:
            file = (self._root / key).open("rb", buffering=0)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            self._check_there()
            return Missing(key)
        with file:
            size = os.fstat(file.fileno()).st_size
            start = max(0, size + start) if start < 0 else min(start, size)
            end = size if end is None else min(end, size)
            if not end > start:
                return b""
            file.seek(start)
            return _read_exactly(file.read, end - start, self.service, key)

    def _delete(self, keys: Iterable[str]) -> None:
        touched = set()
        for key in keys:
            target = self._root / key
            with suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
                self._disk.unlink(target)
                touched.add(target.parent)
        if not touched:
            self._check_there()
        for folder in touched:
            self._disk.sync_folder(folder)


def _read_exactly(read: Callable[[int], bytes | None], size: int, service: str, key: str) -> bytes:
    parts = []
    while size > 0:
        part = read(size)
        if not part:
            raise UnavailableError(service, f"{key} became shorter while it was read")
        parts.append(part)
        size -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def open_url(url: ObjectsUrl, clock: Clock, random: Random) -> AbstractAsyncContextManager[Objects]:
    """`file:///path` is absolute, `file:path` relative to the working directory."""
    url.check_options(settings=(FolderSettings,))
    return FolderObjects.open(_root(url), clock=clock, random=random, settings=url.settings(FolderSettings))


def check_exists(url: ObjectsUrl) -> None:
    """`InvalidError` unless there is such a folder."""
    root = _root(url)
    if not root.is_dir():
        raise InvalidError("objects URL", url.shown, f"an existing folder: there is no {root}")


def _root(url: ObjectsUrl) -> Path:
    path = unquote(url.parts.path)
    if url.parts.netloc or not path:
        raise InvalidError("objects URL", url.shown, "file:///absolute/path or file:relative/path")
    return Path(path).absolute()
