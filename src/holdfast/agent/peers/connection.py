"""One connection between two agents, either end of it: whole frames in, frames out, and how it ended.

The one rule: whatever the peer sends, it ends this connection at most, with a reason, never the process.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final, Protocol, cast

from holdfast.agent.peers.frames import Buffer, Frame, FrameDecoder, FrameKind, MalformedFrameError, encode_frame
from holdfast.agent.peers.handshake import HELLO_BYTES_MAX, Refusal, encode_handshake
from holdfast.agent.peers.observations import DialOutcome, outcome_of
from holdfast.agent.peers.settings import TrafficCounters
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.host_port import join_host_port
from holdfast.vocabulary.settings import KIB, MIB

_log: Final = logging.getLogger(__name__)

_SCRATCH: Final = memoryview(
    bytearray(256 * KIB)
)  # one thread receives: what is in it is looked at before the next bytes
_WRITE_BUFFER_BYTES: Final = MIB
_JOINED_BYTES_MAX: Final = 16 * KIB  # below, copying costs less than a longer list of buffers
_REASON_CHARS_MAX: Final = 500


class ConnectionEnd(Protocol):
    """The end that a connection belongs to."""

    def opened(self, connection: "PeerConnection") -> None:
        """It is open; nothing was sent yet."""
        ...

    def frame_received(self, connection: "PeerConnection", frame: Frame) -> None:
        """A frame other than PING, PONG and GOODBYE. `MalformedFrameError`: it may not come now."""
        ...

    def writable(self, connection: "PeerConnection") -> None:
        """What was written has been taken: there is room for more."""
        ...

    def ended(self, connection: "PeerConnection", outcome: DialOutcome, detail: str) -> None:
        """It has ended; called once, if `opened` was."""
        ...


class PeerConnection(asyncio.BufferedProtocol):
    """A protocol of the event loop."""

    def __init__(self, end: ConnectionEnd, *, clock: Clock) -> None:
        self._end, self._clock = end, clock
        self._decoder = FrameDecoder(_SCRATCH, bytes_max=HELLO_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self._outcome: tuple[DialOutcome, str] | None = None  # decided before the transport has ended
        self.counters = TrafficCounters()
        self.peer_address = "?"
        self.write_paused = False
        self.received_at_ms = clock.boot_ms()
        self._sent_bytes = 0
        self._backlog = (0, 0)  # when it was looked at last: bytes that the system had not taken, bytes that it had
        self._taken_at_ms = 0
        self.ended: asyncio.Future[tuple[DialOutcome, str]] = asyncio.get_running_loop().create_future()

    # ── the transport's side ──

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = made = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        self.peer_address = join_host_port(*(made.get_extra_info("peername") or ("?", 0))[:2])
        made.set_write_buffer_limits(_WRITE_BUFFER_BYTES)
        self._end.opened(self)

    def connection_lost(self, error: Exception | None) -> None:
        outcome, detail = self._outcome or (outcome_of(error or ConnectionResetError()), str(error or ""))
        self._outcome = outcome, detail
        if not self.ended.done():
            self.ended.set_result(self._outcome)
        self._end.ended(self, outcome, detail)

    def eof_received(self) -> bool:
        # A process that was killed leaves this, or a reset, to its kernel; one that closes says goodbye first.
        self._ending(DialOutcome.RESET, "the peer closed the connection without a reason")
        return False

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._decoder.buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._outcome is not None:
            return
        self.received_at_ms = self._clock.boot_ms()
        self.counters.received_bytes += nbytes
        try:
            for frame in self._decoder.received(nbytes):
                self.counters.received_frames += 1
                self._received(frame)
                if self._outcome is not None:
                    return
        except MalformedFrameError as error:
            self.close(DialOutcome.MALFORMED, str(error))
        except Exception as error:
            _log.exception("a frame of the peer at %s failed", self.peer_address)
            self.close(DialOutcome.MALFORMED, f"{type(error).__name__}: {error}")

    def pause_writing(self) -> None:
        self.write_paused = True
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()  # what arrives makes us write more

    def resume_writing(self) -> None:
        self.write_paused = False
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
        if self._outcome is None:
            self._end.writable(self)

    # ── its end's side ──

    @property
    def open(self) -> bool:
        """Whether frames can be sent and are received."""
        return self._outcome is None and self._transport is not None

    def begin(self, end: ConnectionEnd, counters: TrafficCounters, *, frame_bytes_max: int) -> None:
        """The handshake is done: from now on it belongs to `end`, and frames may be as large as this."""
        self._end, self.counters = end, counters
        self._decoder.bytes_max = frame_bytes_max

    def send(self, frame: Sequence[Buffer]) -> None:
        """Send what `encode_…` returned. Its buffers must not change until it is sent."""
        if self._transport is None or self._outcome is not None:
            return
        size = sum(map(len, frame))
        self._sent_bytes += size
        self.counters.sent_bytes += size
        self.counters.sent_frames += 1
        if size <= _JOINED_BYTES_MAX:
            self._transport.write(b"".join(frame))
        else:
            self._transport.writelines(frame)

    def silent_ms(self, now_ms: int) -> int:
        """For how long the peer has sent nothing and has taken nothing of what waits for it; ask now and then.

        A large frame over a slow link is answered when all of it has arrived. What the system took of a backlog was acknowledged by
        the peer's machine, and a process that stands still takes no more than fits in that machine's buffer.
        """
        waiting = self._transport.get_write_buffer_size() if self._transport is not None else 0
        taken = self._sent_bytes - waiting
        if self._backlog[0] and taken > self._backlog[1]:
            self._taken_at_ms = now_ms
        self._backlog = waiting, taken
        return now_ms - max(self.received_at_ms, self._taken_at_ms)

    def ping(self) -> None:
        """Ask for a sign of life."""
        self.send(encode_frame(FrameKind.PING))

    def refuse(self, reason: str) -> None:
        """End the handshake."""
        self._leave(FrameKind.REFUSAL, DialOutcome.REJECTED, reason)

    def close(self, outcome: DialOutcome, detail: str) -> None:
        """Tell the peer why, and close once that is sent. `abort` what takes too long."""
        self._leave(FrameKind.GOODBYE, outcome, detail)

    def abort(self, outcome: DialOutcome, detail: str) -> None:
        """Close at once."""
        self._ending(outcome, detail)
        if self._transport is not None:
            self._transport.abort()

    def _received(self, frame: Frame) -> None:
        if frame.kind is FrameKind.PING:
            self.send(encode_frame(FrameKind.PONG))
        elif frame.kind is FrameKind.GOODBYE:
            self._ending(DialOutcome.CLOSED, bytes(frame.body[:_REASON_CHARS_MAX]).decode(errors="replace"))
            if self._transport is not None:
                self._transport.close()
        elif frame.kind is not FrameKind.PONG:
            self._end.frame_received(self, frame)

    def _leave(self, kind: FrameKind, outcome: DialOutcome, reason: str) -> None:
        if self._outcome is not None:
            return
        text = reason[:_REASON_CHARS_MAX]
        body = encode_handshake(Refusal(reason=text)) if kind is FrameKind.REFUSAL else text.encode()
        self.send(encode_frame(kind, body))
        self._ending(outcome, reason)
        if self._transport is not None:
            self._transport.close()

    def _ending(self, outcome: DialOutcome, detail: str) -> None:
        if self._outcome is None:
            self._outcome = outcome, detail
