"""The scanner of Produce requests in C and the reader in Python: the same of every request, and nothing but None of what is odd."""

from typing import Any, NamedTuple
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.kafka.wire import (
    ENTRIES_MAX,
    INT16,
    INT32,
    MalformedRequestError,
    WireReader,
    encode_length,
    encode_string,
    encode_tags,
)

native = pytest.importorskip("holdfast._native", reason="the C kernel was not built: no compiler")

Asked = tuple[str | None, int, int, list[tuple[str | bytes, list[tuple[int, bytes | None]]]]]


class Shape(NamedTuple):
    flexible: bool
    by_id: bool


SHAPES = [Shape(False, False), Shape(True, False), Shape(True, True)]

names = st.text(st.characters(codec="utf-8"), max_size=12)
records = st.none() | st.binary(max_size=300)
places = st.lists(st.tuples(st.integers(-(2**31), 2**31 - 1), records), max_size=4)
tags = st.dictionaries(st.integers(0, 300), st.binary(max_size=20), max_size=3)


def written(asked: Asked, shape: Shape, some_tags: dict[int, bytes]) -> bytes:
    """The request as a client sends it, with `some_tags` wherever there may be any."""
    transactional_id, acks, timeout_ms, topics = asked
    more = encode_tags(some_tags) if shape.flexible else b""
    out = encode_string(transactional_id, flexible=shape.flexible) + INT16.pack(acks) + INT32.pack(timeout_ms)
    out += encode_length(len(topics), flexible=shape.flexible)
    for named, listed in topics:
        out += named if isinstance(named, bytes) else encode_string(named, flexible=shape.flexible)
        out += encode_length(len(listed), flexible=shape.flexible)
        for number, data in listed:
            size = -1 if data is None else len(data)
            out += INT32.pack(number) + encode_length(size, flexible=shape.flexible) + (data or b"") + more
        out += more
    return out + more


def read(body: bytes, shape: Shape) -> Asked:
    """What the reader in Python finds; `MalformedRequestError`."""
    reader = WireReader(memoryview(body), flexible=shape.flexible)
    transactional_id, acks, timeout_ms = reader.string(), reader.int16(), reader.int32()
    topics: list[tuple[str | bytes, list[tuple[int, bytes | None]]]] = []
    for _ in range(reader.array()):
        named: str | UUID = reader.uuid() if shape.by_id else reader.text()
        listed = []
        for _ in range(reader.array()):
            number, data = reader.int32(), reader.bytes()
            listed.append((number, None if data is None else bytes(data)))
            reader.tags()
        topics.append((named.bytes if isinstance(named, UUID) else named, listed))
        reader.tags()
    reader.tags()
    return transactional_id, acks, timeout_ms, topics


def scanned(body: bytes, shape: Shape) -> Asked | None:
    """What the scanner in C finds."""
    found: Any = native.produce(memoryview(body), *shape, ENTRIES_MAX)
    if found is None:
        return None
    *head, topics = found
    cut = [(name, [(at, None if start < 0 else body[start:end]) for at, start, end in each]) for name, each in topics]
    return (*head, cut)


@pytest.mark.parametrize("shape", SHAPES)
@given(data=st.data())
def test_a_valid_request_is_scanned(shape: Shape, data: st.DataObject) -> None:
    topic: st.SearchStrategy[str | bytes] = st.binary(min_size=16, max_size=16) if shape.by_id else names
    topics = data.draw(st.lists(st.tuples(topic, places), max_size=3))
    asked: Asked = (
        data.draw(st.none() | names),
        data.draw(st.integers(-1, 1)),
        data.draw(st.integers(0, 60_000)),
        topics,
    )
    body = written(asked, shape, data.draw(tags))
    assert scanned(body, shape) == read(body, shape) == asked


@pytest.mark.parametrize("shape", SHAPES)
@given(data=st.data())
def test_a_damaged_request_is_scanned_as_the_reader_reads_it_or_not_at_all(shape: Shape, data: st.DataObject) -> None:
    topic: str | bytes = b"i" * 16 if shape.by_id else "topic"
    body = bytearray(written((None, -1, 30_000, [(topic, [(3, b"records"), (4, None)])]), shape, {1: b"tag"}))
    for _ in range(data.draw(st.integers(0, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    body = body[: data.draw(st.integers(0, len(body)))]
    found = scanned(bytes(body), shape)
    try:
        expected = read(bytes(body), shape)
    except MalformedRequestError:
        assert found is None
    else:
        assert found in (None, expected)


@pytest.mark.parametrize("shape", SHAPES)
def test_trailing_bytes_are_left_to_the_reader(shape: Shape) -> None:
    body = written((None, -1, 30_000, []), shape, {})
    assert scanned(body, shape) == (None, -1, 30_000, [])
    assert scanned(body + b"\0", shape) is None
