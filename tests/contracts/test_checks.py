"""What every engine refuses, and the range a prefix means."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.contracts.store import Absent, AtVersion, Delete, Operation, Put, Requirement
from holdfast.contracts.validation import StoreLimits, check_commit, check_key, check_ttl, check_value, prefix_end
from holdfast.vocabulary.errors import InvalidError

LIMITS = StoreLimits()
TIGHT = StoreLimits(ops_max=4, bytes_max=1024, key_bytes_max=16, ttl_ms_min=100)

# Text that UTF-8 can hold; the highest code points are where the next prefix is hard to name.
texts = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("\ud7ff\ue000\U0010fffe\U0010ffff"))


@given(prefix=texts, key=texts)
def test_a_key_is_in_the_range_of_a_prefix_exactly_if_it_starts_with_it(prefix: str, key: str) -> None:
    assert (prefix <= key < prefix_end(prefix)) == key.startswith(prefix) or set(prefix) <= {"\U0010ffff"}


@given(prefix=texts, rest=texts)
def test_every_key_below_a_prefix_is_in_its_range(prefix: str, rest: str) -> None:
    # No store keeps a key of nothing but the last code point: it is not printable.
    key = prefix + rest
    if key.isprintable():
        assert prefix <= key < prefix_end(prefix)


@given(prefix=texts)
def test_the_end_of_a_prefix_is_text(prefix: str) -> None:
    assert prefix_end(prefix).encode().decode() > prefix.rstrip("\U0010ffff")


@given(prefix=texts, key=texts)
def test_ranges_mean_the_same_in_code_points_and_in_bytes(prefix: str, key: str) -> None:
    end = prefix_end(prefix)
    assert (prefix <= key < end) == (prefix.encode() <= key.encode() < end.encode())


@given(key=st.text(max_size=40))
def test_a_key_is_accepted_exactly_if_every_engine_can_hold_it(key: str) -> None:
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        size = 0
    if key.isprintable() and 0 < size <= TIGHT.key_bytes_max:
        assert check_key(key, TIGHT) == size
    else:
        with pytest.raises(InvalidError):
            check_key(key, TIGHT)


@given(value=st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists))
def test_json_is_accepted(value: object) -> None:
    check_value("key", json.dumps(value).encode())
    check_value("key", json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))


@given(value=st.binary(max_size=12))
def test_what_is_not_json_in_utf8_is_refused(value: bytes) -> None:
    try:
        json.loads(value.decode())
    except ValueError:
        with pytest.raises(InvalidError):
            check_value("key", value)


PUTS = [Put(f"k{n}", b"1") for n in range(5)]


@pytest.mark.parametrize(
    ("require", "apply"),
    [
        ([], []),
        ([], PUTS[:4]),
        ([Absent("a"), AtVersion("b", 1)], [Put("a", b"1"), Delete("b")]),
        ([Absent("a"), Absent("a")], [Put("a", b"1")]),
        ([], [Put("k" * 16, b"1" * 1008)]),
        ([], [Put("é" * 8, b'"' + b"x" * 1006 + b'"')]),
    ],
)
def test_a_commit_within_the_limits_is_accepted(require: list[Requirement], apply: list[Operation]) -> None:
    check_commit(require, apply, TIGHT)


@pytest.mark.parametrize(
    ("require", "apply", "what"),
    [
        ([], PUTS, "operations in a commit"),
        ([Absent("a")], PUTS[:4], "operations in a commit"),
        ([], [Put("k" * 16, b"1" * 1009)], "bytes in a commit"),
        ([Absent("k")], [Put("k" * 16, b"1" * 1008)], "bytes in a commit"),
        ([], [Put("k" * 17, b"1")], "key"),
        ([], [Delete("")], "key"),
        ([Absent("a\tb")], [], "key"),
        ([AtVersion("a", 0)], [], "required version of a"),
        ([AtVersion("a", -3)], [], "required version of a"),
        ([], [Put("a", b"1"), Put("b", b"1"), Put("a", b"2")], "keys written in a commit"),
        ([], [Delete("a"), Delete("a")], "keys written in a commit"),
        ([], [Put("a", b"one")], "value of a"),
        ([], [Put("a", b"\xff")], "value of a"),
        ([], [Put("a", b"")], "value of a"),
    ],
)
def test_a_commit_beyond_the_limits_is_refused_and_the_error_says_why(
    require: list[Requirement], apply: list[Operation], what: str
) -> None:
    with pytest.raises(InvalidError) as refused:
        check_commit(require, apply, TIGHT)
    assert refused.value.what == what
    assert refused.value.allowed


def test_a_ttl_below_the_limit_is_refused() -> None:
    check_ttl(100, LIMITS)
    with pytest.raises(InvalidError):
        check_ttl(99, LIMITS)


@pytest.mark.parametrize(
    "wrong", [{"ops_max": 0}, {"bytes_max": 1023}, {"key_bytes_max": 15}, {"ttl_ms_min": 0}], ids=str
)
def test_limits_that_allow_nothing_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(InvalidError):
        StoreLimits(**wrong)
