"""docs/cli.md is true: its examples run in order on an empty broker and print what it says."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.broker import Broker
from tests.support.command_line import Run

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "kafka_quickstart.py"


def examples() -> list[tuple[str, str]]:
    """Each command of the page, and what it prints."""
    found: list[tuple[str, str]] = []
    for block in re.findall(r"```console\n(.*?)```", (ROOT / "docs" / "cli.md").read_text(), re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, printed = part.partition("\n")
            found.append((command, printed))
    return found


def files(folder: Path) -> None:
    """Write the page's files: YAML whose first line is a comment with its name."""
    text = (ROOT / "docs" / "cli.md").read_text()
    for content, name in re.findall(r"```yaml\n(# (\S+)\n.*?)```", text, re.DOTALL):
        (folder / name).write_text(content)


def printed_by(command: str, broker: Broker, run: Run) -> str:
    """What the command prints: in this process, or by a shell if it is a pipeline."""
    if "|" not in command:
        done = run(*shlex.split(command)[1:])
        return done.text + done.err
    shell = f'holdfast() {{ {sys.executable} -m holdfast "$@"; }}; {command}'
    return subprocess.run(["sh", "-c", shell], stdout=-1, stderr=subprocess.STDOUT, text=True, timeout=60).stdout


def test_its_examples_print_what_it_says(
    own_broker: Broker, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    files(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_BOOTSTRAP", own_broker.bootstrap)
    assert len(examples()) > 25
    for command, says in examples():
        printed = re.sub(r" +$", "", printed_by(command, own_broker, run), flags=re.MULTILINE)
        expected = ".*?".join(re.escape(part) for part in re.sub(r"… *", "…", says).split("…"))
        assert re.fullmatch(expected, printed, re.DOTALL), f"$ {command}\n{printed}"


def test_the_quickstart_runs(own_broker: Broker) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), own_broker.bootstrap], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "1000 records produced" in done.stdout
    assert "1000 records consumed" in done.stdout
