"""Records from lines of text; what is wrong is said with the line's number."""

import pytest

from holdfast.cli.kafka.record_parser import OutgoingRecord, line_parser, unescape
from holdfast.vocabulary.errors import InvalidError


def parse(
    line: bytes,
    *,
    json_lines: bool = False,
    key_separator: str | None = None,
    null_marker: str | None = None,
    headers: tuple[tuple[str, str], ...] = (),
) -> OutgoingRecord:
    made = line_parser(json_lines=json_lines, key_separator=key_separator, null_marker=null_marker, headers=headers)
    return made(line, 7)


def test_a_line_is_a_value_as_it_is() -> None:
    assert parse(b"\xff a:b \r") == OutgoingRecord(value=b"\xff a:b \r")
    assert parse(b"") == OutgoingRecord(value=b"")


def test_the_first_separator_ends_the_key() -> None:
    assert parse(b"a:b:c", key_separator=":") == OutgoingRecord(key=b"a", value=b"b:c")
    assert parse(b"a\tb", key_separator=r"\t") == OutgoingRecord(key=b"a", value=b"b")
    assert parse(b":", key_separator=":") == OutgoingRecord(key=b"", value=b"")


def test_a_marker_stands_for_null() -> None:
    assert parse(b"NULL", null_marker="NULL") == OutgoingRecord(value=None)
    assert parse(b"NULL:NULL", key_separator=":", null_marker="NULL") == OutgoingRecord()
    assert parse(b"NULL", null_marker=None) == OutgoingRecord(value=b"NULL")


def test_headers_of_the_command_line_come_after_the_lines_own() -> None:
    assert parse(b"v", headers=(("a", "1"),)).headers == [("a", b"1")]
    assert parse(b'{"headers":{"b":"2"}}', json_lines=True, headers=(("a", "1"),)).headers == [("b", b"2"), ("a", b"1")]


@pytest.mark.parametrize(
    ("line", "record"),
    [
        (b"{}", OutgoingRecord()),
        (b'{"value":"v"}', OutgoingRecord(value=b"v")),
        (b'{"key":null,"value":null}', OutgoingRecord()),
        (b'{"key":"k","value":""}', OutgoingRecord(key=b"k", value=b"")),
        (b'{"value":"\\u00fc\\n"}', OutgoingRecord(value="ü\n".encode())),
        (b'{"value":{"a": [1, 2.50]}}', OutgoingRecord(value=b'{"a": [1, 2.50]}')),
        (b'{"key":12345678901234567890,"value":true}', OutgoingRecord(key=b"12345678901234567890", value=b"true")),
        (b'{"key_base64":"/w==","value_base64":""}', OutgoingRecord(key=b"\xff", value=b"")),
        (b'{"partition":3,"timestamp":17}', OutgoingRecord(partition=3, timestamp_ms=17)),
        (
            b'{"partition":2147483647,"timestamp":9223372036854775807}',
            OutgoingRecord(partition=2**31 - 1, timestamp_ms=2**63 - 1),
        ),
        (
            b'{"headers":[["a","1"],["a",null],["b",{"base64":"/w=="}]]}',
            OutgoingRecord(headers=[("a", b"1"), ("a", None), ("b", b"\xff")]),
        ),
        (b'{"topic":"t","offset":5,"timestamp_type":"create","value":"v"}', OutgoingRecord(value=b"v")),
    ],
)
def test_a_json_line_says_all_of_a_record(line: bytes, record: OutgoingRecord) -> None:
    assert parse(line, json_lines=True) == record


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"hello", "malformed"),
        (b"", "malformed|truncated"),
        (b"[1]", "object"),
        (b'{"valeu":"v"}', "valeu"),
        (b'{"value":"v"', "truncated"),
        (b'{"value_base64":"%"}', "base64"),
        (b'{"value":"v","value_base64":"dg=="}', "the same as text and as base64"),
        (b'{"partition":-1}', "partition -1: must be between 0 and 2147483647"),
        (b'{"partition":2147483648}', "partition 2147483648: must be between"),
        (b'{"timestamp":9223372036854775808}', "timestamp 9223372036854775808: must be between"),
        (b'{"timestamp":99999999999999999999}', "timestamp"),
        (b'{"timestamp":"now"}', "timestamp"),
        (b'{"headers":[["a",1]]}', "a header is"),
        (b'{"headers":[["a"]]}', "headers"),
        (b'{"value":"\xff"}', "line 7"),
    ],
)
def test_a_wrong_json_line_is_named(line: bytes, says: str) -> None:
    with pytest.raises(InvalidError, match=rf"line 7(?s:.)*({says})|({says})"):
        parse(line, json_lines=True)


def test_a_line_without_separator_is_named() -> None:
    with pytest.raises(InvalidError, match="invalid line 7 'no key': must be a key, ':', and a value"):
        parse(b"no key", key_separator=":")


def test_a_long_line_is_not_repeated_in_full() -> None:
    with pytest.raises(InvalidError) as refused:
        parse(b"x" * 10_000, json_lines=True)
    assert len(str(refused.value)) < 250


@pytest.mark.parametrize(
    ("text", "meant"),
    [("a", "a"), (r"\t", "\t"), (r"\n\r\0", "\n\r\0"), (r"\x1F|", "\x1f|"), (r"\\t", "\\t"), (r"\\\t", "\\\t")],
)
def test_backslashes_stand_for_what_a_shell_cannot_type(text: str, meant: str) -> None:
    assert unescape(text, "--key-separator") == meant


@pytest.mark.parametrize("text", [r"\q", r"\x1", "a\\b"])
def test_an_unknown_backslash_is_refused(text: str) -> None:
    with pytest.raises(InvalidError, match="--key-separator"):
        unescape(text, "--key-separator")


def test_an_empty_separator_is_refused() -> None:
    with pytest.raises(InvalidError, match="one character or more"):
        parse(b"v", key_separator="")
