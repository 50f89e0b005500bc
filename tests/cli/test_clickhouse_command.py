"""`holdfast clickhouse query`: it finds the server's ClickHouse by its data directory, or asks the one it is given."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.command_line import Run

from holdfast.cli.clickhouse_access import ClickHouseAccess
from holdfast.cli.main import _with_subcommand
from holdfast.testing.clickhouse import ClickHouseServer, clickhouse_server
from holdfast.vocabulary.errors import InvalidError


@pytest.fixture(scope="module")
def clickhouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClickHouseServer]:
    """One whose user is called as that of a server's own."""
    pytest.importorskip("chdb")
    with clickhouse_server(tmp_path_factory.mktemp("clickhouse"), user="default") as server:
        yield server


def as_server(data: Path, clickhouse: ClickHouseServer) -> Path:
    """A data directory as a server leaves it."""
    (data / "clickhouse").mkdir(parents=True)
    (data / "clickhouse" / "password").write_text(clickhouse.password + "\n")
    address = clickhouse.url.rpartition("@")[2]
    (data / "addresses.json").write_text(json.dumps({"kafka": "127.0.0.1:9092", "clickhouse": address}))
    return data


def test_a_statement_is_run_in_the_clickhouse_of_a_server(
    run: Run, tmp_path: Path, clickhouse: ClickHouseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = as_server(tmp_path / "data", clickhouse)
    shown = run("clickhouse", "query", "SELECT 41 + 1 AS n", "--data", str(data))
    assert (shown.code, "42" in shown.text, "n" in shown.text) == (0, True, True)
    monkeypatch.setenv("HOLDFAST_DATA", str(data))
    rows = run("clickhouse", "query", "SELECT number AS n FROM numbers(3)", "--json").rows
    assert [int(row["n"]) for row in rows] == [0, 1, 2]
    assert run("clickhouse", "query", "-", "--format", "CSV", stdin=b"SELECT 7").text == "7\n"
    wrong = run("clickhouse", "query", "SELECT FROM nowhere")
    assert (wrong.code, "Exception" in wrong.err, clickhouse.password in wrong.err) == (2, True, False)


def test_another_clickhouse_is_given_by_its_url(run: Run, clickhouse: ClickHouseServer) -> None:
    done = run("clickhouse", "query", "SELECT 1", "--clickhouse", clickhouse.url, "--format", "TSV")
    assert (done.code, done.text) == (0, "1\n"), done.err


def test_without_a_server_it_says_how_to_start_one(run: Run, tmp_path: Path) -> None:
    done = run("clickhouse", "query", "SELECT 1", "--data", str(tmp_path / "none"))
    assert (done.code, "holdfast serve" in done.err) == (3, True)
    (tmp_path / "addresses.json").write_text('{"kafka": "127.0.0.1:9092"}')
    done = run("clickhouse", "query", "SELECT 1", "--data", str(tmp_path))
    assert (done.code, "it is off" in done.err) == (3, True)
    done = run("clickhouse", "query", "SELECT 1", "--clickhouse", "http://default:secret@127.0.0.1:1")
    assert (done.code, "secret" in done.err) == (3, False)
    for wrong in ("ftp://x", "127.0.0.1:8123", "http://h:x"):
        assert run("clickhouse", "query", "SELECT 1", "--clickhouse", wrong).code == 2


def test_the_password_is_not_shown() -> None:
    access = ClickHouseAccess.from_url("https://me:secret@db/metrics")
    assert (access.url, access.user, access.password) == ("https://db:8443/metrics", "me", "secret")
    assert "secret" not in repr(access)
    with pytest.raises(InvalidError) as refused:
        ClickHouseAccess.from_url("me:secret@db")
    assert "secret" not in str(refused.value)


def test_serve_is_what_it_does_without_a_subcommand() -> None:
    assert _with_subcommand(["clickhouse", "--data", "d"]) == ["clickhouse", "serve", "--data", "d"]
    for unchanged in (["clickhouse"], ["clickhouse", "--help"], ["clickhouse", "query", "x"], ["topic", "--x"], []):
        assert _with_subcommand(unchanged) == unchanged
