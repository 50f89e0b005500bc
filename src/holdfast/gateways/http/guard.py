"""What holds for every request, whatever it asks for: doors, limits, a time, an access line, and numbers.

It stands around the application as plain ASGI, so that nothing passes it: an unknown path is judged, counted and logged like any
other. A body is read here, whole and bounded, before the application hears of the request.
"""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from holdfast.gateways.http.asgi import Application, Message, Receive, Scope, Send, header_map, replaying, send_problem
from holdfast.gateways.http.doors import Doors, ambiguous
from holdfast.gateways.http.metrics.requests import RequestCounters
from holdfast.gateways.http.problems import BUSY, FAILED, LATE, MALFORMED, TOO_LARGE, TOO_SLOW, Problem, problem
from holdfast.gateways.http.settings import HttpSettings
from holdfast.vocabulary.clock import Chance, Clock

_access: Final = logging.getLogger("holdfast.http.access")
_log: Final = logging.getLogger(__name__)

PROBES: Final = frozenset({"/live", "/ready", "/metrics"})
_PATH_CHARS_MAX: Final = 300
_DRAINED_TIMES: Final = 16  # of the largest body
_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"})
_HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"x-frame-options", b"DENY"),
    (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


class Refused(Exception):  # noqa: N818 - an answer, not an error
    """The request ends here, with this problem. `drain`: what is left of it is read and forgotten first."""

    def __init__(self, said: Problem, *, drain: bool = True) -> None:
        super().__init__(said)
        self.said, self.drain = said, drain


class Guard:
    """The application with everything around it."""

    def __init__(
        self,
        inner: Application,
        *,
        doors: Doors,
        counters: RequestCounters,
        settings: HttpSettings,
        clock: Clock,
        chance: Chance,
    ) -> None:
        self._inner, self._doors, self._counters, self._settings = inner, doors, counters, settings
        self._clock, self._chance = clock, chance

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        began_ms = self._clock.boot_ms()
        answer = _Answer(send, self._chance.token())
        told = {**scope, "method": "GET" if scope["method"] == "HEAD" else scope["method"]}
        self._counters.under_way += 1
        try:
            await self._answered(told, scope["method"], receive, answer)
        finally:
            self._counters.under_way -= 1
            self._note(told, scope["method"], answer, self._clock.boot_ms() - began_ms)

    async def _answered(self, scope: Scope, method: str, receive: Receive, answer: "_Answer") -> None:
        try:
            self._let_in(scope, method)
            body = await self._body(header_map(scope), receive)
            async with asyncio.timeout(self._settings.request_ms / 1000):
                await self._inner(scope, replaying(body, receive), answer)
        except Refused as refused:
            if refused.drain:
                await self._drained(receive)
            await send_problem(answer, refused.said)
        except TimeoutError:
            if not answer.began:
                await send_problem(answer, problem(LATE, f"no answer within {self._settings.request_ms} ms"))
        except Exception:
            _log.exception("a request failed")
            if not answer.began:
                await send_problem(answer, problem(FAILED, f"see the log of this server for request {answer.id}"))

    def _let_in(self, scope: Scope, method: str) -> None:
        names = [name.decode("latin-1") for name, _ in scope["headers"]]
        said = ambiguous(names) or self._doors.refusal(method, header_map(scope))
        if said is not None:
            raise Refused(said)
        if self._counters.under_way > self._settings.requests_max and scope["path"] not in PROBES:
            self._counters.turned_away += 1
            raise Refused(problem(BUSY, f"more than {self._settings.requests_max} requests are under way"))

    async def _body(self, headers: Mapping[str, str], receive: Receive) -> bytes:
        most = self._settings.body_bytes_max
        length = headers.get("content-length", "")
        if length.isascii() and length.isdecimal() and int(length[:20]) > most:
            raise Refused(problem(TOO_LARGE, f"{length[:20]} bytes; allowed are {most}"))
        try:
            async with asyncio.timeout(self._settings.body_ms / 1000):
                return await _whole(receive, most)
        except TimeoutError:
            said = problem(TOO_SLOW, f"the body was not there within {self._settings.body_ms} ms")
            raise Refused(said, drain=False) from None

    async def _drained(self, receive: Receive) -> None:
        """A client that is still sending when we hang up never sees the answer: let it finish, within bounds."""
        left = _DRAINED_TIMES * self._settings.body_bytes_max
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.body_ms / 1000):
                while left > 0:
                    message = await receive()
                    left -= len(message.get("body", b""))
                    if not message.get("more_body", False):
                        return

    def _note(self, scope: Scope, method: str, answer: "_Answer", took_ms: int) -> None:
        route = str(scope.get("path_template") or "") if answer.status != 404 else ""
        shown = method if method in _METHODS else "OTHER"
        self._counters.answered(shown, route, answer.status, took_ms)
        level = logging.DEBUG if scope["path"] in PROBES else logging.INFO
        client = scope.get("client") or ("", 0)
        _access.log(
            level,
            "request",
            extra={
                "method": shown,
                # As it was sent: percent signs and all, nothing in it can end a line or colour a terminal.
                "path": scope["raw_path"].decode("ascii", "replace")[:_PATH_CHARS_MAX],
                "status": answer.status,
                "ms": took_ms,
                "bytes": answer.bytes,
                "client": client[0],
                "request": answer.id,
            },
        )


async def _whole(receive: Receive, most: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            # A half of a request may look like a whole one: nothing is done about it.
            raise Refused(problem(MALFORMED, "the client hung up before the body was there"), drain=False)
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > most:
            raise Refused(problem(TOO_LARGE, f"more than {most} bytes"))
        if not message.get("more_body", False):
            return b"".join(parts)


class _Answer:
    """`send`, with what every answer carries, and a note of what went through it."""

    def __init__(self, send: Send, request_id: str) -> None:
        self._send = send
        self.id = request_id
        self.status, self.bytes, self.began = 0, 0, False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.began, self.status = True, message["status"]
            headers: list[Any] = [*message.get("headers", ()), *_HEADERS, (b"x-request-id", self.id.encode())]
            message = {**message, "headers": headers}
        else:
            self.bytes += len(message.get("body", b""))
        await self._send(message)
