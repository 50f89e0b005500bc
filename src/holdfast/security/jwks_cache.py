"""An issuer's keys as this process has them: fetched on a thread, kept while the issuer is away.

The one rule: nobody but `run` fetches, one after the other. A token with an unknown key asks for the next time, not before
`refresh_min_ms` have passed since the last: whoever makes up key ids does not make us fetch for each. A set that cannot be
fetched or read leaves the keys that are known.
"""

import asyncio
import logging
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from holdfast.security.jwks import JWKS_BYTES_MAX, KeySet, parse_jwks
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import HoldfastError, InvalidError, UnavailableError
from holdfast.vocabulary.random import Random, backoff_ms
from holdfast.vocabulary.tasks import Notify

_log: Final = logging.getLogger(__name__)

_FETCH_S: Final = 5.0
_RETRY_MS, _RETRY_MAX_MS = 1_000, 60_000


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """The keys are where the operator says they are, or nowhere."""

    def redirect_request(self, *_: Any) -> None:
        return None


def read_jwks(source: str, authorities: str = "") -> bytes:
    """The set at a URL, in a file, or `source` itself. Blocks. `UnavailableError`."""
    if source.lstrip().startswith("{"):
        return source.encode()
    try:
        if not source.startswith(("https://", "http://")):
            with Path(source.removeprefix("file://")).open("rb") as file:
                return _bounded(file.read(JWKS_BYTES_MAX + 1))
        context = ssl.create_default_context(cafile=authorities or None)
        opener = urllib.request.build_opener(_NoRedirects, urllib.request.HTTPSHandler(context=context))
        with opener.open(source, timeout=_FETCH_S) as response:
            return _bounded(response.read(JWKS_BYTES_MAX + 1))
    except (OSError, ValueError) as error:  # URLError and HTTPError are OSErrors
        raise UnavailableError(f"JWKS {source}", str(error)) from None


def _bounded(data: bytes) -> bytes:
    if len(data) > JWKS_BYTES_MAX:
        raise InvalidError("JWKS", f"more than {JWKS_BYTES_MAX} bytes", f"at most {JWKS_BYTES_MAX} bytes")
    return data


class JwksCache:
    """The keys, and when they are fetched. `read` blocks: it runs on a thread."""

    def __init__(
        self, read: Callable[[], bytes], *, clock: Clock, random: Random, refresh_ms: int, refresh_min_ms: int
    ) -> None:
        self.keys = KeySet()
        self.fetches = self.failures = 0
        self._read, self._clock, self._random = read, clock, random
        self._refresh_ms, self._refresh_min_ms = refresh_ms, refresh_min_ms
        self._wanted = Notify()
        self._fetching: asyncio.Future[None] | None = None  # done when the fetch under way, or asked for, is over
        self._started_at_ms: int | None = None

    async def refreshed(self) -> bool:
        """Fetch the keys once more, for a token whose key is not among them; False: they were fetched a moment ago."""
        if self._fetching is None:
            started_ms = self._started_at_ms
            if started_ms is not None and self._clock.boot_ms() - started_ms < self._refresh_min_ms:
                return False
            self._fetching = asyncio.get_running_loop().create_future()
            self._wanted.notify()
        await asyncio.shield(self._fetching)
        return True

    async def run(self) -> None:
        """Fetch now and then, until cancelled."""
        failed = 0
        while True:
            failed = 0 if await self._fetch() else failed + 1
            pause_ms: float = self._refresh_ms
            if failed:
                pause_ms = backoff_ms(failed - 1, base_ms=_RETRY_MS, max_ms=_RETRY_MAX_MS, random=self._random)
            due_at_ms = self._clock.boot_ms() + pause_ms
            while self._fetching is None and (left_ms := due_at_ms - self._clock.boot_ms()) > 0:
                await self._wanted.wait_ms(self._clock, left_ms)

    async def _fetch(self) -> bool:
        waiting = self._fetching = self._fetching or asyncio.get_running_loop().create_future()
        self._started_at_ms = self._clock.boot_ms()
        self.fetches += 1
        try:
            self.keys = parse_jwks(await asyncio.to_thread(self._read))
        except HoldfastError as error:
            self.failures += 1
            _log.warning("keys of the OAuth issuer not fetched, %d are known: %s", len(self.keys), error)
            return False
        finally:
            self._fetching = None
            if not waiting.done():
                waiting.set_result(None)
        return True
