"""Statements taken apart without an engine."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.clickhouse.embedded.errors import QueryError
from holdfast.clickhouse.embedded.statement import (
    INPUT_TABLE,
    INSERT,
    KILL,
    OTHER,
    SELECT,
    parse_statement,
    select_header_only,
)
from holdfast.vocabulary.clock import RealClock


@pytest.mark.parametrize(
    ("text", "format_name", "data"),
    [
        (b"INSERT INTO t FORMAT CSV\n1,2\n", "CSV", b"1,2\n"),
        (b"INSERT INTO t FORMAT CSV 1,2\n", "CSV", b"1,2\n"),
        (b"insert into t format TSV\r\n\n1", "TSV", b"\n1"),
        (
            b"INSERT INTO d.t (a, `format`) SETTINGS async_insert = 0 FORMAT RowBinary\n\x01'\x00",
            "RowBinary",
            b"\x01'\x00",
        ),
        (b"/* FORMAT x */ INSERT INTO t -- FORMAT y\n FORMAT Native\n\xff\xff", "Native", b"\xff\xff"),
        (b"INSERT INTO format FORMAT TSV\n1", "TSV", b"1"),
        (b"INSERT INTO t VALUES", "Values", b""),
        (b"INSERT INTO t (a) VALUES ;", "Values", b""),
        (b"INSERT INTO t", "Values", b""),
    ],
)
def test_an_insert_ends_where_its_data_begin(text: bytes, format_name: str, data: bytes) -> None:
    found = parse_statement(text)
    assert (found.kind, found.takes_data, found.format, found.data) == (INSERT, True, format_name, data)
    assert b"FORMAT" not in found.text.replace(b"FORMAT x", b"").replace(b"FORMAT y", b"")


@pytest.mark.parametrize(
    "text", [b"INSERT INTO t VALUES (1)", b"INSERT INTO t SELECT 1", b"INSERT INTO t SELECT 1 FORMAT Null"]
)
def test_an_insert_with_its_own_rows_is_left_to_the_engine(text: bytes) -> None:
    found = parse_statement(text)
    assert (found.takes_data, found.text) == (False, text)


def test_input_becomes_a_table() -> None:
    found = parse_statement(
        b"INSERT INTO t (a) SELECT a FROM input('a Int64, b Enum(\\'x\\' = 1)') WHERE 1 FORMAT TSV\n1\tx\n"
    )
    assert found.text == b"INSERT INTO t (a) SELECT a FROM " + INPUT_TABLE + b" WHERE 1 "
    assert (found.structure, found.format, found.data) == (b"a Int64, b Enum('x' = 1)", "TSV", b"1\tx\n")


@pytest.mark.parametrize(
    "text",
    [
        b"INSERT INTO t SELECT * FROM input('a Int8')",
        b"INSERT INTO t SELECT * FROM input(a) FORMAT TSV\n1",
        b"SELECT 1; DROP TABLE t",
        b"INSERT INTO t SELECT 1; DROP TABLE t",
    ],
)
def test_what_would_store_nothing_or_too_much_is_refused(text: bytes) -> None:
    with pytest.raises(QueryError):
        parse_statement(text)


@pytest.mark.parametrize(
    ("text", "kind", "format_name"),
    [
        (b"SELECT 1", SELECT, ""),
        (b"SELECT format FROM t FORMAT JSON", SELECT, "JSON"),
        (b"SELECT 'FORMAT x' FORMAT CSV;", SELECT, "CSV"),
        (b"SELECT 1 FORMAT TSV SETTINGS max_threads = 1", SELECT, "TSV"),
        (b"(SELECT 1 FORMAT x)", SELECT, ""),
        (b"WITH 1 AS x SELECT x", SELECT, ""),
        (b"SHOW TABLES FORMAT JSONEachRow", OTHER, "JSONEachRow"),
        (b"KILL QUERY WHERE 1 SYNC FORMAT TSV", KILL, "TSV"),
        (b"CREATE TABLE t (a Int8) ENGINE = Memory", OTHER, ""),
    ],
)
def test_the_kind_and_format_of_a_statement(text: bytes, kind: str, format_name: str) -> None:
    found = parse_statement(text)
    assert (found.kind, found.format) == (kind, format_name)


@given(st.binary(max_size=200) | st.text(alphabet="'\"`$#-/*();,. aFORMAT\n\\", max_size=200).map(str.encode))
def test_any_text_is_parsed_or_refused(text: bytes) -> None:
    with suppress(QueryError):
        parse_statement(text)
    with suppress(QueryError):
        parse_statement(b"INSERT INTO t " + text)


@pytest.mark.parametrize("piece", [b"$a$ ", b"$", b"'", b"/*", b"--\n", b"((((", b"`", b"a.b(", b"# ", b"0x"])
def test_a_long_statement_is_read_in_linear_time(piece: bytes) -> None:
    clock = RealClock()
    began_ms = clock.boot_ms()
    with suppress(QueryError):
        parse_statement(b"SELECT " + piece * (400_000 // len(piece)))
    assert clock.boot_ms() - began_ms < 30_000


def test_a_select_without_rows_keeps_its_settings() -> None:
    made = select_header_only(b"SELECT 1 AS a FORMAT Native SETTINGS max_threads = 1; -- end")
    assert made.split() == b"SELECT * FROM (SELECT 1 AS a SETTINGS max_threads = 1 ) LIMIT 0".split()
