"""Records as text: nothing is lost in JSON, nothing reaches the terminal as a command."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.cli.kafka.record_format import (
    ConsumedRecord,
    bytes_as_text,
    format_date,
    format_json,
    format_raw,
    line_formatter,
    template_formatter,
)
from holdfast.cli.kafka.record_parser import line_parser
from holdfast.vocabulary.errors import InvalidError

RECORD = ConsumedRecord("orders", 2, 41, 1_700_000_000_250, "create", b"k", b"v", [("a", b"1"), ("b", None)])


def test_json_has_every_field() -> None:
    assert json.loads(format_json(RECORD)) == {
        "topic": "orders",
        "partition": 2,
        "offset": 41,
        "timestamp": 1_700_000_000_250,
        "timestamp_type": "create",
        "key": "k",
        "value": "v",
        "headers": [["a", "1"], ["b", None]],
    }


def test_json_says_base64_where_it_is_no_text_and_null_where_there_is_nothing() -> None:
    shown = json.loads(format_json(RECORD._replace(key=b"\xff", value=None, headers=[("a", b"\xfe")])))
    assert "key" not in shown
    assert shown["key_base64"] == "/w=="
    assert shown["value"] is None
    assert shown["headers"] == [["a", {"base64": "/g=="}]]


maybe_bytes = st.none() | st.binary(max_size=20) | st.text(max_size=10).map(lambda text: text.encode())


@given(
    key=maybe_bytes,
    value=maybe_bytes,
    headers=st.lists(st.tuples(st.text(max_size=5), maybe_bytes), max_size=3),
    timestamp_ms=st.integers(0, 2**62),
)
def test_what_consume_prints_as_json_produce_reads_as_the_same_record(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]], timestamp_ms: int
) -> None:
    parse = line_parser(json_lines=True, key_separator=None, null_marker=None, headers=[])
    line = format_json(RECORD._replace(key=key, value=value, headers=headers, timestamp_ms=timestamp_ms))
    assert line.count(b"\n") == 1
    read = parse(line.removesuffix(b"\n"), 1)
    assert read == (key, value, headers, RECORD.partition, timestamp_ms)


@given(st.binary(max_size=50))
def test_no_bytes_move_the_cursor(data: bytes) -> None:
    text = bytes_as_text(data)
    assert not [letter for letter in text if (ord(letter) < 32 and letter not in "\t\n") or 127 <= ord(letter) < 160]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"plain", "plain"),
        ("Grüße €".encode(), "Grüße €"),
        (b"two\nlines\tand a tab", "two\nlines\tand a tab"),
        (b"\x1b[31mred\x07", "\\x1b[31mred\\x07"),
        (b"\xff\xfe\x00", "\\xff\\xfe\\x00"),
        ("\x9b31m".encode(), "\\x9b31m"),
        (None, "null"),
        (b"", ""),
    ],
)
def test_text_stays_text_and_the_rest_is_escaped(data: bytes | None, text: str) -> None:
    assert bytes_as_text(data) == text


def test_lines_have_the_value_and_what_else_is_wanted() -> None:
    plain = line_formatter(keys=False, headers=False, separator="\t", null="null")
    assert plain(RECORD) == b"v\n"
    full = line_formatter(keys=True, headers=True, separator=" | ", null="NULL")
    assert full(RECORD) == b"a=1,b=NULL | k | v\n"
    assert full(RECORD._replace(key=None, value=None, headers=[])) == b" | NULL | NULL\n"


def test_raw_is_the_value_itself() -> None:
    assert format_raw(RECORD._replace(value=b"\x1b\xff")) == b"\x1b\xff\n"
    assert format_raw(RECORD._replace(value=None)) == b"\n"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("%t-%p@%o", "orders-2@41"),
        ("%k=%v", "k=v"),
        (r"%h\t%K/%V", "a=1,b=null\t1/1"),
        ("%T %d", "1700000000250 2023-11-14T22:13:20.250Z"),
        ("100%% %%t", "100% %t"),
        (r"\x41\\%v", "A\\v"),
        ("", ""),
    ],
)
def test_a_format_is_filled_in(text: str, shown: str) -> None:
    assert template_formatter(text, null="null")(RECORD) == shown.encode() + b"\n"


def test_null_and_no_timestamp_have_a_look_of_their_own() -> None:
    bare = RECORD._replace(key=None, value=None, timestamp_ms=None, timestamp_type=None)
    assert template_formatter("%k %K %v %V %T %d", null="~")(bare) == "~ -1 ~ -1 -1 –\n".encode()


@pytest.mark.parametrize("text", ["%x", "100%", "%%%", r"\q", "%\n"])
def test_an_unknown_placeholder_is_refused(text: str) -> None:
    with pytest.raises(InvalidError, match="--format"):
        template_formatter(text, null="null")


def test_a_time_beyond_dates_is_shown_as_its_number() -> None:
    assert format_date(2**62) == str(2**62)
