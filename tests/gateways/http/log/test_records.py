"""Records as JSON and back: bytes come back as they went in."""

from base64 import b64encode

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.gateways.http.log.records import NewRecord, from_record, line_records, line_values, to_record
from holdfast.log.batches import Record
from holdfast.vocabulary.errors import InvalidError

NOW_MS = 1_700_000_000_000
_data = st.none() | st.binary(max_size=40) | st.text(max_size=20).map(str.encode)


def by_name(record: Record) -> dict[str, list[bytes | None]]:
    return {name: [data for each, data in record.headers if each == name] for name, _ in record.headers}


def parsed(text: str) -> Record:
    return to_record(0, msgspec.json.decode(text, type=NewRecord), NOW_MS)


@given(
    key=_data, value=_data, headers=st.lists(st.tuples(st.sampled_from("abc") | st.text(max_size=8), _data), max_size=5)
)
def test_what_was_read_can_be_produced_again(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    record = Record(7, NOW_MS, key, value, tuple(headers))
    shown = msgspec.json.decode(msgspec.json.encode(from_record(3, record)))
    del shown["partition"], shown["offset"]
    again = parsed(msgspec.json.encode(shown).decode())
    assert again[1:4] == record[1:4]
    assert by_name(again) == by_name(record)


def test_a_header_that_occurs_several_times_is_an_array() -> None:
    headers = (("h", b"1"), ("b", b"x"), ("h", None), ("h", b"1"), ("b", b"\xff"), ("one", b"o"))
    shown = from_record(0, Record(0, NOW_MS, None, b"", headers))
    assert shown.headers == {"h": ["1", None, "1"], "one": "o"}
    assert shown.headers_base64 == {"b": ["eA==", "/w=="]}


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        ('"text"', b"text"),
        ('""', b""),
        ("null", None),
        ('{"a": 1.10}', b'{"a": 1.10}'),
        ("123456789012345678901234567890", b"123456789012345678901234567890"),
        ("false", b"false"),
    ],
)
def test_json_is_stored_as_it_was_sent(value: str, stored: bytes | None) -> None:
    assert parsed(f'{{"value": {value}}}').value == stored


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("{}", r"records\[0\]\.value"),
        ('{"value": 1, "valueBase64": "eA=="}', "given twice"),
        ('{"valueBase64": "%"}', r"valueBase64.*must be base64"),
        ('{"value": 1, "timestamp": -5}', r"timestamp -5"),
    ],
)
def test_a_record_that_is_no_record_is_named(text: str, what: str) -> None:
    with pytest.raises(InvalidError, match=what):
        parsed(text)


def test_lines_are_values_or_records() -> None:
    assert [bytes(value) for value in line_values(b'{"a": 1}\r\n\n"x"\n3')] == [b'{"a": 1}', b'"x"', b"3"]
    found = line_records(b'{"key": "k", "value": 1}\n{"valueBase64": "%s"}\n' % b64encode(b"\xff"))
    assert [to_record(0, each, NOW_MS)[2:4] for each in found] == [(b"k", b"1"), (None, b"\xff")]


@pytest.mark.parametrize("body", [b"1,2\n", b'{"a":\n1', b"\xff\n"])
def test_lines_that_are_no_json_are_refused(body: bytes) -> None:
    with pytest.raises(InvalidError, match="body"):
        line_values(body)


@pytest.mark.parametrize(
    "body", [b'{"value": "\xff"}', b'{"value": 1, "key": "\xff"}', b'{"value": 1, "headers": {"h": "\xff"}}']
)
def test_text_that_is_no_utf8_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidError, match=r"(utf|UTF)-8"):
        to_record(0, line_records(body)[0], NOW_MS)
