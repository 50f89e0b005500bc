"""The statements and Arrow columns made here, given to a real ClickHouse: chDB in a process of its own, where it is installed."""

import json
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tests.support.clickhouse_values import RECORDS, TABLE, VALUES

from holdfast.clickhouse.quoting import quote_identifier, quote_literal
from holdfast.pipeline.mapping.arrow_columns import coerce_all, with_provenance
from holdfast.pipeline.mapping.coercion import make_coercion_plan
from holdfast.pipeline.mapping.ddl import create_table
from holdfast.pipeline.mapping.table_diff import ExistingColumn, ExistingTable, compare_table
from holdfast.pipeline.model.column_mapping import Column, Mapping
from holdfast.pipeline.sinks.clickhouse.statements import input_structure

pa = pytest.importorskip("pyarrow")
pytestmark = pytest.mark.skipif(find_spec("chdb") is None, reason="chdb is not installed")

ASK = """
import json, sys
from chdb import session
opened = session.Session(sys.argv[1])
json.dump([opened.query(statement, "JSONCompact").bytes().decode() for statement in json.load(sys.stdin)], sys.stdout)
"""


def ask(directory: Path, *statements: str) -> list[Any]:
    argv = [sys.executable, "-c", ASK, str(directory)]
    done = subprocess.run(argv, input=json.dumps(statements), capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return [json.loads(answer)["data"] if answer else None for answer in json.loads(done.stdout)]


def test_every_type_arrives_as_it_was_meant(tmp_path: Path) -> None:
    batch = with_provenance(coerce_all(make_coercion_plan(TABLE.mapping), RECORDS), RECORDS, generation=2)
    with pa.OSFile(str(tmp_path / "rows"), "wb") as file, pa.ipc.new_stream(file, batch.schema) as stream:
        stream.write_batch(batch)
    names = ", ".join(map(quote_identifier, batch.schema.names))
    kinds = {name: str(kind) for name, kind in TABLE.columns().items()}
    structure = input_structure({name: kinds[name] for name in batch.schema.names})
    source = f"file({quote_literal(str(tmp_path / 'rows'))}, 'ArrowStream', {quote_literal(structure)})"
    *_, rows = ask(
        tmp_path / "db",
        f"CREATE DATABASE {quote_identifier(TABLE.database)}",
        create_table(TABLE),
        f"INSERT INTO {TABLE.full_name} ({names}) SELECT {names} FROM {source}",
        f"SELECT {names} FROM {TABLE.full_name}",
    )
    stored = dict(zip(batch.schema.names, rows[0], strict=True))
    assert stored.pop("wide") == pytest.approx(1.2345678901234567e39)
    assert stored == {name: value for name, (_, _, value) in VALUES.items() if name != "wide"} | {
        "_generation": 2, "_topic": "t", "_partition": 1, "_offset": 7,
    }  # fmt: skip


def test_a_diff_that_was_carried_out_leaves_nothing(tmp_path: Path) -> None:
    wider = {"int8": "Int32", "array": "Array(Nullable(String))", "text": "Nullable(String)", "float32": "Float64"}
    columns = tuple(
        Column(column.field_path, column.column, wider.get(column.column, column.type))
        for column in TABLE.mapping.columns
    )
    wanted = replace(TABLE, mapping=Mapping((*columns, Column("new", "new", "Map(String, Int8)"))))
    made = [f"CREATE DATABASE {quote_identifier(TABLE.database)}", create_table(TABLE)]
    describe = f"DESCRIBE TABLE {TABLE.full_name}"
    *_, before = ask(tmp_path / "before", *made, describe)
    found = compare_table(wanted, has(before, window=0))
    assert len(found.statements) == 6
    assert not found.blockers
    *_, after = ask(tmp_path / "after", *made, *found.statements, describe)
    left = compare_table(wanted, has(after, window=wanted.window))
    assert not any((left.missing, left.differs, left.extra, left.statements, left.blockers, left.warnings))


def has(described: list[Any], window: int) -> ExistingTable:
    columns = [ExistingColumn(name, text, default) for name, text, default, *_ in described]
    return ExistingTable(
        "ReplacingMergeTree", columns, ("ms", "uint64"), window, arguments=("ns",), partition_by=TABLE.partition_by
    )


def test_texts_are_read_as_they_were_written(tmp_path: Path) -> None:
    texts = ["a'b", "x\\", "\n\t\0\b\fz", "`", "' OR 1=1 --", "日", "\\'", ""]
    answers = ask(tmp_path, *(f"SELECT hex({quote_literal(text)})" for text in texts))
    assert answers == [[[text.encode().hex().upper()]] for text in texts]
