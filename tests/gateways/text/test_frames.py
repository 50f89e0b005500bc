"""Frames and requests: what is understood, what is refused, and that the stream goes on after what is refused."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.cursors.cursor import CursorRecord
from holdfast.gateways.text.frames import FrameParser, InvalidFrame, encode_frames
from holdfast.gateways.text.records import decode_payloads, decode_records, encode_payloads, encode_records
from holdfast.gateways.text.requests import Request, RequestError, Verb, parse_request
from holdfast.vocabulary.errors import InvalidError


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=8), st.integers(1, 50))
def test_frames_are_the_same_however_they_arrive(bodies: list[bytes], chunk: int) -> None:
    data, parser, found = encode_frames(bodies), FrameParser(40), []
    for at in range(0, len(data), chunk):
        found += parser.feed(data[at : at + chunk])
    assert found == bodies
    assert not parser.incomplete


@given(st.sampled_from([0, 41, 1_000]), st.integers(1, 50))
def test_a_frame_of_an_invalid_length_is_drained(length: int, chunk: int) -> None:
    data = encode_frames([b"before"]) + length.to_bytes(4, "little") + bytes(length) + encode_frames([b"after"])
    parser, found = FrameParser(40), []
    for at in range(0, len(data), chunk):
        found += parser.feed(data[at : at + chunk])
    assert found == [b"before", InvalidFrame(length), b"after"]
    assert parser.held_bytes == 0


def test_an_invalid_frame_is_known_before_it_has_arrived_and_holds_no_memory() -> None:
    parser = FrameParser(40)
    assert parser.feed((1 << 31).to_bytes(4, "little") + bytes(1_000_000)) == [InvalidFrame(1 << 31)]
    assert parser.held_bytes == 0
    assert parser.incomplete


@pytest.mark.parametrize(
    ("frame", "request_"),
    [
        (b"REGISTER logs", Request(Verb.REGISTER, "logs")),
        (b"PUT logs hello", Request(Verb.PUT, "logs", b"hello")),
        (b"PUT logs  two spaces ", Request(Verb.PUT, "logs", b" two spaces ")),
        (b"PUT logs \xff\x00\n", Request(Verb.PUT, "logs", b"\xff\x00\n")),
        (b"PUT logs ", Request(Verb.PUT, "logs", b"")),
        (b"GET logs", Request(Verb.GET, "logs")),
        (b"GET logs ignored", Request(Verb.GET, "logs")),
        (b"STATE logs", Request(Verb.STATE, "logs")),
        (b"METRICS", Request(Verb.METRICS)),
        (b"AUTH secret word", Request(Verb.AUTH, payload=b"secret word")),
        (b"FETCH logs 0 17", Request(Verb.FETCH, "logs", numbers=(0, 17))),
        (b"FETCH logs 0 17 100", Request(Verb.FETCH, "logs", numbers=(0, 17, 100))),
        (b"VIA 7 PUT logs a b", Request(Verb.PUT, "logs", b"a b", forwarded=True)),
        (b"VIA 7 TAKE logs 5", Request(Verb.TAKE, "logs", numbers=(5,), forwarded=True)),
        (b"VIA 7 SETTLE 5", Request(Verb.SETTLE, numbers=(5,), forwarded=True)),
    ],
)
def test_requests_are_split_on_single_spaces(frame: bytes, request_: Request) -> None:
    found = parse_request(frame)
    assert found.size == len(frame)
    assert Request(found.verb, found.topic, found.payload, found.numbers, found.forwarded) == request_


@pytest.mark.parametrize(
    ("frame", "text"),
    [
        (b"put logs x", "unknown command"),
        (b"HELLO", "unknown command"),
        (b" PUT logs x", "unknown command"),
        (b"TAKE logs 1", "unknown command"),  # nodes alone may
        (b"PUTS logs x", "unknown command"),
        (b"VIA 1 VIA 2 GET logs", "unknown command"),
        (b"VIA 1", "VIA requires a node and a request"),
        (b"REGISTER", "REGISTER requires a topic"),
        (b"PUT", "PUT requires a topic"),
        (b"GET ", "GET requires a topic"),
        (b"PUT logs", "PUT requires a payload"),
        (b"PUT \xff x", "invalid utf-8"),
        (b"\xff\xfe", "invalid utf-8"),
        (b"FETCH logs", "FETCH requires a partition, an offset and optionally a number of records"),
        (b"FETCH logs 0", "FETCH requires a partition, an offset and optionally a number of records"),
        (b"FETCH logs 0 -1", "FETCH requires a partition, an offset and optionally a number of records"),
        (b"FETCH logs 0 x", "FETCH requires a partition, an offset and optionally a number of records"),
        (b"FETCH logs 0 1 2 3", "FETCH requires a partition, an offset and optionally a number of records"),
        (b"FETCH logs 0  1", "FETCH requires a partition, an offset and optionally a number of records"),
        (
            b"FETCH logs 0 9999999999999999999",
            "FETCH requires a partition, an offset and optionally a number of records",
        ),
    ],
)
def test_what_is_no_request_gets_walrus_words(frame: bytes, text: str) -> None:
    with pytest.raises(RequestError) as refused:
        parse_request(frame)
    assert str(refused.value) == text


@given(st.binary(max_size=60))
def test_any_bytes_are_a_request_or_refused(frame: bytes) -> None:
    with suppress(RequestError):
        parse_request(frame)


@given(st.lists(st.binary(max_size=30), max_size=6), st.binary(min_size=1, max_size=3))
def test_payloads_and_records_in_one_frame(payloads: list[bytes], rest: bytes) -> None:
    assert decode_payloads(encode_payloads(payloads)) == payloads
    records = [CursorRecord(at * 7, payload) for at, payload in enumerate(payloads)]
    assert list(decode_records(encode_records(records))) == records
    for decode, data in ((decode_payloads, encode_payloads(payloads)), (decode_records, encode_records(records))):
        with pytest.raises(InvalidError):
            decode(data + rest)
