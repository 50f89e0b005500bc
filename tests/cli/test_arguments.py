"""Arguments are UTF-8, but for files: libraries behind the commands crash on anything else."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.command_line import Run

import holdfast
from holdfast.cli.arguments import environment_text
from holdfast.cli.main import build_parser
from holdfast.vocabulary.errors import InvalidError

NOT_UTF8 = b"\xff".decode(errors="surrogateescape")


@pytest.mark.parametrize(
    "argv",
    [
        ["topic", "describe", "{}"],
        ["topic", "delete", "orders", "{}"],
        ["topic", "config", "t", "--set", "{}=1"],
        ["consume", "{}"],
        ["consume", "t", "--group", "{}"],
        ["consume", "t", "--format", "{}"],
        ["produce", "{}"],
        ["produce", "t", "--header", "{}=x"],
        ["group", "describe", "{}"],
        ["group", "delete", "{}"],
        ["pipeline", "show", "{}"],
        ["topic", "list", "--bootstrap", "{}"],
        ["topic", "list", "-X", "client.id={}"],
        ["store", "check", "{}://"],
        ["serve", "--set", "agent.zone={}"],
        ["serve", "--data", "{}"],
        ["wal", "inspect", "{}"],
    ],
)
def test_a_text_that_is_not_utf8_is_refused(capsys: pytest.CaptureFixture[str], argv: list[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        build_parser(argv).parse_args([word.format(NOT_UTF8) for word in argv])
    assert refused.value.code == 2
    assert "must be valid UTF-8" in capsys.readouterr().err


@pytest.mark.parametrize(
    "argv",
    [
        ["produce", "t", "--file", "{}"],
        ["pipeline", "create", "-f", "{}"],
        ["pipeline", "list", "--api-key-file", "{}"],
        ["serve", "--config", "{}"],
        ["segment", "inspect", "{}"],
        ["store", "backup", "{}"],
        ["text", "127.0.0.1:1", "PUT", "logs", "{}"],
    ],
)
def test_a_file_and_a_word_of_the_text_protocol_may_be_any_bytes(argv: list[str]) -> None:
    build_parser(argv).parse_args([word.format(NOT_UTF8) for word in argv])


def test_a_file_with_such_a_name_is_read(run: Run, tmp_path: Path) -> None:
    file = tmp_path / NOT_UTF8
    file.write_text("sauce: {}\n")
    done = run("pipeline", "create", "-f", str(file))
    assert done.code == 2
    assert "unknown key 'sauce'" in done.err


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_backup_to_such_a_file_is_checked_and_shown(run: Run, tmp_path: Path, form: list[str]) -> None:
    store = f"sqlite:///{tmp_path}/work.db"
    asyncio.run(_create(store))
    done = run("store", "backup", str(tmp_path / NOT_UTF8), "--store", store, *form)
    assert done.code == 0, done.err


async def _create(store: str) -> None:
    async with holdfast.connect(store):
        pass


def test_such_a_setting_in_the_environment_is_refused(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_AGENT_ZONE", NOT_UTF8)
    done = run("config", "show", "--json")
    assert done.code == 2
    assert "HOLDFAST_AGENT_ZONE" in done.err


def test_so_is_a_working_directory_in_which_data_would_be(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / NOT_UTF8).mkdir()
    monkeypatch.chdir(tmp_path / NOT_UTF8)
    assert run("config", "show").code == 2
    assert run("config", "show", "--data", str(tmp_path)).code == 0


def test_such_an_argument_crashes_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "topic", "describe", b"\xff"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert "argument NAME: must be valid UTF-8" in done.stderr


@pytest.mark.parametrize("variable", ["HOLDFAST_BOOTSTRAP", "HOLDFAST_HTTP_URL", "HOLDFAST_API_KEY"])
def test_so_is_a_variable_that_is_no_path(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, NOT_UTF8)
    with pytest.raises(InvalidError, match=f"{variable}.*UTF-8"):
        environment_text(variable)


@pytest.mark.parametrize("host", ["a" * 64, "a..b"])
def test_a_host_that_no_resolver_takes_is_refused(run: Run, host: str) -> None:
    for argv in (
        ["topic", "list", "--bootstrap", host],
        ["pipeline", "list", "--http", f"http://{host}"],
        ["text", f"{host}:9095", "x"],
    ):
        done = run(*argv)
        assert (done.code, "Traceback" in done.err) == (2, False)


@pytest.mark.parametrize("argv", [["pipeline", "create", "-f"], ["config", "show", "--config"]])
def test_a_file_that_never_ends_is_refused(run: Run, argv: list[str]) -> None:
    done = run(*argv, "/dev/zero")
    assert done.code == 2
    assert "4194304 bytes" in done.err
