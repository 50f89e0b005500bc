"""Backups of a store in one file: an etcd snapshot, or a copy of an SQLite database, checked before it has its name.

A backup is taken while servers run. What is published after it is unknown to it: docs/how-to/backup-and-restore.md.
"""

import asyncio
import hashlib
import os
import sqlite3
from collections.abc import Callable
from contextlib import aclosing, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final
from urllib.parse import quote

from holdfast.stores.sqlite.settings import check_exists
from holdfast.stores.sqlite.settings import parse_url as parse_sqlite_url
from holdfast.stores.urls import StoreUrl, parse_store_url
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import CorruptError, InvalidError, UnavailableError, UsageError
from holdfast.vocabulary.files import sync_directory
from holdfast.vocabulary.random import Random

OnBytes = Callable[[int, int], None]
"""Called with the bytes that are done, and their number in all as far as it is known."""

SQLITE_HEADER: Final = b"SQLite format 3\0"
_PAGES: Final = 256
_PIECE_BYTES: Final = 1 << 20
_HINTS: Final = {
    "postgresql": "use pg_dump, or your backups with point-in-time recovery",
    "postgres": "use pg_dump, or your backups with point-in-time recovery",
    "memory": "it ends with its process",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupReport:
    """A backup that was written and read again."""

    file: str
    engine: str
    bytes: int
    sha256: str


async def back_up(url: str, file: Path, on_bytes: OnBytes, *, clock: Clock, random: Random) -> BackupReport:
    """Write a backup of the store at `url`. `UsageError`: its engine has better means; `InvalidError`: the file exists."""
    parsed = parse_store_url(url)
    scheme = parsed.parts.scheme
    if scheme not in ("etcd", "etcds", "sqlite"):
        hint = _HINTS.get(scheme, "use the server's own means (BGSAVE, and a copy of its files)")
        raise UsageError(f"{parsed.shown} is not backed up by this command: {hint}")
    if await asyncio.to_thread(file.exists):
        raise InvalidError("backup file", str(file), "a file that does not exist yet")
    unfinished = file.with_name(f".{file.name}.unfinished")
    try:
        if scheme == "sqlite":
            sha256 = await asyncio.to_thread(_copy_sqlite, parsed, unfinished, on_bytes)
        else:
            sha256 = await _copy_etcd(parsed, unfinished, on_bytes, clock=clock, random=random)
        await asyncio.to_thread(_finish, unfinished, file)
    finally:
        with suppress(OSError):
            unfinished.unlink()
    size = (await asyncio.to_thread(file.stat)).st_size
    return BackupReport(file=str(file), engine="sqlite" if scheme == "sqlite" else "etcd", bytes=size, sha256=sha256)


async def _copy_etcd(url: StoreUrl, to: Path, on_bytes: OnBytes, *, clock: Clock, random: Random) -> str:
    from holdfast.stores.etcd.client import EtcdClient  # it brings gRPC
    from holdfast.stores.etcd.maintenance import check_snapshot, snapshot
    from holdfast.stores.etcd.settings import parse_url

    address, settings = parse_url(url)
    done = 0
    async with EtcdClient.open(address, settings, clock=clock, random=random) as client:
        with _opened(to) as output:
            async with aclosing(snapshot(client)) as pieces:
                async for piece in pieces:
                    await asyncio.to_thread(output.write, piece.body)
                    done += len(piece.body)
                    on_bytes(done, done + piece.remaining_bytes)
    return await asyncio.to_thread(check_snapshot, to)


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("wb")
    except OSError as error:
        raise InvalidError("backup file", str(path), f"a writable file ({error.strerror})") from None


def _copy_sqlite(url: StoreUrl, to: Path, on_bytes: OnBytes) -> str:
    check_exists(url)
    path, _ = parse_sqlite_url(url)
    to.unlink(missing_ok=True)
    try:
        with (
            closing(sqlite3.connect(f"file:{quote(os.fsencode(path))}?mode=ro", uri=True)) as source,
            closing(sqlite3.connect(to)) as target,
        ):
            size = source.execute("PRAGMA page_size").fetchone()[0]
            source.backup(
                target, pages=_PAGES, progress=lambda _, left, total: on_bytes((total - left) * size, total * size)
            )
    except sqlite3.Error as error:
        raise UnavailableError(url.shown, str(error)) from None
    check_sqlite(to)
    return file_sha256(to)


def check_sqlite(path: Path) -> None:
    """`CorruptError` unless the file is a whole database. Blocks."""
    try:
        with closing(sqlite3.connect(f"file:{quote(os.fsencode(path))}?mode=ro&immutable=1", uri=True)) as opened:
            found = opened.execute("PRAGMA integrity_check").fetchone()[0]
    except sqlite3.Error as error:
        raise CorruptError(f"file {path}", str(error)) from None
    if found != "ok":
        raise CorruptError(f"file {path}", str(found))


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file. Blocks."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _finish(unfinished: Path, file: Path) -> None:
    """Durable first, then under its name: a backup is there whole, or not at all."""
    with unfinished.open("rb") as written:
        os.fsync(written.fileno())
    os.link(unfinished, file)
    sync_directory(file.parent)
