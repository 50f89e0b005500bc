"""docs/python-client.md: its programs run, one after the other, against one server."""

import re
import subprocess
import sys
from pathlib import Path

from tests.support.server_process import BROKER_ONLY, ServeProcess, environment, started

PAGE = Path(__file__).parents[2] / "docs" / "python-client.md"
BLOCK = re.compile(r"(<!-- not run: [^\n]+ -->\n)?```python\n(.*?)```", re.DOTALL)


def test_its_programs_run(tmp_path: Path) -> None:
    programs = [code for skipped, code in BLOCK.findall(PAGE.read_text()) if not skipped]
    assert len(programs) == 2
    node = ServeProcess(tmp_path / "node", *BROKER_ONLY)
    with started(node):
        for code in programs:
            argv = [sys.executable, "-W", "error", "-c", code.replace("127.0.0.1:9092", node.kafka)]
            done = subprocess.run(argv, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=100)
            assert done.returncode == 0, done.stderr
