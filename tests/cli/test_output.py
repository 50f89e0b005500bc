"""Tables fit 80 columns: horizontal where every cell fits, vertical where not, and never cut."""

import pytest

from holdfast.cli.output import console, print_table, table
from holdfast.cli.pipeline.status import owner_name


def printed(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


@pytest.fixture(autouse=True)
def eighty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def test_a_narrow_table_is_horizontal(capsys: pytest.CaptureFixture[str]) -> None:
    print_table("topics", [{"name": "orders", "partitions": 6}], ("name", "partitions"))
    lines = printed(capsys)
    assert lines[0].strip() == "topics"
    assert any("orders" in line and "6" in line for line in lines)


def test_a_wide_table_is_vertical_and_complete(capsys: pytest.CaptureFixture[str]) -> None:
    columns = [f"column_{number}" for number in range(11)]
    row: dict[str, object] = {column: f"{column}-{'x' * 12}" for column in columns}
    row["column_3"] = "y" * 200
    print_table("segments", [row, row], columns)
    lines = printed(capsys)
    assert max(map(len, lines)) <= 80
    assert "…" not in "".join(lines)
    joined = "".join(line.strip() for line in lines)
    assert joined.count("y") >= 400
    for column in columns:
        assert sum(line.strip().startswith(f"{column} ") for line in lines) == 2


def test_no_rows_say_so(capsys: pytest.CaptureFixture[str]) -> None:
    print_table("groups", [], ("group",))
    assert printed(capsys) == ["groups: none"]


def test_a_cell_is_text_and_nothing_in_it_is_obeyed(capsys: pytest.CaptureFixture[str]) -> None:
    print_table("t", [{"a": "[red]x[/red] \x1b[31m\n"}], ("a",))
    text = "\n".join(printed(capsys))
    assert "[red]x[/red]" in text
    assert "\x1b" not in text
    assert "\\x1b[31m␤" in text


def test_lists_none_and_booleans_are_readable(capsys: pytest.CaptureFixture[str]) -> None:
    console().print(table("t", [{"a": [1, 2], "b": None, "c": True}], ("a", "b", "c"), width=80))
    text = "\n".join(printed(capsys))
    assert "1, 2" in text
    assert "–" in text
    assert "true" in text


def test_a_partitions_owner_is_a_slot_and_its_worker_not_an_id() -> None:
    assert owner_name("d39fedf6e3b18b65f7da.1.0", {"0": "agent-a"}) == "slot 0 on agent-a"
    assert owner_name("d39fedf6e3b18b65f7da.1.3", {}) == "slot 3"
    assert owner_name(None, {}) == "–"
