"""Primitive types: encoded values are read back, and nothing is read beyond the end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.kafka.wire import (
    MalformedRequestError,
    WireReader,
    encode_length,
    encode_string,
    encode_tags,
    encode_uvarint,
)


@given(st.integers(0, 2**32 - 1))
def test_an_unsigned_varint_is_read_back(value: int) -> None:
    data = encode_uvarint(value)
    reader = WireReader(memoryview(data), flexible=True)
    assert (reader.uvarint(), reader.at) == (value, len(data))


@pytest.mark.parametrize("flexible", [False, True])
@given(value=st.none() | st.text(max_size=300))
def test_a_nullable_string_is_read_back(flexible: bool, value: str | None) -> None:
    data = encode_string(value, flexible=flexible)
    assert WireReader(memoryview(data), flexible=flexible).string() == value


def test_tagged_fields_are_skipped() -> None:
    data = encode_tags({7: b"seven", 0: b""}) + b"!"
    reader = WireReader(memoryview(data), flexible=True)
    reader.tags()
    assert reader.at == len(data) - 1


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "invalid remaining length 0: must be at least 1"),
        (b"\x80\x80", "invalid remaining length 2: must be at least 3"),
        (b"\xff\xff\xff\xff\x7f", "invalid varint 'ffffffff7f': must be at most 32 bits"),
    ],
    ids=["nothing", "truncated", "too long"],
)
def test_a_varint_that_is_none_is_malformed(data: bytes, message: str) -> None:
    with pytest.raises(MalformedRequestError) as error:
        WireReader(memoryview(data), flexible=True).uvarint()
    assert str(error.value) == message


@pytest.mark.parametrize("flexible", [False, True])
def test_a_length_beyond_the_end_is_malformed(flexible: bool) -> None:
    data = encode_length(1_000, flexible=flexible) + bytes(9)
    with pytest.raises(MalformedRequestError, match="invalid remaining length 9: must be at least 1000"):
        WireReader(memoryview(data), flexible=flexible).array()
