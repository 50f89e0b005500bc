"""examples/celery_shop.py runs as its docstring says, with the `celery` command."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.server_process import ServeProcess, environment
from tests.support.waiting import until

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.long
def test_the_example_runs(node: ServeProcess, tmp_path: Path) -> None:
    env = environment(CELERY_BROKER_URL=f"holdfast://{node.kafka}")
    sent = subprocess.run(
        [sys.executable, str(EXAMPLES / "celery_shop.py"), "0.1"], env=env, capture_output=True, text=True, timeout=100
    )
    assert (sent.returncode, sent.stdout) == (0, "sent: they are durable\n"), sent.stderr
    log = tmp_path / "log"
    argv = [sys.executable, "-m", "celery", "-A", "celery_shop", "worker", "-c", "1"]
    with log.open("wb") as out:
        worker = subprocess.Popen(argv, cwd=EXAMPLES, env=env, stdout=out, stderr=out)
    try:
        words = ("hello the boss", "hello somebody", "hello later", "report made")
        until(lambda: all(each in log.read_text() for each in words), what=log.read_text)
    finally:
        worker.terminate()
        assert worker.wait(100) == 0
    text = log.read_text()
    assert text.index("hello the boss") < text.index("hello somebody")
