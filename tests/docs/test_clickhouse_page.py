"""docs/clickhouse.md is true: its commands and its Python run against the embedded ClickHouse."""

import re
import subprocess
from pathlib import Path

import pytest

from holdfast.testing.clickhouse import ClickHouseServer

PAGE = (Path(__file__).parents[2] / "docs" / "clickhouse.md").read_text()


@pytest.fixture
def folder(clickhouse: ClickHouseServer, tmp_path: Path) -> Path:
    """Where the page's commands find the password."""
    (tmp_path / "clickhouse").mkdir()
    (tmp_path / "clickhouse" / "password").write_text(clickhouse.password + "\n")
    return tmp_path


def here(snippet: str, server: ClickHouseServer) -> str:
    """A snippet for this server instead of the page's."""
    return (
        snippet.replace("127.0.0.1:8123", f"{server.host}:{server.port}")
        .replace("port=8123", f"port={server.port}")
        .replace("user=default", f"user={server.user}")
        .replace('username="default"', f'username="{server.user}"')
    )


def test_curl_gets_what_the_page_shows(clickhouse: ClickHouseServer, folder: Path) -> None:
    version, error = (
        subprocess.run(here(line, clickhouse), shell=True, cwd=folder, capture_output=True, check=True).stdout.decode()
        for line in re.findall(r"^curl .*$", PAGE, re.MULTILINE)
    )
    assert version.strip() == clickhouse.query("SELECT version()").decode().strip()
    for line in re.findall(r"```\n(HTTP/1\.1 .*?)```", PAGE, re.DOTALL)[0].split("\n"):
        assert line.replace("default:", f"{clickhouse.user}:") in error


def test_the_python_connects(clickhouse: ClickHouseServer, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("clickhouse_connect")
    monkeypatch.chdir(folder)
    names: dict[str, object] = {}
    (snippet,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(f"{here(snippet, clickhouse)}\nrows = client.query('SELECT 1').result_rows\nclient.close()", names)
    assert names["rows"] == [(1,)]
