"""Whole files under a path or URL: completely and durably written, or absent.

The one rule: a file appears under its name only when it is complete: by an atomic write on a disk, by a put on object storage.
"""

import io
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from holdfast.pipeline.sinks.contract import BlockedError
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.files import write_atomic
from holdfast.vocabulary.installation import NotInstalledError
from holdfast.vocabulary.random import Random, SystemRandom

SCHEMES = ("", "file", "s3", "gs", "az")


@dataclass(frozen=True, slots=True)
class FileLocation:
    """A folder on a disk, or a prefix of an object store. `options` may hold secrets."""

    url: str
    """Without options; a path where it is a disk."""
    local: bool
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def put(self, name: str, body: bytes, *, random: Random | None = None) -> None:
        """Write a file below the location. `BlockedError`: the disk or the object store failed."""
        failures: tuple[type[Exception], ...] = (OSError, *_remote_errors())
        try:
            if self.local:
                path = Path(self.url) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                # Attempts of one range run in several processes and threads: each has an unfinished file of its own.
                nonce = (random or SystemRandom()).token()
                write_atomic(path, body, unfinished=f".{path.name}.{nonce}")
            else:
                self._store().put(name, body)
        except failures as error:
            raise BlockedError(f"{self.url}: {' '.join(str(error).split())[:500]}") from None

    def names_from(self, folder: str, first: str) -> list[str]:
        """The names of files directly in a folder that are not before `first`. `BlockedError`: they cannot be listed."""
        failures: tuple[type[Exception], ...] = (OSError, *_remote_errors())
        try:
            if self.local:
                found = Path(self.url) / folder
                return [each.name for each in found.iterdir() if each.name >= first] if found.is_dir() else []
            pages = self._store().list(f"{folder}/", offset=f"{folder}/{first}")
            return [entry["path"].rpartition("/")[2] for page in pages for entry in page]
        except failures as error:
            raise BlockedError(f"{self.url}: {' '.join(str(error).split())[:500]}") from None

    def check(self) -> str:
        """Whether files can be written, as far as it shows without writing one. `BlockedError`: they cannot."""
        failures: tuple[type[Exception], ...] = (OSError, *_remote_errors())
        try:
            if not self.local:
                next(iter(self._store().list(chunk_size=1)), None)
                return f"{self.url} can be listed"
            folder = Path(self.url)
            while not folder.exists():
                folder = folder.parent
            if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
                raise BlockedError(f"{folder} is no directory that can be written to")
            return f"{self.url} can be written to on this node"
        except failures as error:
            raise BlockedError(f"{self.url}: {' '.join(str(error).split())[:500]}") from None

    def child(self, name: str) -> str:
        """The full name of a file below the location."""
        return f"{self.url.rstrip('/')}/{name}"

    def _store(self) -> Any:
        try:
            from obstore.store import from_url
        except ModuleNotFoundError:
            raise NotInstalledError(f"url {self.url}", "obstore", "s3") from None
        options: Any = dict(self.options)
        return from_url(self.url, config=options)


def parse_location(text: str) -> FileLocation:
    """A path, `file:///path`, or `s3://bucket/prefix?region=…` with the options of `docs/objects.md`."""
    parts = urlsplit(text)
    if parts.scheme not in SCHEMES or not (parts.netloc or parts.path):
        raise InvalidError(
            "url", parts._replace(query="", netloc="…").geturl(), "a path, file:///…, s3://…, gs://…, az://…"
        )
    if parts.scheme in ("", "file"):
        return FileLocation(unquote(parts.path), True)
    return FileLocation(parts._replace(query="").geturl(), False, dict(parse_qsl(parts.query)))


def parquet_bytes(table: Any) -> bytes:
    """The table as a Parquet file."""
    import pyarrow.parquet as pq

    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    return buffer.getvalue()


def _remote_errors() -> tuple[type[Exception], ...]:
    try:
        from obstore.exceptions import BaseError
    except ModuleNotFoundError:
        return ()
    return (BaseError,)
