"""Frames: what one end encodes the other decodes, however it arrives; whatever else arrives is an error of one kind."""

from collections.abc import Iterable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.agent.peers.frames import (
    HEADER_BYTES,
    Buffer,
    Frame,
    FrameDecoder,
    FrameKind,
    MalformedFrameError,
    MessageClass,
    decode_answers,
    decode_messages,
    encode_answers,
    encode_frame,
    encode_messages,
)

SCRATCH_BYTES = 256  # smaller than many of the frames below, so that large ones are received in place
LIMIT = 1 << 16

payloads = st.lists(st.binary(max_size=300), min_size=1, max_size=3)
messages = st.lists(
    st.tuples(st.binary(min_size=1, max_size=30), st.sampled_from(MessageClass), payloads), min_size=1, max_size=8
)
answers = st.lists(
    st.tuples(st.integers(0, (1 << 64) - 1), st.integers(0, (1 << 16) - 1), payloads), min_size=1, max_size=8
)


def decoded(data: bytes, cuts: Iterable[int] = (), limit: int = LIMIT) -> list[Frame]:
    """The frames in `data`, received in pieces of these sizes and then of whatever fits."""
    decoder = FrameDecoder(memoryview(bytearray(SCRATCH_BYTES)), bytes_max=limit)
    found: list[Frame] = []
    sizes, at = iter(cuts), 0
    while at < len(data):
        buffer = decoder.buffer
        size = min(len(buffer), len(data) - at, next(sizes, SCRATCH_BYTES))
        buffer[:size] = data[at : at + size]
        found += decoder.received(size)
        at += size
    return found


def joined(parts: Iterable[Buffer]) -> bytes:
    return b"".join(bytes(part) for part in parts)


@given(messages, st.integers(0, (1 << 64) - 1), st.lists(st.integers(1, SCRATCH_BYTES)))
def test_messages_arrive_as_they_were_sent_however_they_are_cut(
    sent: list[tuple[bytes, MessageClass, list[bytes]]], sequence: int, cuts: list[int]
) -> None:
    once = joined(encode_messages(sequence, sent))
    frames = decoded(once * 2, cuts)
    assert [each.sequence for each in frames] == [sequence, sequence]
    for frame in frames:
        found = [(each.key, each.kind, bytes(each.payload)) for each in decode_messages(frame)]
        assert found == [(key, kind, b"".join(parts)) for key, kind, parts in sent]
        assert sum(each.size for each in decode_messages(frame)) == len(frame.body), "what both ends count as credit"


@given(answers, st.lists(st.integers(1, SCRATCH_BYTES)))
def test_answers_arrive_as_they_were_sent(sent: list[tuple[int, int, list[bytes]]], cuts: list[int]) -> None:
    (frame,) = decoded(joined(encode_answers(sent)), cuts)
    found = [(each.sequence, each.index, bytes(each.payload)) for each in decode_answers(frame)]
    assert found == [(sequence, index, b"".join(parts)) for sequence, index, parts in sent]


@given(st.binary(max_size=600))
def test_bytes_that_are_no_frame_raise_one_error(data: bytes) -> None:
    with suppress(MalformedFrameError):
        for frame in decoded(data):
            decode_messages(frame)


@given(messages, st.integers(0), st.integers(0, 7))
def test_a_flipped_bit_is_noticed(sent: list[tuple[bytes, MessageClass, list[bytes]]], at: int, bit: int) -> None:
    data = bytearray(joined(encode_messages(1, sent)))
    at %= len(data)
    data[at] ^= 1 << bit
    try:
        frames = decoded(bytes(data))
    except MalformedFrameError:
        return
    length_or_padding = at < 4 or at == 9
    assert not frames or at == 9, "a frame with another length waits for more bytes; the padding means nothing"
    assert length_or_padding


@given(st.sampled_from([FrameKind.MESSAGES, FrameKind.ANSWERS]), st.binary(max_size=120), st.integers(0, 0xFFFF))
def test_a_body_that_contradicts_itself_raises_the_same_error(kind: FrameKind, body: bytes, count: int) -> None:
    (frame,) = decoded(joined(encode_frame(kind, body, count=count)))
    decode = decode_messages if kind is FrameKind.MESSAGES else decode_answers
    with suppress(MalformedFrameError):
        decode(frame)


def test_a_frame_beyond_the_limit_is_refused_by_its_header() -> None:
    frame = joined(encode_frame(FrameKind.MESSAGES, b"x" * 101))
    with pytest.raises(MalformedFrameError, match="its body has 101 bytes, the limit is 100"):
        decoded(frame[:HEADER_BYTES], limit=100)


def test_an_unknown_kind_and_an_unknown_class_are_refused() -> None:
    unknown: FrameKind = 99  # type: ignore[assignment]
    with pytest.raises(MalformedFrameError, match="kind 99"):
        decoded(joined(encode_frame(unknown, b"")))
    strange: MessageClass = 7  # type: ignore[assignment]
    (frame,) = decoded(joined(encode_messages(1, [(b"k", strange, [b"v"])])))
    with pytest.raises(MalformedFrameError, match="message class 7"):
        decode_messages(frame)
