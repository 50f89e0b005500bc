"""docs/pipelines.md is true: its Python runs, its tables are the code's."""

import io
import json
import re
from contextlib import redirect_stdout
from pathlib import Path
from typing import get_args

import pytest
from tests.support.pipeline_values import arrow_rows, records_of

from holdfast.clickhouse.types import parse_type
from holdfast.pipeline.catalog.parts import encode_part, read_part
from holdfast.pipeline.catalog.settings import CatalogSettings
from holdfast.pipeline.filters import parser
from holdfast.pipeline.filters.functions import FUNCTIONS
from holdfast.pipeline.filters.lexer import TEXT_MAX as FILTER_MAX
from holdfast.pipeline.filters.lexer import FilterError
from holdfast.pipeline.filters.parser import parse
from holdfast.pipeline.mapping import drift, type_inference
from holdfast.pipeline.mapping.coercion import make_coercion_plan
from holdfast.pipeline.model.column_mapping import Column, Mapping, read_mapping
from holdfast.pipeline.model.field_paths import parse_path
from holdfast.pipeline.service.status import State
from holdfast.pipeline.sinks.clickhouse.statements import DLQ_SUFFIX, REPLAYED_SUFFIX

TEXT = (Path(__file__).parents[2] / "docs" / "pipelines.md").read_text()


def rows(head: str) -> list[list[str]]:
    """The table under a head, cell by cell."""
    lines = TEXT.split(f"{head}\n", 1)[1].splitlines()[1:]
    cut = next((number for number, line in enumerate(lines) if not line.startswith("|")), len(lines))
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines[:cut]]


def quoted(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_its_python_runs_and_shows_a_table_and_a_row() -> None:
    pytest.importorskip("pyarrow")
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    with redirect_stdout(io.StringIO()) as said:
        exec(code, {})
    assert "CREATE TABLE IF NOT EXISTS `default`.`shop_orders`" in said.getvalue()
    assert "'_offset': 41" in said.getvalue()
    assert "'_offset': 42" not in said.getvalue()


@pytest.mark.parametrize(("type_cell", "value_cell", "stored"), rows("| type | value | stored |"))
def test_the_examples_of_coercion(type_cell: str, value_cell: str, stored: str) -> None:
    pytest.importorskip("pyarrow")
    from holdfast.pipeline.mapping.arrow_columns import coerce_all

    mapping = Mapping((Column("a", "a", quoted(type_cell)[0]),))
    found = coerce_all(make_coercion_plan(mapping), records_of({"a": json.loads(quoted(value_cell)[0])}))
    if stored.startswith("refused: "):
        ((_, refused),) = found.refused
        assert refused.refusals[0].rule == stored.removeprefix("refused: ")
    else:
        assert str(arrow_rows(found.batch)[0][0]) == quoted(stored)[0]


def test_the_types_are_those_that_parse() -> None:
    written = [text for cell, _ in rows("| type | values |") for text in quoted(cell)]
    for text in written:
        form = text.replace("(P, S)", "(9, 2)").replace("(N", "(3").replace("Zone", "UTC").replace("(K", "(UInt8")
        of = "String" if form.startswith("LowCardinality") else "Int8"
        parse_type(re.sub(r"\bT\b", of, form))


def test_the_paths_are_paths() -> None:
    for cell, _ in rows("| path | what it is |"):
        for text in quoted(cell):
            assert str(parse_path(text)) == text


def test_the_mapping_is_one() -> None:
    (text,) = re.findall(r"```json\n(.*?)```", TEXT, re.DOTALL)
    assert read_mapping(text).columns[0].column == "user_name"


def test_the_policies_are_all() -> None:
    assert [quoted(cell)[0] for cell, _ in rows("| policy | decision |")] == list(drift.POLICIES)


def test_the_functions_are_all() -> None:
    written = [text.partition("(")[0] for cell, _ in rows("| function | what it gives |") for text in quoted(cell)]
    assert sorted(written) == sorted(FUNCTIONS)


def test_the_limits_are_those() -> None:
    assert f"{FILTER_MAX:,} characters, {parser.NODES_MAX:,} words and signs, {parser.DEPTH_MAX} levels" in TEXT
    assert f"more than {drift.NEW_COLUMNS_MAX} at once" in TEXT
    assert f"with {type_inference.LOW_VALUES_MIN} values or more, at most {type_inference.LOW_DISTINCT_MAX}" in TEXT
    assert f"objects with {type_inference.MAP_KEYS_MIN} or more keys" in TEXT


def test_the_filters_in_the_text_are_read() -> None:
    parse(re.findall(r'"expression": "([^"]+)"', TEXT)[0])
    parse(re.findall(r"`(matches\(zip[^`]+)`", TEXT)[0])
    with pytest.raises(FilterError, match="line 1, column 11: expected a value or field, found the end"):
        parse("amount >  ")


def test_the_defaults_of_parts_are_those_that_are_applied() -> None:
    given: dict[str, tuple[str, dict[str, object]]] = {
        "source": ("source", {"topic": "t"}),
        "sink": ("sink", {}),
        "clickhouse": ("sink", {}),
        "drift": ("drift", {}),
        "iceberg": ("sink", {"kind": "iceberg", "table": "a.b", "catalogUri": "sqlite:///c", "warehouse": "/w"}),
    }
    for part, field, default, _ in rows("| part | field | default | what it is |"):
        name, value = given[part]
        stored = json.loads(encode_part(read_part(name, value)))
        assert quoted(field)[0] in stored
        if default:
            assert stored[quoted(field)[0]] == json.loads(quoted(default)[0])


def test_the_limits_of_the_catalog_are_those() -> None:
    limits = CatalogSettings()
    assert f"The newest {limits.recipes_kept} revisions" in TEXT
    assert f"`replicas` (1 to {limits.replicas_max})" in TEXT
    assert f"at most {limits.backfills_max} at a time" in TEXT
    assert (f"`{{table}}{DLQ_SUFFIX}`" in TEXT, f"`{{table}}{REPLAYED_SUFFIX}`" in TEXT) == (True, True)
    assert set(quoted(" ".join(row[0] for row in rows("| state | when |")))) == set(get_args(State))
