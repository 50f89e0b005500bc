"""Every Python and shell snippet of README, CONTRIBUTING and docs is executed: here, by the test of its page, or it says why not.

The shell blocks of a page run in order, as one script, against one server that all pages share. A block that cannot run stands
below `<!-- not run: reason -->`; its `holdfast` commands must still parse. Whatever is replaced before a run is in a table here.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from tests.support.server_process import ServeProcess, create_topic, environment, produce, started

from holdfast.cli.main import build_parser

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md"))]
FENCE = re.compile(
    r"(?: *<!-- not run: (?P<reason>[^\n]+?) -->\n+)?^(?P<indent> *)```(?P<language>\w*)\n(?P<code>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
LANGUAGES = ("python", "sh", "console")

# Page and language → the test that runs those blocks.
PAGE_TESTS = {
    ("README.md", "python"): "tests/docs/test_readme.py",
    ("docs/cli.md", "console"): "tests/cli/test_cli_page.py",
    ("docs/clickhouse.md", "python"): "tests/docs/test_clickhouse_page.py",
    ("docs/formats/strm.md", "python"): "tests/log/segments/test_golden.py",
    ("docs/how-to/lost-disk.md", "sh"): "tests/docs/test_lost_disk_page.py",
    ("docs/how-to/migrate.md", "sh"): "tests/docs/test_migrate_page.py",
    ("docs/how-to/spark-to-clickhouse.md", "python"): "tests/docs/test_spark_to_clickhouse_page.py",
    ("docs/grpc.md", "python"): "tests/docs/test_grpc_page.py",
    ("docs/heaps.md", "python"): "tests/docs/test_heaps_page.py",
    ("docs/http.md", "sh"): "tests/docs/test_http_page.py",
    ("docs/kernel.md", "python"): "tests/docs/test_kernel_pages.py",
    ("docs/pipelines.md", "python"): "tests/docs/test_pipelines_page.py",
    ("docs/python-client.md", "python"): "tests/docs/test_python_client_page.py",
    ("docs/registry.md", "python"): "tests/docs/test_kernel_pages.py",
    ("docs/security.md", "sh"): "tests/docs/test_security_page.py",
}

# What a page's script needs before it, and what it leaves behind.
EVENTS = r"""
seq 1 20 | sed 's/.*/{"value": {"id": &, "at": "2026-11-16T08:00:00Z", "user": {"name": "ann"}, "total": "&.50"}}/' > events.json
holdfast topic create TOPIC --partitions 1
holdfast produce TOPIC --json-lines < events.json
"""
STOP = 'kill -TERM "$(cat holdfast-data/lock)"; flock holdfast-data/lock true'
BEFORE = {
    "docs/formats/wal.md": STOP,
    "docs/cli.md": EVENTS.replace("TOPIC", "orders"),
    "docs/pipelines.md": EVENTS.replace("TOPIC", "shop.orders"),
}
COUNT = 'holdfast clickhouse query "SELECT count() FROM orders"'
REMOVE_ORDERS = "holdfast pipeline stop orders; until holdfast pipeline delete orders --yes; do sleep 1; done"
AFTER = {
    "README.md": "holdfast topic delete orders --yes\nholdfast topic delete greetings --yes  # kcat has created it",
    "docs/cli.md": f"{REMOVE_ORDERS}; holdfast topic delete orders --yes",
    "docs/pipelines.md": REMOVE_ORDERS,
    "docs/how-to/backup-and-restore.md": "tar tzf holdfast-backup.tar.gz | grep holdfast-data/store.db",
}
STDIN = {"README.md": "ann:1\nbob:2\nann:3\n"}  # typed into `holdfast produce`
OWN_SERVER = {"docs/how-to/backup-and-restore.md", "docs/formats/wal.md"}  # they stop it
PIPELINES = {"docs/tutorial.md", "docs/cli.md", "docs/pipelines.md"}  # start Spark


@dataclass(frozen=True, slots=True)
class Snippet:
    page: str
    line: int
    language: str
    code: str
    reason: str  # why it is not run

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def snippets_of(page: Path) -> Iterator[Snippet]:
    text = page.read_text()
    for found in FENCE.finditer(text):
        line = text.count("\n", 0, found.start("language")) + 1
        code = re.sub(rf"^{found['indent']}", "", found["code"], flags=re.MULTILINE)
        yield Snippet(str(page.relative_to(ROOT)), line, found["language"], code, found["reason"] or "")


BLOCKS = [snippet for page in PAGES for snippet in snippets_of(page)]
SNIPPETS = [block for block in BLOCKS if block.language in LANGUAGES]
RUN_HERE = [each for each in SNIPPETS if not each.reason and (each.page, each.language) not in PAGE_TESTS]
SHELL_PAGES = sorted({each.page for each in RUN_HERE if each.language == "sh"})
PYTHON = [each for each in RUN_HERE if each.language == "python" and each.page != "docs/spark.md"]
CLIENTS = [each for each in PYTHON if "127.0.0.1:9092" in each.code]


def test_every_block_is_run_or_says_why_not() -> None:
    assert len(SNIPPETS) > 40
    unaccounted = [str(each) for each in RUN_HERE if each.language == "console"]
    assert not unaccounted
    assert not [str(each) for each in BLOCKS if each.language in ("bash", "shell", "py")], "use sh and python"
    commands = re.compile(r"(curl|holdfast [a-z]|python|pip|make|\$) ?")
    hidden = [str(each) for each in BLOCKS if not each.language and not each.reason and commands.match(each.code)]
    assert not hidden, "a block of commands has a language"


def test_a_comment_stands_above_a_block_and_has_a_reason() -> None:
    comments = sum(len(re.findall(r"^ *<!-- not run", page.read_text(), re.MULTILINE)) for page in PAGES)
    assert comments == sum(bool(each.reason) for each in BLOCKS)
    assert all(len(each.reason) > 20 for each in BLOCKS if each.reason)


@pytest.mark.parametrize(("page", "language", "test"), [(*key, test) for key, test in PAGE_TESTS.items()])
def test_a_page_with_a_test_of_its_own_is_read_by_it(page: str, language: str, test: str) -> None:
    assert [each for each in SNIPPETS if each.page == page and each.language == language]
    assert Path(page).name.removesuffix(".md") in (ROOT / test).read_text()


def holdfast_commands(code: str) -> Iterator[list[str]]:
    for line in code.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        words = words[1:] if words[:1] == ["$"] else words
        if words and words[0].rpartition("/")[2] == "holdfast":
            end = next((n for n, word in enumerate(words) if word in ("|", ">", ";", "&&", "||")), len(words))
            yield words[1:end]


@pytest.mark.parametrize("snippet", [each for each in BLOCKS if each.reason], ids=str)
def test_the_commands_of_a_block_that_is_not_run_parse(snippet: Snippet) -> None:
    for command in holdfast_commands(snippet.code):
        assert build_parser().parse_args(command).run
    for target in re.findall(r"^make ([\w-]+)", snippet.code, re.MULTILINE):
        assert re.search(rf"^{target}:.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for module in re.findall(r"^python -m ([\w.]+)", snippet.code, re.MULTILINE):
        path = ROOT / ("src" if module.startswith("holdfast") else "") / module.replace(".", "/")
        assert path.with_suffix(".py").exists() or (path / "__main__.py").exists()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    node = ServeProcess(tmp_path_factory.mktemp("server"), "--text", "127.0.0.1:0")
    with started(node):
        yield node


def replaced(code: str, server: ServeProcess, folder: Path) -> str:
    """The code for this server instead of the page's, and for machines without what others are assumed to have."""
    http = urlsplit(server.http).netloc
    password = server.data / "clickhouse" / "password"
    changes = {
        ".venv/bin/holdfast": "holdfast",
        "127.0.0.1:9092": server.kafka,
        "127.0.0.1:9095": json.loads(server.addresses.read_text()).get("text", "127.0.0.1:9095"),
        "localhost:8080": http,
        "postgresql://me@localhost/mydb": f"sqlite:///{folder}/check.db",
        "postgresql://holdfast@db/holdfast": f"sqlite:///{folder}/check.db",
        "/checkpoints/": f"{folder}/checkpoints/",
        f"{COUNT}\n": f"until {COUNT} 2>/dev/null; do sleep 3; done\n",  # the pipeline creates its table once it runs
        "python -m": f"{sys.executable} -m",
        "batch_fuzzer 30000": "batch_fuzzer 100",
    }
    if password.exists():
        address = json.loads(server.addresses.read_text())["clickhouse"]
        changes["user:password@clickhouse:8123/shop"] = f"default:{password.read_text().strip()}@{address}/default"
    for old, new in changes.items():
        code = code.replace(old, new)
    if not shutil.which("kcat"):
        code = re.sub(r"^.*\bkcat .*$", "", code, flags=re.MULTILINE)
    return code


def run_script(page: str, server: ServeProcess, folder: Path, timeout_s: float) -> None:
    if server.data != folder / "holdfast-data":
        (folder / "holdfast-data").symlink_to(server.data)
    shutil.copy(ROOT / "examples" / "pipeline.yaml", folder)
    parts = [
        f'holdfast() {{ "{sys.executable}" -m holdfast "$@"; }}',
        "set -eo pipefail",
        BEFORE.get(page, ""),
        *(each.code for each in RUN_HERE if each.page == page and each.language == "sh"),
        AFTER.get(page, ""),
    ]
    env = environment(
        HOLDFAST_BOOTSTRAP=server.kafka,
        HOLDFAST_HTTP_URL=server.http,
        HOLDFAST_DATA=str(server.data),
        PYTHONPATH=os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
    )
    argv = ["bash", "-c", replaced("\n".join(parts), server, folder)]
    done = subprocess.run(
        argv, cwd=folder, env=env, input=STDIN.get(page, ""), capture_output=True, text=True, timeout=timeout_s
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


@pytest.mark.xdist_group("snippets")
@pytest.mark.parametrize("page", [page for page in SHELL_PAGES if page not in PIPELINES | OWN_SERVER])
def test_the_commands_of_a_page_run(page: str, server: ServeProcess, tmp_path: Path) -> None:
    run_script(page, server, tmp_path, timeout_s=110)


@pytest.mark.parametrize("page", sorted(OWN_SERVER))
def test_the_commands_of_a_page_that_stops_its_server_run(page: str, tmp_path: Path) -> None:
    node = ServeProcess(tmp_path / "server")
    node.data = tmp_path / "holdfast-data"
    with started(node):
        run_script(page, node, tmp_path, timeout_s=110)


@pytest.mark.timeout(420)  # Spark starts
@pytest.mark.xdist_group("snippets")
@pytest.mark.parametrize("page", [pytest.param(page, marks=pytest.mark.long) for page in sorted(PIPELINES)])
def test_the_commands_of_a_page_about_pipelines_run(page: str, server: ServeProcess, tmp_path: Path) -> None:
    for module in ("pyspark", "pandas", "chdb"):
        pytest.importorskip(module)
    run_script(page, server, tmp_path, timeout_s=400)


@pytest.mark.parametrize("snippet", [each for each in PYTHON if each not in CLIENTS], ids=str)
def test_the_python_of_a_page_runs(snippet: Snippet, tmp_path: Path) -> None:
    run_python(snippet.code, tmp_path)


@pytest.mark.xdist_group("snippets")
@pytest.mark.parametrize("snippet", CLIENTS, ids=str)
def test_the_python_of_a_page_about_clients_runs(snippet: Snippet, server: ServeProcess, tmp_path: Path) -> None:
    run_python(replaced(snippet.code, server, tmp_path), tmp_path)


def run_python(code: str, folder: Path) -> None:
    argv = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(argv, cwd=folder, env=environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.timeout(300)
def test_the_python_of_the_spark_page_runs(spark: "SparkSession", tmp_path: Path) -> None:
    node = ServeProcess(tmp_path / "node", "--roles", "api,agent", "--clickhouse", "off")
    names: dict[str, Any] = {"spark": spark}
    with started(node):
        create_topic(node.kafka, "copies")
        for topic in ("orders", "returns"):
            produce(node.kafka, topic, "1", "2", "3")
        for snippet in (each for each in RUN_HERE if each.page == "docs/spark.md" and each.language == "python"):
            if "spark.session()" not in snippet.code:  # the fixture is that session
                exec(replaced(snippet.code, node, tmp_path), names)
        query = names["query"]
        query.processAllAvailable()
        query.stop()
        found = spark.read.format("holdfast").option("bootstrap", node.kafka).option("topics", "copies").load()
        assert found.count() == 3 + 6  # the batch of orders, the stream of both
