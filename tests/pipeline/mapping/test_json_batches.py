"""Batches that are read at once: always what the records become one by one, and only where all of them become rows."""

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.mapped_batches import both, check, revision

from holdfast.pipeline.model.definition import Revision

pytest.importorskip("pyarrow")

FINE = b'{"id":1,"small":2,"name":"n","note":null,"good":true}'


def test_plain_objects_are_read_at_once() -> None:
    assert check([FINE])
    assert check([FINE] * 1_000)
    assert check([b'{"id":%d,"name":"\\u00e9\\n%d","x":1.5,"y":"2020-01-01 00:00:00"}' % (n, n) for n in range(100)])
    assert check(
        [b'{ "name" : "n" , "id" : -0 }', FINE, b'{"id":9223372036854775807,"name":"","note":"","good":false}']
    )


ODD = [
    b"", b" ", b"{}", b"{} ", b" {}", b"null", b"[1]", b"1", b'"s"', b"{", b"}", b'{"id":1', b'{"id":1,', b'"name":"x"}',
    b'{"id":1,"name":"n"}{"id":2,"name":"m"}', b'{"id":1,"name":"n"}\n{"id":2,"name":"m"}', b'{"id":1,\n"name":"n"}',
    b'{"id":1,"name":"n","x":NaN}', b'{"id":1,"name":"n","x":Infinity}', b'{"id":1,"name":"n","x":1e400}',
    b'{"id":1,"name":"n","x":' + b"[" * 3_000 + b"]" * 3_000 + b"}", b'{"id":1,"name":"n","x":' + b"9" * 5_000 + b"}",
    b'{"id":1,"name":"n","x":[1,2]}', b'{"id":1,"name":"n","x":{"y":1}}', b'{"id":1,"name":"n","x":"\xff"}',
    b'{"id":1,"name":"\xff"}', b'{"\xff":1,"id":1,"name":"n"}', b'{"id":1,"name":"\\udc00"}', b'{"id":1,"name":"n","x":"\\ud800"}',
    b'\xef\xbb\xbf{"id":1,"name":"n"}', b'{"id":1,"id":2,"name":"n"}', b'{"id":1,"name":"n","x":1,"x":2}',
    b'{"id":1.0,"name":"n"}', b'{"id":1e2,"name":"n"}', b'{"id":9223372036854775808,"name":"n"}', b'{"id":"1","name":"n"}',
    b'{"id":true,"name":"n"}', b'{"id":1,"name":5}', b'{"id":1,"name":null}', b'{"id":1}', b'{"id":1,"name":"n","small":256}',
    b'{"id":1,"name":"n","small":-1}', b'{"id":1,"name":"n","good":1}', b'{"id":1,"name":"n","good":"true"}',
    b'{"id":1,"name":"a\tb"}', b'{"id":1,"name":"a\x00b"}', b'{"id":1,"name":"\\u0000"}', b'{"id":01,"name":"n"}',
    b'{"id":1,"name":"}\\n{"}', b'{"id":1,"name":"}', b'{"}',
]  # fmt: skip


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: repr(odd[:40]))
def test_what_is_odd_becomes_what_it_becomes_one_by_one(odd: bytes) -> None:
    for payloads in ([odd], [FINE, odd], [odd, FINE], [FINE, odd, FINE]):
        check(payloads)
    check([FINE, None, odd])


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_a_record_nested_without_end_fails_alone_and_at_once(opening: bytes, closing: bytes) -> None:
    deep = b'{"id":1,"name":"n","x":' + opening * 200_000 + b"1" + closing * 200_000 + b"}"
    assert not check([FINE, deep, FINE])


def test_brackets_in_texts_are_read_in_batches() -> None:
    assert check([b'{"id":1,"name":"[[[ {{{ ]]] }}}"}'] * 100)


@pytest.mark.parametrize(
    "payloads",
    [
        [b'{"id":1,', b'"name":"a"}', b'{"id":2,"name":"b"}\n{"id":3,"name":"c"}'],
        [b'{"id":1,"name":"a"}{"id":2,"name":"b"}', b""],
        [b'{"id":1,"name":"a"}\n{"id":2,"name":"b"}', b" ", FINE],
        [b'{"id":1,"name":"}', b'{"}', b'{"id":2,"name":"b"}{"id":3,"name":"c"}'],
        [b'{"id":1,"name":"n","x":[{}', b"{}]}", FINE + FINE],
    ],
)
def test_records_that_only_together_are_as_many_objects_stay_apart(payloads: Sequence[bytes | None]) -> None:
    assert not check(payloads)


values = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5) | st.just([1])
names = st.sampled_from(["id", "small", "name", "note", "good", "other", "more"])
objects = st.dictionaries(names, values, max_size=6).map(lambda each: json.dumps(each).encode())
likely = st.fixed_dictionaries(
    {"id": st.integers(-(2**63), 2**63 - 1), "name": st.text(max_size=5)},
    optional={
        "small": st.none() | st.integers(0, 255),
        "note": st.none() | st.text(max_size=5),
        "good": st.none() | st.booleans(),
        "other": st.integers() | st.floats(allow_nan=False, allow_infinity=False),
    },
).map(lambda each: json.dumps(each, ensure_ascii=False).encode(errors="replace"))


@examples(1.5)
@given(st.lists(likely, min_size=1, max_size=6))
def test_any_likely_batch(payloads: Sequence[bytes | None]) -> None:
    check(payloads)


@examples(1.5)
@given(st.lists(likely | objects | st.sampled_from(ODD) | st.binary(max_size=6), min_size=1, max_size=5))
def test_any_batch(payloads: Sequence[bytes | None]) -> None:
    check(payloads)


@pytest.mark.parametrize(
    "chosen",
    [
        revision([{"fieldPath": "a.b", "column": "b", "type": "Int64"}]),
        revision(
            [{"fieldPath": "id", "column": "a", "type": "Int64"}, {"fieldPath": "id", "column": "b", "type": "String"}]
        ),
        revision(filters={"enabled": True, "expression": "id + 1 > 1"}),
        revision(filters={"enabled": True, "expression": "offset > 1"}),
        revision([{"fieldPath": "list[0]", "column": "a", "type": "Int64"}]),
        revision(
            [{"fieldPath": "a", "column": "a", "type": "String"}, {"fieldPath": "a.b", "column": "b", "type": "Int64"}]
        ),
        revision(drift={"unknownFields": "overflow"}),
        revision(drift={"unknownFields": "dlq"}),
    ],
)
def test_filters_and_drift_policies_get_every_record(chosen: Revision) -> None:
    assert not both([FINE], chosen)[2]
