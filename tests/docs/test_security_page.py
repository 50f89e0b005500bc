"""docs/security.md is true: its commands run, in order, on a store of their own."""

import asyncio
import re
import shlex
from pathlib import Path

import pytest
from tests.support.command_line import Run
from tests.support.command_line import run as run

from holdfast.stores.urls import open_store
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SystemRandom

PAGE = (Path(__file__).parents[2] / "docs" / "security.md").read_text()


def commands() -> list[tuple[list[str], bytes]]:
    """The arguments of each command, and its stdin: `printf TEXT | holdfast …`."""
    found = []
    for block in re.findall(r"(?<!-->\n)```sh\n(.*?)```", PAGE, re.DOTALL):
        for line in block.splitlines():
            words = shlex.split(line, comments=True)
            at = words.index("holdfast")
            found.append((words[at + 1 :], words[1].encode() if at else b""))
    return found


async def create_store(url: str) -> None:
    async with open_store(url, clock=RealClock(), random=SystemRandom(), create=True):
        pass


def test_its_commands_run(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    asyncio.run(create_store(url))
    monkeypatch.setenv("HOLDFAST_STORE", url)
    assert len(commands()) > 6
    for argv, stdin in commands():
        done = run(*argv, stdin=stdin)
        assert done.code == 0, done.err
    assert {row["user"] for row in run("user", "list", "--json").rows} == {"admin", "ann"}
    left = [(row["principal"], row["operation"], row["name"]) for row in run("acl", "list", "--json").rows]
    assert sorted(left) == [
        ("User:*", "delete", "orders-audit"),
        ("User:ann", "read", "orders-"),
        ("User:ann", "write", "orders-"),
    ]
