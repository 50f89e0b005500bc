"""The README is true: its Python runs, its commands exist, its links lead somewhere."""

import re
import shlex
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
from tests.support.server_process import ServeProcess, environment, started

from holdfast.cli.main import build_parser

ROOT = Path(__file__).parents[2]
PAPERS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


@pytest.mark.parametrize("code", blocks("python"))
def test_its_python_runs(code: str, tmp_path: Path) -> None:
    node = ServeProcess(tmp_path / "node")
    with started(node) if "HOLDFAST_BOOTSTRAP" in code else nullcontext():
        env = environment(HOLDFAST_BOOTSTRAP=node.kafka)
        argv = [sys.executable, "-c", code]
        done = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr


def test_its_holdfast_commands_parse() -> None:
    lines = [line for block in blocks("sh") for line in block.splitlines() if "bin/holdfast " in line]
    assert lines
    for line in lines:
        argv = shlex.split(line, comments=True)
        assert build_parser().parse_args(argv[1:]).run


def test_it_opens_with_the_two_commands_and_make_has_them() -> None:
    first = blocks("sh")[0]
    assert [line.split("#")[0].split() for line in first.splitlines()] == [["make", "up"], ["make", "test"]]
    makefile = (ROOT / "Makefile").read_text()
    for target in ("up", "test", "test-long", "check", "bench", "clean"):
        assert re.search(rf"^{target}:.*## ", makefile, re.MULTILINE)


@pytest.mark.parametrize("paper", PAPERS, ids=lambda paper: paper.name)
def test_links_lead_somewhere(paper: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", paper.read_text()):
        assert (paper.parent / target).exists(), target


@pytest.mark.parametrize("paper", PAPERS, ids=lambda paper: paper.name)
def test_links_to_a_section_lead_to_one(paper: Path) -> None:
    for target, section in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", paper.read_text()):
        page = (paper.parent / target if target else paper).read_text()
        headings = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
        slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
        assert section in slugs, f"{target}#{section}"


def test_the_index_lists_every_page() -> None:
    docs = ROOT / "docs"
    linked = set(re.findall(r"\]\(([^)#:]+)\)", (docs / "README.md").read_text()))
    assert linked == {str(page.relative_to(docs)) for page in docs.rglob("*.md")} - {"README.md"}
    assert "(docs/README.md)" in (ROOT / "README.md").read_text()


def test_its_smallest_python_is_at_most_eight_lines() -> None:
    assert min(len([line for line in code.splitlines() if line.strip()]) for code in blocks("python")) <= 8


def test_the_file_map_names_only_what_exists() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    known = {path.name for folder in ("src", "tests", "bench", "proto") for path in (ROOT / folder).rglob("*.*")}
    map_ = text.split("## File map")[1].split("```")[1]
    assert set(re.findall(r"\b\w+\.(?:py|proto)\b", map_)) <= known
