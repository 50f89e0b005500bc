"""A peer's stream at its accepting end: messages are handed on frame by frame, answers are collected and sent together.

What a peer may have unanswered is bounded by the credit it was granted; one that exceeds it is closed.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from holdfast.agent.peers.connection import PeerConnection
from holdfast.agent.peers.frames import (
    ANSWER_BYTES,
    COUNT_MAX,
    Buffer,
    Frame,
    FrameKind,
    MalformedFrameError,
    PeerMessage,
    decode_messages,
    encode_answers,
)
from holdfast.agent.peers.handshake import PeerIdentity
from holdfast.agent.peers.observations import DialOutcome
from holdfast.agent.peers.receive_budget import ReceiveBudget
from holdfast.agent.peers.settings import PeerSettings


class ReceivedMessages:
    """The messages of one frame: what the peer wrote in one go, to be written in one go. Each gets one answer, now or later."""

    __slots__ = ("_answered", "_connection", "_sequence", "messages")

    def __init__(self, connection: "InboundStream", sequence: int, messages: list[PeerMessage]) -> None:
        self._connection, self._sequence, self.messages = connection, sequence, messages
        self._answered = bytearray(len(messages))

    @property
    def peer(self) -> PeerIdentity:
        """Who sent them."""
        return self._connection.peer

    @property
    def version(self) -> int:
        """Of the protocol."""
        return self._connection.version

    def answer(self, index: int, *parts: Buffer) -> None:
        """Answer message `index`. Answers of one turn of the loop go out as one frame."""
        if self._answered[index]:
            raise RuntimeError(f"message {index} is answered already")
        self._answered[index] = 1
        self._connection.answer(self._sequence, index, self.messages[index], parts)


OnMessages = Callable[[ReceivedMessages], None]
"""Takes the messages of a frame. Called on the event loop, and must not block it."""


class StreamHost(Protocol):
    """What the streams of one server share."""

    settings: PeerSettings
    on_messages: OnMessages

    def left(self, stream: "InboundStream", outcome: DialOutcome, detail: str) -> None:
        """A stream has ended."""
        ...


def take_none(received: ReceivedMessages) -> None:
    """Close the connection of whoever sends something."""
    raise MalformedFrameError("messages are not taken here")


class InboundStream:
    """A peer's stream, after the handshake."""

    def __init__(self, connection: PeerConnection, peer: PeerIdentity, version: int, host: StreamHost) -> None:
        self.peer, self.version, self.connection = peer, version, connection
        self._host = host
        self._budget = ReceiveBudget(host.settings)
        self._answers: list[tuple[int, int, Sequence[Buffer]]] = []
        self._answers_bytes = 0

    @property
    def unanswered_bytes(self) -> int:
        """Bytes of messages that wait for their answers."""
        return self._budget.used_bytes

    def opened(self, connection: PeerConnection) -> None:
        """It was opened by the handshake."""

    def frame_received(self, connection: PeerConnection, frame: Frame) -> None:
        if frame.kind is not FrameKind.MESSAGES:
            raise MalformedFrameError(f"{frame.kind.name} instead of messages")
        messages = decode_messages(frame)
        self._budget.take(messages)
        self._host.on_messages(ReceivedMessages(self, frame.sequence, messages))

    def writable(self, connection: PeerConnection) -> None:
        """Answers are not held back: their number is bounded by the credit."""

    def ended(self, connection: PeerConnection, outcome: DialOutcome, detail: str) -> None:
        self._host.left(self, outcome, detail)

    def answer(self, sequence: int, index: int, message: PeerMessage, parts: Sequence[Buffer]) -> None:
        """Send an answer with everything else of this turn of the loop."""
        if not self.connection.open:
            return
        self._budget.release(message)
        if not self._answers:
            asyncio.get_running_loop().call_soon(self._flush)
        size = ANSWER_BYTES + sum(map(len, parts))
        if self._answers_bytes + size > self._host.settings.frame_bytes_max or len(self._answers) == COUNT_MAX:
            self._send_answers()
        self._answers.append((sequence, index, parts))
        self._answers_bytes += size

    def _flush(self) -> None:
        if self._answers:
            self._send_answers()

    def _send_answers(self) -> None:
        answers, self._answers, self._answers_bytes = self._answers, [], 0
        self.connection.send(encode_answers(answers))
