"""Objects behind signed URLs: for a process that may read some objects, for some time, and has no credentials.

The one rule: what its URLs do not cover is `Missing`. A URL that is no longer valid is like an object that is gone: its reader has
to find another way. Nothing is written, listed or deleted.
"""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from datetime import timedelta
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Final
from urllib.parse import urlsplit

from holdfast.contracts.objects import AlreadyExists, Buffer, Missing, ObjectInfo, Stored
from holdfast.objects.checks import check_key, check_range, check_tail
from holdfast.objects.urls import parse_objects_url
from holdfast.vocabulary.errors import UnavailableError, UsageError

_log: Final = logging.getLogger(__name__)
_ENDED: Final = (400, 401, 403)  # S3 answers an expired signature with 403, other servers with 400


def can_sign(url: str) -> bool:
    """Whether reads of these objects can be signed without asking a server."""
    return urlsplit(url).scheme == "s3"


def sign_reads(url: str, keys: Iterable[str], *, lifetime_s: int) -> dict[str, str]:
    """URLs by key, each for reading one object. For threads: credentials may have to be fetched."""
    import obstore

    from holdfast.objects.drivers import RemoteSettings, connect

    parsed, wanted = parse_objects_url(url), list(keys)
    if not wanted:
        return {}
    store, _ = connect(parsed, parsed.settings(RemoteSettings))
    return dict(zip(wanted, obstore.sign(store, "GET", wanted, timedelta(seconds=lifetime_s)), strict=True))


class SignedObjects:
    """The objects of some signed URLs. `ca_file`: of a private authority."""

    def __init__(self, urls: Mapping[str, str], *, timeout_ms: int = 20_000, ca_file: str = "") -> None:
        self._urls, self._timeout_s, self._ca_file = urls, timeout_ms / 1_000, ca_file

    async def get(self, key: str, *, start: int = 0, end: int | None = None) -> bytes | Missing:
        check_key(key)
        check_range(key, start, end)
        if start == end:
            return b""
        return await asyncio.to_thread(self._get, key, f"bytes={start}-{'' if end is None else end - 1}")

    async def get_tail(self, key: str, size_bytes: int) -> bytes | Missing:
        check_key(key)
        check_tail(key, size_bytes)
        return await asyncio.to_thread(self._get, key, f"bytes=-{size_bytes}")

    async def put(self, key: str, body: Sequence[Buffer]) -> Stored | AlreadyExists:
        """`UsageError`."""
        raise UsageError(f"object {key} cannot be written: its process may only read")

    async def list(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectInfo]:
        """`UsageError`."""
        raise UsageError(f"objects below {prefix!r} cannot be listed: its process may only read those it was given")
        yield  # pragma: no cover

    async def delete(self, keys: Sequence[str]) -> None:
        """`UsageError`."""
        raise UsageError("objects cannot be deleted: their process may only read")

    def _get(self, key: str, byte_range: str) -> bytes | Missing:
        url = self._urls.get(key)
        if url is None:
            return Missing(key)
        parts = urlsplit(url)
        connection = self._connection(parts.scheme, parts.netloc)
        try:
            connection.request("GET", f"{parts.path}?{parts.query}", headers={"Range": byte_range})
            response = connection.getresponse()
            status, body = response.status, response.read()
        except (OSError, HTTPException) as error:
            raise UnavailableError(parts.netloc, f"GET: {type(error).__name__}") from None
        finally:
            connection.close()
        if status in (200, 206):
            return body if status == 206 else _cut(body, byte_range)
        if status == 416:  # the range starts beyond the end
            return b""
        if status in _ENDED:
            _log.info("the URL of object %s is not valid any more (%d)", key, status)
        if status in (404, *_ENDED):
            return Missing(key)
        raise UnavailableError(parts.netloc, f"GET: {status}")

    def _connection(self, scheme: str, netloc: str) -> HTTPConnection:
        if scheme == "http":
            return HTTPConnection(netloc, timeout=self._timeout_s)
        context = ssl.create_default_context(cafile=self._ca_file or None)
        return HTTPSConnection(netloc, timeout=self._timeout_s, context=context)


def _cut(body: bytes, byte_range: str) -> bytes:
    """The range of a whole object, from a server that ignores ranges."""
    first, _, last = byte_range.removeprefix("bytes=").partition("-")
    if not first:
        return body[-int(last) :]
    return body[int(first) : int(last) + 1 if last else None]
