"""docs/how-to/migrate.md: its commands move a cluster from the defaults to PostgreSQL and S3, and everything is there."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.docs.test_snippets import ROOT, SNIPPETS
from tests.support.object_engines.s3 import s3_url
from tests.support.object_engines.seaweedfs import SeaweedServer
from tests.support.server_process import BROKER_ONLY, ServeProcess, environment, produce, read, started
from tests.support.store_engines.postgres import PostgresServer

PAGE = "docs/how-to/migrate.md"
COMMANDS = [each.code for each in SNIPPETS if each.page == PAGE and not each.reason]


@pytest.fixture
def target(tmp_path: Path) -> Iterator[dict[str, str]]:
    """What the page calls its database and its bucket."""
    with ExitStack() as stack:
        postgres = stack.enter_context(PostgresServer(tmp_path / "postgres").running())
        s3 = stack.enter_context(SeaweedServer(tmp_path / "s3").running())
        yield {
            "postgresql://holdfast@db/holdfast": postgres.url(schema="moved"),
            "s3://events/holdfast?region=eu-central-1": s3_url(s3.port, "moved"),
        }


def run(script: str, folder: Path) -> None:
    env = environment(PYTHONPATH=os.pathsep.join([str(ROOT / "src"), str(ROOT)]))
    script = f'holdfast() {{ "{sys.executable}" -m holdfast "$@"; }}\n{script}'
    done = subprocess.run(["sh", "-ec", script], cwd=folder, env=env, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_commands_of_the_page_move_a_cluster(tmp_path: Path, target: dict[str, str]) -> None:
    *moving, serving = COMMANDS
    assert serving.startswith("holdfast serve --data holdfast-data --store ")
    values = [f"{n}" for n in range(50)]
    node = ServeProcess(tmp_path, *BROKER_ONLY)
    node.data = tmp_path / "holdfast-data"
    with started(node):
        produce(node.kafka, "orders", *values)
        for command in moving:
            for shown, real in target.items():
                command = command.replace(shown, real)
            run(command, tmp_path)
    flags = [target[word] for word in target]
    moved = ServeProcess(tmp_path, *BROKER_ONLY, "--store", flags[0], "--objects", flags[1])
    moved.data = node.data
    with started(moved):
        assert read(moved.kafka, "orders", len(values)) == values
        assert moved.terminate() == 0
