"""Varints: every number comes back, nothing is read past the end, too many bits are refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.vocabulary.varint import VarintError, put_uvarint, put_varint, read_uvarint, unzigzag


@given(st.integers(0, 2**64 - 1))
def test_an_unsigned_number_comes_back_with_the_position_behind_it(value: int) -> None:
    out = bytearray(b"x")
    put_uvarint(out, value)
    assert read_uvarint(out, 1, len(out)) == (value, len(out))


@given(st.integers(-(2**63), 2**63 - 1))
def test_a_signed_number_comes_back_through_zigzag(value: int) -> None:
    out = bytearray()
    put_varint(out, value)
    found, at = read_uvarint(out, 0, len(out))
    assert (unzigzag(found), at) == (value, len(out))


@given(st.integers(0, 2**64 - 1), st.integers(0, 9))
def test_a_number_that_is_cut_off_is_refused(value: int, kept: int) -> None:
    out = bytearray()
    put_uvarint(out, value)
    kept = min(kept, len(out) - 1)
    with pytest.raises(VarintError) as refused:
        read_uvarint(out, 0, kept)
    assert not refused.value.overflow


@pytest.mark.parametrize(("bits", "largest"), [(31, 2**31 - 1), (32, 2**32 - 1), (64, 2**64 - 1)])
def test_a_number_with_too_many_bits_is_refused(bits: int, largest: int) -> None:
    out = bytearray()
    put_uvarint(out, largest)
    assert read_uvarint(out, 0, len(out), bits)[0] == largest
    too_large = bytearray()
    while len(too_large) < len(out) - 1:
        too_large.append(0x80)
    too_large.append(1 << (bits - 7 * (len(out) - 1)))
    with pytest.raises(VarintError) as refused:
        read_uvarint(too_large, 0, len(too_large), bits)
    assert refused.value.overflow
