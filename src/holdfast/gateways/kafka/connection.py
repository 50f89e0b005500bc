"""One client's connection: requests start, responses go out in the order of the requests.

Pipelined requests (Produce) are in flight together; every other request waits for the responses to those before it, as in Kafka,
because it may depend on them. Bytes that are not a request close the connection with one log line and affect no other.

A connection with nothing in flight but runs of Produce requests is armed: a run that arrives then is handed over in C
(`_run_reader`), with the effects that `_take_run` and `_start_run` have, and answered there, if it is the next. Whatever else
happens disarms it, and goes on here.
"""

import asyncio
import dataclasses
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Final, cast

from holdfast.gateways.kafka.api import ClientInfo, RequestContext, ResponseChunks
from holdfast.gateways.kafka.api_table import APIS
from holdfast.gateways.kafka.connection_access import ConnectionAccess
from holdfast.gateways.kafka.frames import ConnectionHost, FrameReceiver
from holdfast.gateways.kafka.in_flight_request import NO_BODY, InFlightRequest
from holdfast.gateways.kafka.produce import PRODUCE_API, PartitionData, ProducedTopics, start_produce
from holdfast.gateways.kafka.produce_responses import as_named
from holdfast.gateways.kafka.produce_runs import RUN_VERSIONS, batches_of, topic_of
from holdfast.gateways.kafka.quota_meters import ClientLimits, MeteredCoroutine, RequestMeter
from holdfast.gateways.kafka.request_spans import begin_request_span
from holdfast.gateways.kafka.response_budget import COUNTED_BYTES_MIN
from holdfast.gateways.kafka.stalled_requests import HELD_BYTES_MIN, HeldMemory
from holdfast.gateways.kafka.unsupported import UnsupportedRequestError, client_id_of
from holdfast.kafka.api_keys import ApiKey
from holdfast.kafka.wire import MalformedRequestError, WireReader
from holdfast.security.client_quotas import Quota
from holdfast.security.principals import ANONYMOUS
from holdfast.vocabulary.clock import stopwatch_ns
from holdfast.vocabulary.native import native
from holdfast.vocabulary.tracing import Tracer

if TYPE_CHECKING:
    from holdfast._native import ProduceRun, RunReader

_log: Final = logging.getLogger(__name__)

_REQUEST_HEADER: Final = Struct(">hhi")  # key, version, correlation id
_HEADER_TAGS_MAX: Final = 100
_ARMED_IN_FLIGHT_MAX: Final = 16  # each is looked at
_PRODUCE, _API_VERSIONS = int(ApiKey.PRODUCE), int(ApiKey.API_VERSIONS)


def _pause(transport: asyncio.Transport) -> None:
    if not transport.is_closing():
        transport.pause_reading()


class NotLoggedInError(MalformedRequestError):
    """A request whose client has not logged in, or no longer has."""

    def __init__(self, api: str, why: str) -> None:
        super().__init__(f"{api} request", why, "sent after a login")

    def __str__(self) -> str:
        return f"{self.what} refused: {self.given}"


class KafkaConnection(FrameReceiver):
    """A protocol of the server's loop."""

    def __init__(self, server: ConnectionHost) -> None:
        super().__init__(server)
        self._responses = self._backend.responses
        self._latencies, self._tracer = server.latencies, self._backend.tracer
        self._transport: asyncio.Transport | None = None
        self._peer = ClientInfo("", 0)
        self._access: ConnectionAccess | None = None  # None: no authentication
        self._queued: deque[InFlightRequest | ProduceRun] = deque()
        self._in_flight: deque[InFlightRequest | ProduceRun] = deque()
        self._requests = 0  # in both
        self._queued_bytes = 0
        self._queued_bytes_max = self._settings.queued_bytes_max
        self._requests_max = self._settings.requests_in_flight_max
        self._in_flight_bytes_max = self._settings.in_flight_bytes_max
        self._read_paused = self._write_paused = self._stopping = self._pumping = False
        # Of a client id, at a version of the quotas.
        self._limits: tuple[str, int, ClientLimits | None] = ("", -1, None)
        self.active_at_ms = self.write_paused_at_ms = self.frame_at_ms
        self._run_reader: RunReader | None = None if native is None else self._new_run_reader(native.RunReader)

    def _new_run_reader(self, kind: "type[RunReader]") -> "RunReader":
        """It gets what arrives first, and passes on what is no run."""
        produce_runs = self._server.produce_runs
        reader = kind(
            connection=self,
            host=self._server,
            api=PRODUCE_API,
            receive=self.buffer_updated,
            buffer=self.get_buffer,
            in_flight=self._in_flight,
            inbox=produce_runs.inbox,
            on_first=produce_runs.begin,
            scratch=self._server.scratch,
            stopwatch=stopwatch_ns,
            versions=RUN_VERSIONS,
            requests_max=self._requests_max,
            bytes_max=self._settings.request_bytes_max,
            in_flight_bytes_max=self._in_flight_bytes_max,
            used_bytes_max=self._server.bytes_max,
        )
        self.__dict__["buffer_updated"], self.__dict__["get_buffer"] = reader.buffer_updated, reader.get_buffer
        return reader

    def _stop(self) -> None:
        """Whatever arrives from now on is dropped."""
        self._closing = True
        self._disarm()

    def _disarm(self) -> None:
        if self._run_reader is not None:
            self._run_reader.armed = False

    # ── the transport's side ──

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        peer = transport.get_extra_info("peername")
        if not peer:  # reset already; what it has sent could be read, and no limit or rule of its address would count
            self._stop()
            transport.abort()
            return
        self._peer = ClientInfo(str(peer[0]), int(peer[1]))
        transport.set_write_buffer_limits(self._settings.buffered_bytes_max)
        if self._run_reader is not None:
            self._run_reader.write, self._run_reader.unsent = transport.write, transport.get_write_buffer_size
        admission = self._server.admission(self._peer.host)
        if not admission.served:
            self._stop()
            self._server.throttle.close_later(transport.close, admission.delay_ms)
            asyncio.get_running_loop().call_soon(_pause, transport)  # not in here: uvloop begins to read after it
            return
        if not self._server.joined(self, self._peer.host):
            transport.abort()
            return
        security = self._backend.security
        if security is not None:
            login = security.login(self._peer.host, transport.get_extra_info("peercert"))
            self._access = ConnectionAccess(login)
            if login.principal is None:
                self._request_bytes_max = self._settings.login_bytes_max
            if login.refused:
                self.close()
        if admission.delay_ms:
            self._mute(admission.delay_ms)

    def connection_lost(self, error: Exception | None) -> None:
        self._stop()
        self._server.left(self)
        self._responses.left(self)
        for request in self._in_flight:
            if request.span is not None:
                request.span.end("disconnected")
            if request.done:
                self._give_back(request)
            elif isinstance(request, InFlightRequest) and request.task is not None and request.ends_with_its_client:
                request.task.cancel()
        self._server.released(self._bytes)
        self._queued.clear()
        if self._muted is not None:
            self._muted.cancel()
        self._frame = self._held = self._unparsed = None
        self._run_reader = None  # it refers to this: what is in flight would stay until the collector comes by
        self.__dict__.pop("buffer_updated", None)
        self.__dict__.pop("get_buffer", None)

    def eof_received(self) -> bool:
        """The client sends nothing more. A pop ends; if it has leased something, the client is told so before this closes."""
        transport = self._transport
        if len(self._in_flight) != 1 or transport is None or not transport.can_write_eof():
            return False  # TLS is closed for both directions
        request = self._in_flight[0]
        if not isinstance(request, InFlightRequest) or request.api.key is not ApiKey.HEAP_POP or request.task is None:
            return False
        request.task.cancel()
        request.task.add_done_callback(lambda _: self.close())  # after `_task_done`, which sends the response
        return True

    def pause_writing(self) -> None:
        self._disarm()
        self._write_paused = True
        self.write_paused_at_ms = self._backend.clock.boot_ms()

    def resume_writing(self) -> None:
        self._write_paused = False
        self._responses.written(self, self.unsent_bytes, self._backend.clock.boot_ms())
        self._pump()
        self._update_flow_control()

    # ── requests ──

    def _frame_received(self, frame: memoryview) -> None:
        key, version, correlation = _REQUEST_HEADER.unpack_from(frame)
        api = APIS.get(key)
        if api is None or (not api.supports(version) and key != _API_VERSIONS):
            client_id = client_id_of(frame, _REQUEST_HEADER.size)
            raise UnsupportedRequestError(key, version, None if api is None else api.versions, client_id)
        if key != _PRODUCE and len(frame) > self._settings.control_bytes_max:
            raise MalformedRequestError(
                f"{api.name} request size", len(frame), f"at most {self._settings.control_bytes_max}"
            )
        header = WireReader(frame, flexible=False, at=_REQUEST_HEADER.size, entries_max=_HEADER_TAGS_MAX)
        client_id = header.string() or ""
        if api.supports(version):
            header.flexible = api.is_flexible(version)
            header.tags()
        call = RequestContext(api, version, correlation, client_id, self._peer, self._backend, access=self._access)
        if self._backend.quotas.any and not api.rule.before_login:
            limits = self._limits_of(client_id)
            call.meter = None if limits is None else RequestMeter(limits)
        self._queue(InFlightRequest(api, call, frame[header.at :], len(frame)))

    def _take_run(self, data: memoryview, at: int) -> int:
        reader, access = self._run_reader, self._access
        if reader is None or (access is not None and access.login.principal is None):
            return 0
        run = reader.take(data, at, self._requests_max - self._requests)
        if run is None or (self._backend.quotas.any and self._limits_of(run.client_id or "") is not None):
            return 0  # one that is metered is answered by itself
        if run.call is None:
            client_id = run.client_id or ""
            reader.call = run.call = RequestContext(
                PRODUCE_API, run.version, 0, client_id, self._peer, self._backend, access=access
            )
        self._bytes += run.size
        self._server.used_bytes += run.size
        in_flight = self._in_flight
        if (
            self._queued
            or self._write_paused
            or self._closing
            or self._pumping
            or self._muted is not None
            or (in_flight and not in_flight[-1].api.pipelined)
        ):
            self._queue(run)
        else:
            self._start_run(run)
        return run.size

    def _start_run(self, run: "ProduceRun") -> None:
        """`_queue` for a run that may start at once, as nearly all do."""
        self._requests += run.count
        if self._access is not None and not self._is_admitted(run, self._access):
            return
        self._in_flight.append(run)
        self.active_at_ms = self._backend.clock.boot_ms()
        if self._tracer is not None:
            self._begin_span(run, self._tracer)
        self._server.produce_runs.add(run)

    def _limits_of(self, client_id: str) -> ClientLimits | None:
        """The quotas of the client, looked up when they or the client id change."""
        version = self._backend.quotas.version
        if self._limits[:2] != (client_id, version):
            who = ANONYMOUS if self._access is None else self._access.login.principal or ANONYMOUS
            self._limits = (client_id, version, self._backend.meters.client(who.name, client_id))
        return self._limits[2]

    def _mute(self, pause_ms: int) -> None:
        """Start nothing and read nothing for a while."""
        self._disarm()
        loop = asyncio.get_running_loop()
        until_s = loop.time() + pause_ms / 1000
        if self._muted is None or self._muted.when() < until_s:
            if self._muted is not None:
                self._muted.cancel()
            self._muted = loop.call_at(until_s, self._unmute)

    def _unmute(self) -> None:
        self._muted = None
        self._pump()
        self.memory_freed()

    def _queue(self, request: "InFlightRequest | ProduceRun") -> None:
        self.active_at_ms = self._backend.clock.boot_ms()
        self._requests += request.count
        self._queued_bytes += request.size
        self._queued.append(request)
        self._pump()

    def _pump(self) -> None:
        """Start what may start, send what is done."""
        if self._pumping:
            return  # a request was answered while it was started
        self._pumping = True
        try:
            while self._start() and self._send_responses():
                pass
        finally:
            self._pumping = False

    def _start(self) -> bool:
        queued, in_flight = self._queued, self._in_flight
        while queued and not self._write_paused and not self._closing and self._muted is None:
            if in_flight and not (queued[0].api.pipelined and in_flight[-1].api.pipelined):
                break
            request = queued.popleft()
            self._queued_bytes -= request.size
            if self._access is not None and not self._is_admitted(request, self._access):
                return False
            in_flight.append(request)
            if self._tracer is not None:
                self._begin_span(request, self._tracer)
            if not isinstance(request, InFlightRequest):
                self._server.produce_runs.add(request)
                continue
            self._server.requests += 1
            meter = request.call.meter
            if request.api.direct is None:
                handling = request.handle() if meter is None else MeteredCoroutine(request.handle(), meter)
                request.task = asyncio.ensure_future(handling)
                request.task.add_done_callback(partial(self._task_done, request))
                continue
            self._server.produce_runs.append()
            if meter is not None:
                meter.charge(Quota.PRODUCE, request.size)
                meter.begin_step()
            try:
                request.api.direct(request.call, request.body, partial(self._respond, request))
            except Exception as error:
                self._respond(request, error)
            if meter is not None:
                meter.charge_time()
                if meter.throttle_ms:
                    self._mute(meter.throttle_ms)
        return not self._closing

    def _begin_span(self, request: "InFlightRequest | ProduceRun", tracer: Tracer) -> None:
        body = request.body if isinstance(request, InFlightRequest) else request.payload
        request.span = begin_request_span(tracer, request.call, body, request.count)
        if isinstance(request, InFlightRequest):  # the context of a run is that of the next one, too
            request.call.span, request.call.arrived_ns = request.span, request.arrived_ns

    def _is_admitted(self, request: "InFlightRequest | ProduceRun", access: ConnectionAccess) -> bool:
        """Whether the client has logged in, where the request needs that; otherwise the connection is closed."""
        refusal = None if request.api.rule.before_login else access.login.refusal()
        if refusal is not None:
            self._fail(NotLoggedInError(request.api.name, refusal))
        return refusal is None

    def split_run(self, run: "ProduceRun") -> Callable[[], None]:
        """A run cannot be appended as a whole: its requests take its place, and start one by one."""
        self._disarm()
        at = self._in_flight.index(run)
        del self._in_flight[at]
        sizes = [run.size // run.count] * run.count
        sizes[0] += run.size % run.count
        topic, named = topic_of(run, self._backend), as_named(run.named)
        split = []
        for correlation, size, batch in zip(run.correlations, sizes, batches_of(run), strict=True):
            call = dataclasses.replace(run.call, correlation=correlation, span=run.span)
            split.append((InFlightRequest(run.api, call, NO_BODY, size), batch))
            self._in_flight.insert(at + len(split) - 1, split[-1][0])
        pumping, self._pumping = self._pumping, True
        try:
            for each, batch in split:
                topics: ProducedTopics = [(named, [PartitionData(topic, run.partition, batch)])]
                respond = partial(self._respond, each)
                try:
                    start_produce(each.call, topics, acks=run.acks, timeout_ms=run.timeout_ms, on_response=respond)
                except Exception as error:
                    self._respond(each, error)
        finally:
            self._pumping = pumping
        return self._send_done

    def _send_done(self) -> None:
        """Send what was answered while it was started."""
        if not self._pumping:
            if self._send_responses():
                self._pump()
            self._update_flow_control()

    def _task_done(self, request: InFlightRequest, task: "asyncio.Future[ResponseChunks | None]") -> None:
        if request.call.throttle_ms and not self._closing:
            self._mute(request.call.throttle_ms)
        if task.cancelled():
            self._respond(request, asyncio.CancelledError())
        else:
            self._respond(request, task.exception() or task.result())

    def fail(self, error: Exception) -> None:
        """Close the connection for an error of its transport."""
        self._fail(error)

    def respond_to_run(self, run: "ProduceRun", response: bytes | BaseException) -> None:
        """Send all its responses, or close the connection for an error."""
        self._respond(run, (response,) if isinstance(response, bytes) else response)
        self._arm_if_plain()

    def _arm_if_plain(self) -> None:
        """Only runs are in flight, nothing has begun to arrive, nothing is held back: what arrives next may be handed over."""
        if self._run_reader is not None:
            in_flight = self._in_flight
            self._run_reader.armed = (
                len(in_flight) <= _ARMED_IN_FLIGHT_MAX
                and not any(each.done or isinstance(each, InFlightRequest) for each in in_flight)
                and not self._queued
                and not self._length
                and (self._frame is None and self._held is None and self._unparsed is None)
                and not (self._closing or self._stopping or self._pumping or self._read_paused or self._write_paused)
                and self._muted is None
                and self._access is None
                and self._tracer is None
                and not self._backend.quotas.any
            )

    def _respond(
        self, request: "InFlightRequest | ProduceRun", response: ResponseChunks | BaseException | None
    ) -> None:
        if request.done:
            return
        request.done, request.response = True, response
        if self._closing:
            self._give_back(request)  # the client is gone
            return
        if self._pumping:
            return  # `_pump` sends it
        in_flight = self._in_flight
        if in_flight[0].done:
            self._send(in_flight.popleft())
            if in_flight:
                self._send_responses()
            if self._queued:
                self._pump()
        # A connection with nothing else in flight, nearly all of them, is read already, and goes on to be.
        if self._bytes or self._read_paused or self._write_paused or self._muted is not None:
            self._update_flow_control()

    def _send_responses(self) -> bool:
        """Send what is done, in order; whether that made room for more."""
        in_flight = self._in_flight
        sent = False
        while in_flight and in_flight[0].done and not self._closing:
            self._send(in_flight.popleft())
            sent = True
        return sent

    def _send(self, request: "InFlightRequest | ProduceRun") -> None:
        transport = self._transport
        assert transport is not None
        call = request.call
        try:
            self._write(request, transport)
            took_ns = stopwatch_ns() - request.arrived_ns - call.waited_ns
            self._latencies[request.api.name].observe(took_ns / 1e9, request.count)
            if self._tracer is not None and (span := request.span or call.span) is not None:
                span.end(type(request.response).__name__ if isinstance(request.response, BaseException) else "")
            unsent_bytes = transport.get_write_buffer_size()
            if unsent_bytes > COUNTED_BYTES_MIN:
                self._responses.written(self, unsent_bytes, self._backend.clock.boot_ms())
        except Exception as error:  # whoever called back has others to call: it is this connection's alone
            self._fail(error, call)
        finally:
            if call.taken_bytes:
                self._give_back(request)
            self._bytes -= request.size
            self._requests -= request.count
            # Last: requests that waited for the room start now, also of this connection, and it sends what else is done.
            self._server.released(request.size)

    def _write(self, request: "InFlightRequest | ProduceRun", transport: asyncio.Transport) -> None:
        response = request.response
        if isinstance(response, BaseException):
            if isinstance(response, asyncio.CancelledError):
                self.close()
            else:
                self._fail(response, request.call)
            return
        if response is None:
            return  # acks=0
        if not isinstance(request, InFlightRequest):
            transport.writelines(response)
            return
        transport.writelines([request.response_header(response), *response])
        if self._access is not None and request.api.rule.before_login:
            self._login_answered(self._access)

    def _login_answered(self, access: ConnectionAccess) -> None:
        if access.login.refused:
            self.close()
        elif access.login.principal is not None:
            self._request_bytes_max = self._settings.request_bytes_max

    def _give_back(self, request: "InFlightRequest | ProduceRun") -> None:
        """The room taken for the response: it is written, or never will be."""
        if request.call.taken_bytes:
            self._responses.give_back(request.call.taken_bytes)
            request.call.taken_bytes = 0

    @property
    def held_memory(self) -> HeldMemory | None:
        """What this connection's requests hold without work of this server; None: hardly anything, or work is done."""
        if self._bytes < HELD_BYTES_MIN or self._closing:
            return None
        if self._frame is not None:
            return None if self._read_paused else HeldMemory(len(self._frame), self._filled, self.frame_at_ms)
        first = (self._in_flight or self._queued)[0]
        size = self._queued_bytes + (first.size if first.api.long_poll and self._in_flight else 0)
        return None if size < HELD_BYTES_MIN else HeldMemory(size, None, first.arrived_ns / 1e6)

    @property
    def unread_fd(self) -> int | None:
        """The socket of a client that is not read behind a long poll, so that its end would go unnoticed; None: it will be read.

        What a client has sent before it closed is handled: Produce requests that ask for no answer, when a pause is over.
        """
        transport = self._transport
        if not self._read_paused or self._closing or transport is None or transport.is_closing():
            return None
        if self._muted is not None or not self._in_flight or not self._in_flight[0].api.long_poll:
            return None
        return int(transport.get_extra_info("socket").fileno())

    @property
    def unsent_bytes(self) -> int:
        """Bytes of responses that the client has not read."""
        transport = self._transport
        return 0 if transport is None else transport.get_write_buffer_size()

    # ── limits ──

    def _update_flow_control(self) -> None:
        if self._unparsed is not None and not self._closing and not self._stopping:
            self._parse_on()
        server = self._server
        # A request that has begun to arrive takes no more memory; not read, it would keep what it has.
        pause = self._stopping or (
            self._frame is None
            and (
                self._write_paused
                or self._muted is not None
                or self._held is not None
                or self._unparsed is not None
                or self._requests >= self._requests_max
                or self._bytes >= self._in_flight_bytes_max
                or self._queued_bytes >= self._queued_bytes_max
                or (self._bytes > 0 and server.used_bytes >= server.bytes_max)
            )
        )
        if pause:
            self._disarm()  # whoever responds looks whether there is room, and goes on reading
        if self.waits_for_memory and not self._closing:
            server.queue_for_memory(self)
        if pause != self._read_paused and self._transport is not None and not self._closing:
            self._read_paused = pause
            if pause:
                self._transport.pause_reading()
                self._server.queue_for_memory(self)
            else:
                self._transport.resume_reading()

    def _accepts_requests(self) -> bool:
        return self._requests < self._requests_max

    def close_reason(self, now_ms: int) -> str | None:
        """Why this connection should be closed, if it should."""
        settings = self._settings
        unread_since_ms = self._responses.unread_since_ms(self)
        if (self._write_paused and now_ms - self.write_paused_at_ms > settings.write_ms) or (
            unread_since_ms is not None and now_ms - unread_since_ms > settings.write_ms
        ):
            return f"responses unread for {settings.write_ms} ms"
        if self._frame is not None and not self._read_paused and now_ms - self.frame_at_ms > settings.frame_ms:
            return f"a request took more than {settings.frame_ms} ms to arrive"
        if self._access is not None and self._access.login.principal is None:
            login_ms = settings.login_ms
            if now_ms - self._access.login.started_at_ms > login_ms:
                return f"not authenticated within {login_ms} ms"
        if self.is_revoked:
            return "its credentials have expired"
        busy = self._queued or self._in_flight or self._frame is not None or self._held is not None
        if not busy and now_ms - self.active_at_ms > settings.idle_ms:
            return f"no request for {settings.idle_ms} ms"
        return None

    @property
    def is_revoked(self) -> bool:
        """Whether what its client has logged in with is no longer good."""
        return self._access is not None and self._access.login.has_ended

    @property
    def is_denied(self) -> bool:
        """Whether a request waits for what its client may no longer have."""
        return any(request.call.is_denied for request in self._in_flight)

    @property
    def busy(self) -> bool:
        """Whether a request is in flight that a graceful shutdown should wait for."""
        # Requests queued behind a long poll are not waited for either.
        return any(not request.api.long_poll for request in self._in_flight)

    def stop_reading(self) -> None:
        """Accept no more requests."""
        self._disarm()
        self._stopping = True
        self._update_flow_control()

    def close(self) -> None:
        """Close, after the responses already written are sent."""
        if self._transport is not None and not self._closing:
            self._stop()
            self._transport.close()

    def close_unread(self, reason: str) -> None:
        """Close at once: others need the memory of its responses, or of its request."""
        _log.warning("closing connection from %s:%d: %s", self._peer.host, self._peer.port, reason)
        if self._transport is not None:
            self._stop()
            self._transport.abort()

    def abort(self, reason: str) -> None:
        """Close at once."""
        _log.info("closing connection from %s:%d: %s", self._peer.host, self._peer.port, reason)
        if self._transport is not None:
            self._stop()
            self._transport.abort()

    def _fail(self, error: BaseException, call: RequestContext | None = None) -> None:
        """Close, because the client sent no valid request or a handler raised an unexpected error."""
        peer = f"{self._peer.host}:{self._peer.port}"
        if isinstance(error, UnsupportedRequestError):
            self._server.unsupported.add(error, self._peer)
        elif isinstance(error, MalformedRequestError):
            self._server.malformed += 1
            _log.warning("closing connection from %s: %s", peer, error)
        elif isinstance(error, ConnectionError):
            _log.debug("connection from %s lost: %s", peer, error)
        else:
            software = f", {self._peer.software}" if self._peer.software else ""
            name = f"{call.api.name} v{call.version} of {call.client_id!r}{software}" if call else "a request"
            _log.error("closing connection from %s: %s failed", peer, name, exc_info=error)
        self.close()
