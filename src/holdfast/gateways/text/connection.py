"""One connection: frames in, answers out, in the order of the requests.

The rules: one run of requests at a time. A run is every PUT that has arrived in a row, or every GET of one topic: they are served
together. A record of GET is delivered when its answer has left this process; until then it belongs to the cursor. While answers are
not read, or too much is in flight, nothing more is read.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from holdfast.cursors.cursor import CursorDeliveries
from holdfast.gateways.text.errors import EMPTY, ERROR, OK, error_reply
from holdfast.gateways.text.frames import FrameParser, InvalidFrame, encode_frames
from holdfast.gateways.text.requests import Request, RequestError, Verb, is_forwarded, parse_request
from holdfast.gateways.text.security import ConnectionLogin, NotAuthorizedError
from holdfast.vocabulary.clock import stopwatch_ns
from holdfast.vocabulary.errors import HoldfastError, UnavailableError
from holdfast.vocabulary.settings import KIB
from holdfast.vocabulary.tasks import gather_or_cancel
from holdfast.vocabulary.tracing import Tracer, current_span

if TYPE_CHECKING:
    from holdfast.gateways.text.server import TextServer

_log: Final = logging.getLogger(__name__)

FORWARDING_BYTES: Final = KIB  # what a node adds to a request that it forwards
_INVALID_LENGTH: Final = ERROR + b"invalid frame length"


class _Refused(NamedTuple):
    """A frame that is no request, or one that the client may not send: its answer. `size`: what it is counted as."""

    reply: bytes
    size: int


_Queued = Request | _Refused


class TextConnection(asyncio.Protocol):
    """One client, or another node."""

    def __init__(self, server: "TextServer") -> None:
        self._server, self._backend = server, server.backend
        self._settings = server.backend.settings
        self._transport: asyncio.Transport | None = None
        self._parser = FrameParser(self._settings.frame_bytes_max + FORWARDING_BYTES)
        self._queue: deque[_Queued] = deque()
        self._bytes = 0  # of requests that are not answered
        self._arrived, self._written = asyncio.Event(), asyncio.Event()
        self._written.set()
        self._reading_paused = self._stopping = self._closed = self._serving = False
        self._taken: CursorDeliveries | None = None  # by another node, and not settled
        self.active_at_ms = self.frame_at_ms = self.write_paused_at_ms = self.taken_at_ms = (
            server.backend.clock.boot_ms()
        )
        self.task: asyncio.Task[None] | None = None
        self._login: ConnectionLogin | None = None

    # ── the transport's side ──

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        # 0: `_written` says whether every answer has left this process.
        self._transport.set_write_buffer_limits(0)
        if self._backend.security is not None:
            peer = transport.get_extra_info("peername") or ("",)
            self._login = ConnectionLogin(self._backend.security, str(peer[0]))
        if not self._server.joined(self):
            self._transport.abort()
            return
        self.task = asyncio.ensure_future(self._serve())

    def data_received(self, data: bytes) -> None:
        now_ms = self._backend.clock.boot_ms()
        self._backend.counters.received_bytes += len(data)
        if not self._parser.incomplete:
            self.frame_at_ms = now_ms
        held_before, frames = self._parser.held_bytes, self._parser.feed(data)
        for frame in frames:
            self.frame_at_ms = self.active_at_ms = now_ms
            queued = self._parsed(frame)
            size = queued.size
            self._bytes += size
            self._server.taken(size)
            self._queue.append(queued)
        if self._queue:
            self._arrived.set()
            self._update_flow_control()
        if held_before or self._parser.held_bytes:
            self._server.unfinished(self, self._parser.held_bytes, began=bool(frames))

    def _parsed(self, frame: bytes | InvalidFrame) -> _Queued:
        if isinstance(frame, InvalidFrame) or (len(frame) > self._settings.frame_bytes_max and not is_forwarded(frame)):
            self._backend.counters.invalid_frames += 1
            return _Refused(_INVALID_LENGTH, len(_INVALID_LENGTH))
        try:
            return parse_request(frame)
        except RequestError as error:
            reply = error_reply(error)
            return _Refused(reply, len(reply))

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._closed = True
        self._server.left(self)
        self._queue.clear()
        self._server.released(self._bytes)
        self._bytes = 0
        self._arrived.set()
        self._written.set()
        self._settle_taken(0)

    def pause_writing(self) -> None:
        self._written.clear()
        self.write_paused_at_ms = self._backend.clock.boot_ms()

    def resume_writing(self) -> None:
        self._written.set()

    # ── serving ──

    async def _serve(self) -> None:
        """Serve run after run until the connection is closed. What was begun is finished."""
        while not self._closed:
            self._arrived.clear()
            while self._queue and not self._closed:
                run = self._next_run()
                self._serving = True
                try:
                    answered = await self._answer(run)
                except Exception:
                    _log.exception("closing a text connection: a request failed")
                    self.close()
                    return
                finally:
                    self._serving = False
                self._queue.extendleft(reversed(run[answered:]))
                self._answered(run[:answered])
            if not self._closed:
                await self._arrived.wait()

    def _next_run(self) -> list[_Queued]:
        """The requests that are served together: at least one, and no more than fit into one frame."""
        queue = self._queue
        run = [self._checked(queue.popleft())]
        first = run[0]
        if not isinstance(first, Request) or first.verb not in (Verb.PUT, Verb.GET):
            return run
        size = first.size
        while queue:
            following = queue[0]
            if not isinstance(following, Request) or (following.verb, following.forwarded) != (
                first.verb,
                first.forwarded,
            ):
                break
            if first.verb is Verb.GET and following.topic != first.topic:
                break
            size += following.size
            if size > self._settings.frame_bytes_max:
                break
            if isinstance(self._checked(following), _Refused):
                break  # it is answered by itself
            run.append(queue.popleft())
        return run

    def _checked(self, queued: _Queued) -> _Queued:
        """The request, if the client may send it now: logins before it in the queue are done."""
        if self._login is None or not isinstance(queued, Request):
            return queued
        try:
            self._login.check(queued)
        except NotAuthorizedError as error:
            return _Refused(error_reply(error), queued.size)
        return queued

    async def _answer(self, run: Sequence[_Queued]) -> int:
        """Serve a run and write its answers; how many of its requests are answered."""
        first = run[0]
        if not isinstance(first, Request):
            await self._write([first.reply])
            return 1
        requests = cast(Sequence[Request], run)
        self._backend.counters.requests += len(requests)
        began_ns = stopwatch_ns()
        if self._backend.tracer is None:
            answered = await self._served(first, requests)
        else:
            answered = await self._traced(self._backend.tracer, first, requests)
        self._backend.latencies[first.verb].observe((stopwatch_ns() - began_ns) / 1e9, answered)
        return answered

    async def _served(self, first: Request, requests: Sequence[Request]) -> int:
        if first.verb is Verb.GET:
            return await self._get(requests)
        if first.verb is Verb.PUT:
            await self._write(await self._put(requests))
        else:
            await self._write([await self._single(first)])
        return len(requests)

    async def _traced(self, tracer: Tracer, first: Request, requests: Sequence[Request]) -> int:
        """The protocol has no headers: a trace begins here, if it does."""
        if not tracer.samples(None):
            return await self._served(first, requests)
        span = tracer.record(
            f"text {first.verb}",
            kind="server",
            attributes={"messaging.destination.name": first.topic, "holdfast.requests": len(requests)},
        )
        token = current_span.set(span)
        try:
            return await self._served(first, requests)
        finally:
            current_span.reset(token)
            span.end()

    async def _put(self, requests: Sequence[Request]) -> list[bytes]:
        by_topic: dict[str, list[int]] = {}
        for at, request in enumerate(requests):
            by_topic.setdefault(request.topic, []).append(at)
        routing, forwarded = self._server.routing, requests[0].forwarded
        results = await gather_or_cancel(
            *(
                routing.put(
                    topic,
                    [requests[at].payload for at in places],
                    forwarded=forwarded,
                    create=self._login is None or self._login.may_create(topic),
                )
                for topic, places in by_topic.items()
            )
        )
        replies = [OK] * len(requests)
        for places, errors in zip(by_topic.values(), results, strict=True):
            for at, error in zip(places, errors, strict=True):
                if error is not None:
                    replies[at] = error_reply(error, put=not forwarded)
        return replies

    async def _get(self, requests: Sequence[Request]) -> int:
        """As many answers as there are records; EMPTY for all if there is none."""
        try:
            deliveries = await self._server.routing.take(
                requests[0].topic, len(requests), forwarded=requests[0].forwarded
            )
        except HoldfastError as error:
            await self._write([error_reply(error)] * len(requests))
            return len(requests)
        if not deliveries.records:
            deliveries.settle(0)
            await self._write([EMPTY] * len(requests))
            return len(requests)
        delivered = 0
        try:
            if await self._write([OK + b" " + record.value for record in deliveries.records]):
                delivered = len(deliveries.records)
        finally:
            deliveries.settle(delivered)
        return len(deliveries.records)

    async def _single(self, request: Request) -> bytes:
        try:
            if request.verb is Verb.TAKE:
                return await self._take(request)
            if request.verb is Verb.AUTH and self._login is not None:
                await self._login.log_in(request.payload.decode(errors="replace"))
                return OK
            if request.verb is Verb.SETTLE:
                self._settle_taken(*request.numbers)
                return OK
            return await self._server.answer(request)
        except HoldfastError as error:
            return error_reply(error)

    async def _take(self, request: Request) -> bytes:
        """Records for another node, which settles them once it has written its answers."""
        self._settle_taken(0)
        deliveries = await self._server.routing.take(request.topic, max(1, request.numbers[0]), forwarded=True)
        if not deliveries.records or self._closed:
            deliveries.settle(0)
            return EMPTY
        self._taken, self.taken_at_ms = deliveries, self._backend.clock.boot_ms()
        return OK + b" " + self._server.encode(deliveries.records)

    def _settle_taken(self, *runs: int) -> None:
        if self._taken is not None:
            self._taken.settle(*runs)
            self._taken = None
            self._update_flow_control()

    async def _write(self, replies: Sequence[bytes]) -> bool:
        """Write the answers; whether all of them have left this process."""
        if self._closed or self._transport is None or self._transport.is_closing():
            return False
        self._backend.counters.errors += sum(reply.startswith(ERROR) for reply in replies)
        data = encode_frames(replies)
        self._backend.counters.sent_bytes += len(data)
        self._transport.write(data)
        await self._written.wait()
        return not self._closed

    def _answered(self, run: Sequence[_Queued]) -> None:
        if self._closed:
            return  # `connection_lost` has released everything
        size = sum(queued.size for queued in run)
        self._bytes -= size
        self._update_flow_control()
        self._server.released(size)

    # ── limits ──

    def _update_flow_control(self) -> None:
        settings, transport = self._settings, self._transport
        pause = (self._stopping and self._taken is None) or (
            len(self._queue) >= settings.requests_in_flight_max
            or self._bytes >= settings.in_flight_bytes_max
            or (self._bytes > 0 and self._server.full)
        )
        if transport is None or self._closed or pause == self._reading_paused:
            return
        self._reading_paused = pause
        if pause:
            transport.pause_reading()
            self._server.queue_for_memory(self)
        else:
            transport.resume_reading()

    def memory_freed(self) -> None:
        """Requests of others were answered."""
        self._update_flow_control()

    def close_reason(self, now_ms: int) -> str | None:
        """Why this connection should be closed, if it should."""
        settings, login = self._settings, self._login
        if login is not None and not login.is_logged_in and now_ms - login.started_at_ms > settings.login_ms:
            return f"not authenticated within {settings.login_ms} ms"
        if login is not None and login.has_ended:
            return "its credentials were revoked"
        if not self._written.is_set() and now_ms - self.write_paused_at_ms > settings.write_ms:
            return f"answers unread for {settings.write_ms} ms"
        # The other node gives its client `write_ms`; one that has frozen, or is gone without a word, keeps no records.
        settle_ms = settings.write_ms + settings.request_ms
        if self._taken is not None and now_ms - self.taken_at_ms > settle_ms:
            return f"records that a node has taken are not settled for {settle_ms} ms"
        if self._parser.incomplete and not self._reading_paused and now_ms - self.frame_at_ms > settings.frame_ms:
            return f"a request took more than {settings.frame_ms} ms to arrive"
        if not self.busy and not self._parser.incomplete and now_ms - self.active_at_ms > settings.idle_ms:
            return f"no request for {settings.idle_ms} ms"
        return None

    @property
    def busy(self) -> bool:
        """Whether a request is not answered, or records that another node has taken are not settled."""
        return bool(self._queue) or self._serving or self._taken is not None

    def stop_reading(self) -> None:
        """Accept no more requests; what another node has taken, it may still settle."""
        self._stopping = True
        self._update_flow_control()

    def close_unfinished(self) -> None:
        """Others need the memory of a request that has not arrived whole: its client is told, unless it waits for other answers."""
        reason = f"requests that have not arrived whole exceed {self._settings.unfinished_bytes_max} bytes"
        if self.busy or self._transport is None:
            self.abort(reason)
            return
        self._transport.write(encode_frames((error_reply(UnavailableError("memory of requests", reason)),)))
        self.close()

    def close(self) -> None:
        """Close, after the answers already written are sent."""
        if self._transport is not None:
            self._transport.close()

    def abort(self, reason: str) -> None:
        """Close at once."""
        _log.info("closing text connection: %s", reason)
        if self._transport is not None:
            self._transport.abort()
