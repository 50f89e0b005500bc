"""What every request passes: access policy, limits, a deadline, the access log and counters.

It wraps the application as plain ASGI, so nothing bypasses it: an unknown path is checked, counted and logged like any other. The
body is read here, completely and bounded, before the application is called.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from holdfast.gateways.http.access_policy import HostPolicy, duplicate_header_problem
from holdfast.gateways.http.asgi import (
    Application,
    Message,
    Receive,
    Scope,
    Send,
    header_map,
    replay_body,
    send_problem,
)
from holdfast.gateways.http.metrics.requests import RequestCounters
from holdfast.gateways.http.problems import (
    BUSY,
    INTERNAL_ERROR,
    MALFORMED,
    REQUEST_TIMEOUT,
    RESPONSE_TIMEOUT,
    TOO_LARGE,
    Problem,
    problem,
)
from holdfast.gateways.http.settings import HttpSettings
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.correlation import correlated
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.tracing import Span, TraceContext, Tracer, current_span, parse_traceparent

_access: Final = logging.getLogger("holdfast.http.access")
_log: Final = logging.getLogger(__name__)

REQUEST_ID: Final = "holdfast.request_id"  # in the scope
BODY: Final = "holdfast.body"  # in the scope: what the application could receive as well
PROBE_PATHS: Final = frozenset({"/live", "/ready", "/metrics"})
_PATH_CHARS_MAX: Final = 300
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")  # of a client: nothing in it can end a line
_SERVER_ERROR: Final = 500
_DRAIN_FACTOR: Final = 16  # of the largest body
_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"})
_SECURITY_HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"x-frame-options", b"DENY"),
    (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


Audit = Callable[[Scope, int, str], None]
"""Called after each request with its scope, status and id."""


class RequestRejected(Exception):  # noqa: N818 - a response, not an error
    """The request is answered with this problem. `drain`: the rest of its body is read and discarded first."""

    def __init__(self, problem_details: Problem, *, drain: bool = True) -> None:
        super().__init__(problem_details)
        self.problem_details, self.drain = problem_details, drain


class RequestMiddleware:
    """Wraps the application."""

    def __init__(
        self,
        inner: Application,
        *,
        access_policy: HostPolicy,
        counters: RequestCounters,
        settings: HttpSettings,
        clock: Clock,
        random: Random,
        audit: Audit | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        self._audit, self._tracer = audit, tracer
        self._inner, self._access_policy, self._counters, self._settings = inner, access_policy, counters, settings
        self._clock, self._random = clock, random

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        began_ms = self._clock.boot_ms()
        headers = header_map(scope)
        request_id = headers.get("x-request-id", "")
        parent = parse_traceparent(headers["traceparent"]) if "traceparent" in headers else None
        span = self._begin_span(scope, parent) if self._tracer is not None else None
        context = span.context if span is not None else parent
        response = _ResponseRecorder(
            send, request_id if _REQUEST_ID.fullmatch(request_id) else self._random.token(), context
        )
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        inner = {**scope, "method": method, REQUEST_ID: response.id}
        self._counters.in_flight += 1
        token = current_span.set(span) if span is not None else None
        with correlated(request=response.id, trace_id=response.trace_id):
            try:
                await self._respond(inner, scope["method"], receive, response)
            finally:
                self._counters.in_flight -= 1
                if span is not None and token is not None:
                    current_span.reset(token)
                    self._end_span(span, inner, response)
                self._log_access(inner, scope["method"], response, self._clock.boot_ms() - began_ms)
                if self._audit is not None:
                    self._audit(inner, response.status, response.id)

    def _begin_span(self, scope: Scope, parent: TraceContext | None) -> Span | None:
        if self._tracer is None or scope["path"] in PROBE_PATHS or not self._tracer.samples(parent):
            return None
        method = scope["method"] if scope["method"] in _METHODS else "OTHER"
        attributes = {"http.request.method": method, "url.path": scope["path"][:_PATH_CHARS_MAX]}
        return self._tracer.record(f"HTTP {method}", parent=parent, kind="server", attributes=attributes)

    def _end_span(self, span: Span, scope: Scope, response: "_ResponseRecorder") -> None:
        span.set("http.route", str(scope.get("path_template") or ""))
        span.set("http.response.status_code", response.status)
        span.set("holdfast.request_id", response.id)
        span.end(f"status {response.status}" if response.status >= _SERVER_ERROR else "")

    async def _respond(self, scope: Scope, method: str, receive: Receive, response: "_ResponseRecorder") -> None:
        try:
            self._check_access(scope, method)
            body = scope[BODY] = await self._body(header_map(scope), receive)
            async with asyncio.timeout(self._settings.request_ms / 1000):
                await self._inner(scope, replay_body(body, receive), response)
        except RequestRejected as refused:
            if refused.drain:
                await self._drain(receive)
            await send_problem(response, refused.problem_details)
        except TimeoutError:
            if not response.started:
                await send_problem(
                    response, problem(RESPONSE_TIMEOUT, f"no response within {self._settings.request_ms} ms")
                )
        except Exception:
            _log.exception("request %s failed", response.id)
            if not response.started:
                await send_problem(
                    response, problem(INTERNAL_ERROR, f"see the log of this server for request {response.id}")
                )

    def _check_access(self, scope: Scope, method: str) -> None:
        names = [name.decode("latin-1") for name, _ in scope["headers"]]
        problem_details = duplicate_header_problem(names) or self._access_policy.refusal(method, header_map(scope))
        if problem_details is not None:
            raise RequestRejected(problem_details)
        working = self._counters.in_flight - self._counters.waiting
        if working > self._settings.requests_max and scope["path"] not in PROBE_PATHS:
            self._counters.rejected += 1
            raise RequestRejected(
                problem(BUSY, f"{self._settings.requests_max} requests are in flight, which is the limit")
            )

    async def _body(self, headers: Mapping[str, str], receive: Receive) -> bytes:
        bytes_max = self._settings.body_bytes_max
        length = headers.get("content-length", "")
        if length.isascii() and length.isdecimal() and int(length[:20]) > bytes_max:
            raise RequestRejected(problem(TOO_LARGE, f"{length[:20]} bytes exceed the limit of {bytes_max}"))
        try:
            async with asyncio.timeout(self._settings.body_ms / 1000):
                return await _read_body(receive, bytes_max)
        except TimeoutError:
            problem_details = problem(REQUEST_TIMEOUT, f"the body did not arrive within {self._settings.body_ms} ms")
            raise RequestRejected(problem_details, drain=False) from None

    async def _drain(self, receive: Receive) -> None:
        """A client that is still sending when the connection is closed never sees the response: let it finish, within bounds."""
        left = _DRAIN_FACTOR * self._settings.body_bytes_max
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.body_ms / 1000):
                while left > 0:
                    message = await receive()
                    left -= len(message.get("body", b""))
                    if not message.get("more_body", False):
                        return

    def _log_access(self, scope: Scope, method: str, response: "_ResponseRecorder", took_ms: int) -> None:
        route = str(scope.get("path_template") or "") if response.status != 404 else ""
        shown = method if method in _METHODS else "OTHER"
        self._counters.observe(shown, route, response.status, took_ms)
        level = logging.DEBUG if scope["path"] in PROBE_PATHS else logging.INFO
        client = scope.get("client") or ("", 0)
        _access.log(
            level,
            "request",
            extra={
                "method": shown,
                # Still percent-encoded: nothing in it can end a line or colour a terminal.
                "path": scope["raw_path"].decode("ascii", "replace")[:_PATH_CHARS_MAX],
                "status": response.status,
                "ms": took_ms,
                "bytes": response.bytes,
                "client": client[0],
            },
        )


async def _read_body(receive: Receive, bytes_max: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            # The beginning of a body may look like a complete one: it must not be processed.
            raise RequestRejected(problem(MALFORMED, "the client disconnected before the end of the body"), drain=False)
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > bytes_max:
            raise RequestRejected(problem(TOO_LARGE, f"the body exceeds the limit of {bytes_max} bytes"))
        if not message.get("more_body", False):
            return b"".join(parts)


class _ResponseRecorder:
    """`send` that adds the headers of every response and records status and size."""

    def __init__(self, send: Send, request_id: str, context: TraceContext | None) -> None:
        self._send, self._context = send, context
        self.id = request_id
        self.status, self.bytes, self.started = 0, 0, False

    @property
    def trace_id(self) -> str:
        """The trace that the request belongs to, if any."""
        return f"{self._context.trace_id:032x}" if self._context is not None else ""

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started, self.status = True, message["status"]
            headers: list[Any] = [*message.get("headers", ()), *_SECURITY_HEADERS, (b"x-request-id", self.id.encode())]
            if self._context is not None:
                headers.append((b"traceparent", self._context.traceparent.encode()))
            message = {**message, "headers": headers}
        else:
            self.bytes += len(message.get("body", b""))
        await self._send(message)
