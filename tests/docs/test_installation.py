"""Nothing in the repository suggests installing PyPI's `holdfast`, which is somebody else's; the extras are those of pyproject."""

import re
import subprocess
import tomllib
from pathlib import Path

from holdfast.vocabulary.installation import DISTRIBUTION, install_hint

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FOREIGN = re.compile(
    r"""(pip3? install|uv add|uv tool install|uvx|pipx \w+)( -\S+)* *['"]?holdfast(\[|['"\s`]|$)|\bholdfast\[\w"""
)


def tracked_texts() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    return [ROOT / name for name in listed.decode().split("\0") if name and (ROOT / name).is_file()]


def test_no_tracked_file_suggests_to_install_the_foreign_distribution() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in tracked_texts()
        if path != Path(__file__)
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if FOREIGN.search(line)
    ]
    assert found == []


def test_the_check_catches_every_spelling() -> None:
    for bad in (
        "pip install holdfast",
        "pip install 'holdfast[spark]'",
        "pip install -U holdfast",
        "needs `holdfast[s3]`",
    ):
        assert FOREIGN.search(bad), bad
    for good in ("pip install '.[spark]'", "pip install holdfast-engine", "holdfast-engine[spark]", "holdfast serve"):
        assert not FOREIGN.search(good), good


def test_the_distribution_is_named_once() -> None:
    assert PROJECT["name"] == DISTRIBUTION


def test_a_hint_names_an_extra_that_exists() -> None:
    source = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    extras = set(re.findall(r"install_hint\(['\"](\w+)['\"]\)", source))
    extras |= set(re.findall(r"NotInstalledError\(.*?, ['\"](\w+)['\"]\)", source))
    assert extras
    assert extras <= set(PROJECT["optional-dependencies"])
    assert install_hint("spark").startswith("pip install '.[spark]'")
