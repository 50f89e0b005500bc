"""The stream to one peer: connect, handshake, messages out, answers in; and again when the connection has ended.

The one rule: nothing outlives its connection. Whatever was not answered when it ended will not be, and its sender, told by
`StreamListener.connected`, asks for positions first: frames of an old connection are harmless, but their fate is unknown.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, Protocol

from holdfast.agent.peers.connection import PeerConnection
from holdfast.agent.peers.dial import Dial, DialError, Peer
from holdfast.agent.peers.frames import (
    Answer,
    Buffer,
    Frame,
    FrameKind,
    MalformedFrameError,
    MessageClass,
    decode_answers,
    encode_messages,
)
from holdfast.agent.peers.handshake import NO_SESSION, Welcome
from holdfast.agent.peers.observations import DialOutcome, Observation
from holdfast.agent.peers.send_queue import Credit, OnAnswer, Outgoing, SendQueue
from holdfast.agent.peers.settings import PeerSettings, StreamCounters
from holdfast.vocabulary.clock import Clock, stopwatch_ns
from holdfast.vocabulary.random import Random, backoff_ms
from holdfast.vocabulary.tasks import background_tasks

_log: Final = logging.getLogger(__name__)


class StreamListener(Protocol):
    """Who sends over streams. Called on the event loop, and must not block it."""

    def connected(self, stream: "PeerStream") -> None:
        """Messages can be sent from now on: ask for positions first."""
        ...

    def disconnected(self, stream: "PeerStream") -> None:
        """None can until `connected`; every unanswered one has had its answer, None."""
        ...

    def observed(self, observation: Observation) -> None:
        """A connection has ended, or there was none."""
        ...

    def lagging(self, stream: "PeerStream", key: bytes) -> None:
        """The partition (or `STREAM`) was out of credit for `lag_ms`: its messages are refused until `recovered`."""
        ...

    def recovered(self, stream: "PeerStream", key: bytes) -> None:
        """All that was sent to the partition (or over the stream) is answered: ask for positions, and go on."""
        ...


class _Unanswered:
    """A frame of messages that was sent."""

    __slots__ = ("left", "messages", "sent_ns")

    def __init__(self, messages: list[Outgoing]) -> None:
        self.messages: list[Outgoing | None] = list(messages)
        self.left, self.sent_ns = len(messages), stopwatch_ns()


class PeerStream:
    """The stream from this agent to one peer. `run` keeps it connected."""

    def __init__(
        self,
        peer: Peer,
        listener: StreamListener,
        *,
        dial: Dial,
        settings: PeerSettings,
        clock: Clock,
        random: Random,
    ) -> None:
        self.peer, self.counters = peer, StreamCounters()
        self.version = 0  # of the protocol, while connected
        self._dial, self._listener, self._settings = dial, listener, settings
        self._clock, self._random = clock, random
        self._connection: PeerConnection | None = None
        self._queue: SendQueue | None = None
        self._unanswered: dict[int, _Unanswered] = {}
        self._sequence = 0
        self._flushing = False
        self._logged = ""

    @property
    def connected(self) -> bool:
        """Whether messages can be sent now."""
        return self._queue is not None

    @property
    def received_at_ms(self) -> int:
        """When the peer sent something last, whatever it was; 0 without a connection."""
        return 0 if self._connection is None else self._connection.received_at_ms

    @property
    def unanswered_bytes(self) -> int:
        """Bytes that were sent and not answered."""
        return 0 if self._queue is None else self._queue.unanswered_bytes

    @property
    def queued_bytes(self) -> int:
        """Bytes that wait for credit or for their frame."""
        return 0 if self._queue is None else self._queue.queued_bytes

    def send(
        self,
        key: bytes,
        parts: Sequence[Buffer],
        on_answer: OnAnswer,
        *,
        kind: MessageClass = MessageClass.DATA,
    ) -> bool:
        """Send a message with everything else of this turn of the loop, as one frame. `parts` must not change until it is answered.

        False: it was not taken, and `on_answer` is not called: there is no connection, or the partition has no room left. Ask
        for the position before sending more of it.
        """
        if self._queue is None or not self._queue.offer(Outgoing(key, kind, parts, on_answer)):
            self.counters.refused_sends += 1
            return False
        if not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self._flush)
        return True

    async def run(self) -> None:
        """Keep the stream connected, until cancelled."""
        settings, attempt = self._settings, 0
        try:
            while True:
                began_ms = self._clock.boot_ms()
                outcome = await self._run_connection()
                lasted_ms = self._clock.boot_ms() - began_ms
                if lasted_ms >= settings.reconnect_max_ms:
                    attempt = 0
                if outcome is DialOutcome.RESET and lasted_ms >= settings.reconnect_ms:
                    continue  # at once: whether its port refuses now tells a dead process from a cut
                pause_ms = backoff_ms(
                    attempt, base_ms=settings.reconnect_ms, max_ms=settings.reconnect_max_ms, random=self._random
                )
                attempt += 1
                await self._clock.sleep_ms(pause_ms)
        finally:
            await self._stop()

    async def _run_connection(self) -> DialOutcome:
        """One attempt to connect, and the connection to its end."""
        try:
            connection, welcome = await self._dial(self.peer)
        except DialError as error:
            self._observe(error.outcome, error.reason, established=False)
            return error.outcome
        except Exception as error:  # whatever another agent has registered, it ends nobody's session but its own
            self._observe(DialOutcome.UNREACHABLE, f"{type(error).__name__}: {error}", established=False)
            return DialOutcome.UNREACHABLE
        if connection.open:
            self._begin(connection, welcome)
            async with background_tasks(self._keep_alive(connection)):
                return (await connection.ended)[0]
        outcome, detail = await connection.ended
        self._observe(outcome, detail, established=False)
        return outcome

    def _begin(self, connection: PeerConnection, welcome: Welcome) -> None:
        credit = Credit(
            stream_bytes=welcome.stream_credit_bytes,
            partition_bytes=welcome.partition_credit_bytes,
            control_bytes=welcome.control_credit_bytes,
            frame_bytes_max=min(welcome.frame_bytes_max, self._settings.frame_bytes_max),
        )
        self._connection, self._queue = connection, SendQueue(credit, lag_ms=self._settings.lag_ms)
        self.version = welcome.version
        self.counters.connects += 1
        self._logged = ""
        connection.begin(self, self.counters, frame_bytes_max=self._settings.frame_bytes_max)
        _log.info("connected to agent %s at %s", self.peer.agent, connection.peer_address)
        self._listener.connected(self)

    async def _keep_alive(self, connection: PeerConnection) -> None:
        settings = self._settings
        while connection.open:
            await self._clock.sleep_ms(min(settings.keep_alive_ms, settings.lag_ms / 2))
            now_ms = self._clock.boot_ms()
            if (silent_ms := connection.silent_ms(now_ms)) >= settings.silent_ms:
                connection.abort(DialOutcome.TIMED_OUT, f"nothing received for {silent_ms} ms")
                return
            if now_ms - connection.received_at_ms >= settings.keep_alive_ms / 2:
                connection.ping()
            self._drop_lagging(now_ms)
        await self._clock.sleep_ms(settings.close_ms)
        connection.abort(
            DialOutcome.STOPPED, ""
        )  # it is closing, and the peer may never take what it still has to send

    async def _stop(self) -> None:
        """Say goodbye, if the peer takes it within `close_ms`."""
        connection = self._connection
        if connection is None:
            return
        connection.close(DialOutcome.STOPPED, "the stream ends")
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.close_ms / 1000):
                await asyncio.shield(connection.ended)
        connection.abort(DialOutcome.STOPPED, "")

    # ── the connection's side ──

    def opened(self, connection: PeerConnection) -> None:
        """It was opened by the handshake."""

    def frame_received(self, connection: PeerConnection, frame: Frame) -> None:
        if frame.kind is not FrameKind.ANSWERS:
            raise MalformedFrameError(f"{frame.kind.name} instead of answers")
        self._answered(decode_answers(frame))

    def writable(self, connection: PeerConnection) -> None:
        self._flush()

    def ended(self, connection: PeerConnection, outcome: DialOutcome, detail: str) -> None:
        self._connection = None
        self._end_queue()
        if outcome is not DialOutcome.STOPPED:
            self._observe(outcome, detail, established=True)
        self._listener.disconnected(self)

    # ── messages and answers ──

    def _flush(self) -> None:
        self._flushing = False
        queue, connection = self._queue, self._connection
        if queue is None or connection is None or not queue.queued_bytes:
            return
        waits = queue.credit_waits
        while queue.queued_bytes and not connection.write_paused and queue.sendable:
            messages = queue.take(self._clock.boot_ms())
            if not messages:
                break
            self._sequence += 1
            self._unanswered[self._sequence] = _Unanswered(messages)
            connection.send(encode_messages(self._sequence, [(each.key, each.kind, each.parts) for each in messages]))
        self.counters.credit_waits += queue.credit_waits - waits

    def _answered(self, answers: Sequence[Answer]) -> None:
        queue = self._queue
        assert queue is not None
        recovered: list[bytes] = []
        for answer in answers:
            sequence, index = answer.sequence, answer.index
            frame = self._unanswered.get(sequence)
            message = frame.messages[index] if frame is not None and index < len(frame.messages) else None
            if frame is None or message is None:
                raise MalformedFrameError(f"an answer to message {index} of frame {sequence}, which waits for none")
            frame.messages[index] = None
            frame.left -= 1
            if not frame.left:
                del self._unanswered[sequence]
                self.counters.round_trip_s.observe((stopwatch_ns() - frame.sent_ns) / 1e9)
            recovered += queue.answered(message)
            message.on_answer(answer.payload)
        for key in recovered:
            self._listener.recovered(self, key)
        self._flush()

    def _drop_lagging(self, now_ms: int) -> None:
        if self._queue is None:
            return
        late, dropped = self._queue.drop_lagging(now_ms)
        for key in late:
            self.counters.lags += 1
            what = f"partition {key.decode(errors='replace')}" if key else "the stream"
            _log.warning(
                "agent %s is lagging: %s was out of credit for %d ms", self.peer.agent, what, self._settings.lag_ms
            )
            self._listener.lagging(self, key)
        for message in dropped:
            message.on_answer(None)

    def _end_queue(self) -> None:
        queue, self._queue = self._queue, None
        unanswered, self._unanswered = self._unanswered, {}
        lost = [each for frame in unanswered.values() for each in frame.messages if each is not None]
        for message in lost + (queue.clear() if queue is not None else []):
            message.on_answer(None)

    def _observe(self, outcome: DialOutcome, detail: str, *, established: bool) -> None:
        counts = self.counters.disconnects
        counts[outcome.value] = counts.get(outcome.value, 0) + 1
        identity = self.peer.identity
        observation = Observation(
            agent=identity.agent,
            wal_id=identity.wal_id,
            outcome=outcome,
            at_ms=self._clock.boot_ms(),
            established=established,
            detail=detail,
        )
        if str(observation) != self._logged:  # a peer that is away is logged once, however often it is tried
            self._logged = str(observation)
            expected = outcome is DialOutcome.CLOSED or detail.endswith(NO_SESSION)  # it starts, or stops
            level = logging.INFO if expected else logging.WARNING
            _log.log(level, "connection to agent %s at %s: %s", identity.agent, self.peer.address, observation)
        self._listener.observed(observation)
