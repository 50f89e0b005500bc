"""Remote: S3, GCS and Azure through `obstore`. One request per call; `retry` repeats them.

The one rule: `AlreadyExists` and `Stored` are returned only for servers that honour if-absent. Some S3-compatible servers ignore
the header and overwrite, so the first object a process puts is put twice, with the same body: the second put must be refused.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from itertools import chain, pairwise
from typing import Final

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    NotFoundError,
    NotModifiedError,
    NotSupportedError,
    PreconditionError,
)

from holdfast.contracts.objects import AlreadyExists, Buffer, Missing, ObjectInfo, Objects, Stored
from holdfast.objects.checks import check_key, check_prefix, check_range, check_tail
from holdfast.objects.driver_errors import NO_BUCKET, classify_error, code_of, status_of
from holdfast.objects.drivers import OPTIONS, DriverStore, RemoteSettings, connect
from holdfast.objects.errors import RequestRefusedError
from holdfast.objects.io_threads import IoThreads
from holdfast.objects.retry import RetrySettings, retry_until_deadline
from holdfast.objects.urls import ObjectsUrl
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import UnavailableError, UsageError
from holdfast.vocabulary.random import Random

_log: Final = logging.getLogger(__name__)

_NOT_FOUND: Final = (FileNotFoundError, NotFoundError)
_TAKEN: Final = (AlreadyExistsError, PreconditionError, NotModifiedError)
_LOG_EVERY_MS: Final = 5_000
_PAGE: Final = 1_000


class RemoteObjects:
    """One bucket, or a prefix in one."""

    def __init__(
        self,
        service: str,
        store: DriverStore,
        listed: DriverStore,
        *,
        threads: IoThreads,
        unsafe: bool = False,
        in_order: bool = True,
    ) -> None:
        self.service = service
        self._store, self._listed, self._threads = store, listed, threads
        self._if_absent_holds = unsafe  # verified, or waived
        self._lists_in_order = in_order

    @classmethod
    @asynccontextmanager
    async def open(
        cls, url: ObjectsUrl, *, clock: Clock, random: Random, retries: RetrySettings, settings: RemoteSettings
    ) -> AsyncIterator["RemoteObjects"]:
        """The bucket of `url`, checked once for existence and access."""
        store, listed = await asyncio.to_thread(connect, url, settings)
        async with IoThreads.running(url.shown, threads_max=settings.threads_max) as threads:
            # Directory buckets list in no order.
            in_order = url.options.get("s3_express", "").lower() not in ("1", "true", "yes", "on", "y")
            objects = cls(url.shown, store, listed, threads=threads, unsafe=settings.unsafe, in_order=in_order)
            if settings.check:
                try:
                    check = _logging_failures(objects.check, url.shown, clock)
                    await retry_until_deadline(
                        "open", check, clock=clock, random=random, settings=retries, service=url.shown
                    )
                except RequestRefusedError as refused:
                    hint = "check that the bucket exists and that the credentials may list it"
                    raise UsageError(f"cannot open {url.shown}: {refused.reason}; {hint}") from None
            yield objects

    async def check(self) -> None:
        """List one page: checks the bucket and the credentials."""
        await self._threads.run(self._run, partial(next, iter(obstore.list(self._store, chunk_size=1)), None))

    async def put(self, key: str, body: Sequence[Buffer]) -> Stored | AlreadyExists:
        check_key(key)
        if len(body) == 1 and isinstance(body[0], bytes):
            whole = body[0]
        else:
            # Copied before anything is sent: a cancelled caller may reuse its buffers while the request is in flight.
            whole = await self._threads.run_to_end(b"".join, body)
        return await self._threads.run(self._put, key, whole)

    async def get(self, key: str, *, start: int = 0, end: int | None = None) -> bytes | Missing:
        check_key(key)
        check_range(key, start, end)
        return await self._threads.run(self._get, key, start, end)

    async def get_tail(self, key: str, size_bytes: int) -> bytes | Missing:
        check_key(key)
        check_tail(key, size_bytes)
        return await self._threads.run(self._get_tail, key, size_bytes)

    async def list(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectInfo]:
        """Page by page. A server that lists in another order than that of keys is found out, and sorted for from then on.

        `after` is applied here: not every server applies it in that order.
        """
        check_prefix(prefix)
        pages: Iterator[Sequence[ObjectInfo]] = await self._threads.run(self._pages, prefix, after)
        last = ""
        while self._lists_in_order and (page := await self._threads.run(self._next_page, pages)) is not None:
            if page and (page[0].key < last or any(a.key > b.key for a, b in pairwise(page))):
                self._lists_in_order = False
                _log.warning("%s does not list objects in key order: listings are held in RAM", self.service)
                pages = chain([page], pages)
                break
            for info in page:
                yield info
                last = info.key
        # All that is left, in order: nothing is left out, although this once some may come after larger keys.
        for info in await self._threads.run(self._sorted, pages):
            yield info

    async def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            check_key(key)
        if keys:
            await self._threads.run(self._run, partial(self._delete, keys))

    def _run(self, request: Callable[[], object]) -> None:
        try:
            request()
        except (BaseError, OSError) as error:
            raise classify_error(self.service, error) from None

    def _put(self, key: str, whole: bytes) -> Stored | AlreadyExists:
        try:
            obstore.put(self._store, key, whole, mode="create", use_multipart=False)
        except _TAKEN as taken:
            # 409 also means a concurrent put or delete of the same key: the key may be free afterwards.
            if status_of(taken) == 409 and self._size(key) is None:
                raise UnavailableError(self.service, "409 Conflict: concurrent request for the same key") from None
            self._if_absent_holds = True
            return AlreadyExists(key)
        except (BaseError, OSError) as error:
            raise classify_error(self.service, error) from None
        if not self._if_absent_holds:
            self._verify_if_absent(key, whole)
        return Stored(key, len(whole))

    def _verify_if_absent(self, key: str, whole: bytes) -> None:
        try:
            obstore.put(self._store, key, whole, mode="create", use_multipart=False)
        except _TAKEN:
            self._if_absent_holds = True
        except (BaseError, OSError):
            pass  # no response, no proof: the next put checks again
        else:
            hint = "use a server with conditional writes, or ?unsafe=1"
            raise UsageError(f"{self.service} overwrote an object that was put if absent; {hint}")

    def _get(self, key: str, start: int, end: int | None) -> bytes | Missing:
        if start == end:
            return Missing(key) if self._size(key) is None else b""
        try:
            if end is not None:
                return obstore.get_range(self._store, key, start=start, end=end).to_bytes()
            if start:
                return obstore.get(self._store, key, options={"range": {"offset": start}}).bytes().to_bytes()
            return obstore.get(self._store, key).bytes().to_bytes()
        except _NOT_FOUND as error:
            return self._missing(key, error)
        except (BaseError, OSError) as error:
            if status_of(error) == 416:  # the range starts beyond the end
                return b""
            raise classify_error(self.service, error) from None

    def _get_tail(self, key: str, size_bytes: int) -> bytes | Missing:
        try:
            return obstore.get(self._store, key, options={"range": {"suffix": size_bytes}}).bytes().to_bytes()
        except _NOT_FOUND as error:
            return self._missing(key, error)
        except NotSupportedError:
            pass  # Azure has no suffix ranges
        except (BaseError, OSError) as error:
            # An empty object has no last byte: servers return 416, or the whole object, which the driver takes for an error.
            if status_of(error) != 416 and "non-partial" not in str(error):
                raise classify_error(self.service, error) from None
        size = self._size(key)
        return Missing(key) if size is None else self._get(key, max(0, size - size_bytes), size)

    def _size(self, key: str) -> int | None:
        """By a GET of one byte: the response to a HEAD has no body that would tell a missing bucket."""
        try:
            return obstore.get(self._store, key, options={"range": (0, 1)}).meta["size"]
        except _NOT_FOUND as error:
            self._missing(key, error)
            return None
        except (BaseError, OSError) as error:
            if status_of(error) == 416:
                return 0
            raise classify_error(self.service, error) from None

    def _missing(self, key: str, error: Exception) -> Missing:
        if code_of(error) in NO_BUCKET:
            raise classify_error(self.service, error)
        return Missing(key)

    def _pages(self, prefix: str, after: str) -> Iterator[Sequence[ObjectInfo]]:
        folder = prefix.rpartition("/")[0]
        for found in obstore.list(self._listed, folder or None, chunk_size=_PAGE):
            yield [
                ObjectInfo(meta["path"], meta["size"], int(meta["last_modified"].timestamp() * 1000))
                for meta in found
                if meta["path"].startswith(prefix) and meta["path"] > after
            ]

    def _next_page(self, pages: Iterator[Sequence[ObjectInfo]]) -> Sequence[ObjectInfo] | None:
        try:
            return next(pages, None)
        except (BaseError, OSError) as error:
            raise classify_error(self.service, error) from None

    def _sorted(self, pages: Iterator[Sequence[ObjectInfo]]) -> Sequence[ObjectInfo]:
        infos: list[ObjectInfo] = []
        while (page := self._next_page(pages)) is not None:
            infos += page
        infos.sort(key=lambda info: info.key)
        return infos

    def _delete(self, keys: Sequence[str]) -> None:
        try:
            obstore.delete(self._store, keys)
        except _NOT_FOUND as error:
            # Services without bulk delete report the first missing key, and may skip the rest.
            self._missing(keys[0], error)
            for key in keys:
                try:
                    obstore.delete(self._store, key)
                except _NOT_FOUND:
                    continue


def open_url(url: ObjectsUrl, clock: Clock, random: Random) -> AbstractAsyncContextManager[Objects]:
    """`s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix`."""
    url.check_options(*OPTIONS[url.parts.scheme], settings=(RemoteSettings,))
    return RemoteObjects.open(
        url, clock=clock, random=random, retries=url.settings(RetrySettings), settings=url.settings(RemoteSettings)
    )


def _logging_failures(
    check: Callable[[], Awaitable[None]], service: str, clock: Clock
) -> Callable[[], Awaitable[None]]:
    """`check`, with a log line at intervals while it fails, so that a starting server shows what it waits for."""
    log_at_ms = 0

    async def checked() -> None:
        nonlocal log_at_ms
        try:
            await check()
        except UnavailableError as error:
            if not isinstance(error, RequestRefusedError) and clock.boot_ms() >= log_at_ms:
                log_at_ms = clock.boot_ms() + _LOG_EVERY_MS
                _log.warning("object storage %s unavailable, retrying: %s", service, error.reason)
            raise

    return checked
