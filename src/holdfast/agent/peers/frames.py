"""Frames between agents: a header, a CRC-32C, a body. Bytes in, values out; no I/O.

The one rule: bytes that are not a frame raise `MalformedFrameError`, whatever they are, and nothing else does.

    frame      body bytes u32 · CRC-32C of all that follows u32 · kind u8 · 0 · count u16 · sequence u64 · body
    messages   per message: key bytes u16, class u8, 0, payload bytes u32 · all keys · all payloads
    answers    per answer: sequence of its frame u64, index in that frame u16, 0 u16, payload bytes u32 · all payloads

The layout of frames and of the handshake (JSON, `handshake.py`) is the same in every version; the version says what payloads mean.
"""

from collections.abc import Iterator, Sequence
from enum import IntEnum
from itertools import chain
from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from holdfast.vocabulary.errors import HoldfastError
from holdfast.vocabulary.settings import KIB

_HEADER: Final = Struct(">IIBxHQ")
_CHECKED: Final = Struct(">BxHQ")  # the part of the header that the CRC covers
_MESSAGE: Final = Struct(">HBxI")
_ANSWER: Final = Struct(">QHxxI")
HEADER_BYTES: Final = _HEADER.size
MESSAGE_BYTES: Final = _MESSAGE.size
ANSWER_BYTES: Final = _ANSWER.size
_JOINED_BYTES_MAX: Final = 16 * KIB  # below, a copy costs less than a checksum of each part
COUNT_MAX: Final = 0xFFFF
KEY_BYTES_MAX: Final = 0xFFFF

Buffer = bytes | bytearray | memoryview


class FrameKind(IntEnum):
    """What a frame is."""

    HELLO = 1
    WELCOME = 2
    REFUSAL = 3
    MESSAGES = 4
    ANSWERS = 5
    PING = 6
    PONG = 7
    GOODBYE = 8


class MessageClass(IntEnum):
    """Which credit a message uses: `CONTROL` has a small one of its own, so that bulk data cannot hold it up."""

    DATA = 0
    CONTROL = 1


class MalformedFrameError(HoldfastError):
    """The peer sent something that is not a frame, or not one that may come now. Close the connection."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what

    def __str__(self) -> str:
        return f"malformed frame: {self.what}"


class Frame(NamedTuple):
    """A frame whose checksum is right. `count`: messages or answers in it."""

    kind: FrameKind
    count: int  # type: ignore[assignment]  # the protocol's word; the method of tuple is of no use here
    sequence: int
    body: memoryview


class PeerMessage(NamedTuple):
    """A message to a partition's replica. Only its two ends know what the payload means. `size`: what it costs of a credit."""

    key: bytes
    kind: MessageClass
    payload: memoryview
    size: int


class Answer(NamedTuple):
    """The answer to message `index` of frame `sequence`."""

    sequence: int
    index: int  # type: ignore[assignment]  # as in `Frame`
    payload: memoryview


def message_cost(key_bytes: int, payload_bytes: int) -> int:
    """What a message costs of a credit: its bytes in the frame. Both ends count the same."""
    return MESSAGE_BYTES + key_bytes + payload_bytes


def encode_frame(kind: FrameKind, *body: Buffer, count: int = 0, sequence: int = 0) -> list[Buffer]:
    """A frame, as buffers to write one after the other: large bodies are not copied."""
    size = sum(map(len, body))
    if size <= _JOINED_BYTES_MAX and len(body) > 1:
        body = (b"".join(body),)
    crc = crc32c(_CHECKED.pack(kind, count, sequence))
    for part in body:
        crc = crc32c(part, crc)
    return [_HEADER.pack(size, crc, kind, count, sequence), *body]


def encode_messages(sequence: int, messages: Sequence[tuple[bytes, MessageClass, Sequence[Buffer]]]) -> list[Buffer]:
    """One frame with all the messages: (key, class, parts of the payload)."""
    table = b"".join(
        [_MESSAGE.pack(len(key), kind, sum(map(len, parts))) for key, kind, parts in messages]
        + [key for key, _, _ in messages]
    )
    payloads = chain.from_iterable(parts for _, _, parts in messages)
    return encode_frame(FrameKind.MESSAGES, table, *payloads, count=len(messages), sequence=sequence)


def encode_answers(answers: Sequence[tuple[int, int, Sequence[Buffer]]]) -> list[Buffer]:
    """One frame with all the answers: (sequence, index, parts of the payload)."""
    table = b"".join([_ANSWER.pack(sequence, index, sum(map(len, parts))) for sequence, index, parts in answers])
    payloads = chain.from_iterable(parts for _, _, parts in answers)
    return encode_frame(FrameKind.ANSWERS, table, *payloads, count=len(answers))


def decode_messages(frame: Frame) -> list[PeerMessage]:
    """The messages of a frame, as views of it."""
    body, at = frame.body, frame.count * MESSAGE_BYTES
    if not frame.count or at > len(body):
        raise MalformedFrameError(f"{frame.count} messages in {len(body)} bytes")
    table = list(_MESSAGE.iter_unpack(body[:at]))
    keys = []
    for key_bytes, _, _ in table:
        keys.append(bytes(body[at : at + key_bytes]))
        at += key_bytes
    found = []
    for key, (_, kind, payload_bytes) in zip(keys, table, strict=True):
        if kind not in _CLASSES:
            raise MalformedFrameError(f"message class {kind}")
        size = message_cost(len(key), payload_bytes)
        found.append(PeerMessage(key, _CLASSES[kind], body[at : at + payload_bytes], size))
        at += payload_bytes
    _check_end(at, body)
    return found


def decode_answers(frame: Frame) -> list[Answer]:
    """The answers of a frame, as views of it."""
    body, at = frame.body, frame.count * ANSWER_BYTES
    if not frame.count or at > len(body):
        raise MalformedFrameError(f"{frame.count} answers in {len(body)} bytes")
    found = []
    for sequence, index, payload_bytes in _ANSWER.iter_unpack(body[:at]):
        found.append(Answer(sequence, index, body[at : at + payload_bytes]))
        at += payload_bytes
    _check_end(at, body)
    return found


_KINDS: Final = {int(kind): kind for kind in FrameKind}
_CLASSES: Final = {int(kind): kind for kind in MessageClass}


def _check_end(at: int, body: memoryview) -> None:
    if at != len(body):
        raise MalformedFrameError(f"its parts have {at} bytes, its body has {len(body)}")


class FrameDecoder:
    """Received bytes to frames. `bytes_max`, the limit of a body, may be raised once the peer is known.

    Small frames are copied out of `scratch`, which decoders of one thread may share; a large one is received where it stays.
    """

    def __init__(self, scratch: memoryview, *, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self._scratch = scratch
        self._rest = b""  # the beginning of a header
        self._head: tuple[int, ...] = ()
        self._body: memoryview | None = None  # of a frame that is arriving
        self._filled = 0

    @property
    def buffer(self) -> memoryview:
        """Where to receive the next bytes."""
        return self._scratch if self._body is None else self._body[self._filled :]

    def received(self, count: int) -> Iterator[Frame]:
        """The frames that `count` more bytes in `buffer` complete."""
        if self._body is not None:
            self._filled += count
            if self._filled == len(self._body):
                body, self._body = self._body, None
                yield _checked(self._head, body)
            return
        data = self._scratch[:count]
        if self._rest:
            data, self._rest = memoryview(self._rest + data), b""
        yield from self._frames(data)

    def _frames(self, data: memoryview) -> Iterator[Frame]:
        at, end = 0, len(data)
        while end - at >= HEADER_BYTES:
            head = _HEADER.unpack_from(data, at)
            size = head[0]
            if size > self.bytes_max:
                raise MalformedFrameError(f"its body has {size} bytes, the limit is {self.bytes_max}")
            at += HEADER_BYTES
            if end - at < size:
                self._head, self._body, self._filled = head, memoryview(bytearray(size)), end - at
                self._body[: end - at] = data[at:]
                return
            yield _checked(head, memoryview(bytes(data[at : at + size])))
            at += size
        self._rest = bytes(data[at:])


def _checked(head: tuple[int, ...], body: memoryview) -> Frame:
    _, crc, kind, count, sequence = head
    if crc32c(body, crc32c(_CHECKED.pack(kind, count, sequence))) != crc:
        raise MalformedFrameError("its checksum is wrong")
    if kind not in _KINDS:
        raise MalformedFrameError(f"kind {kind}")
    return Frame(_KINDS[kind], count, sequence, body)
