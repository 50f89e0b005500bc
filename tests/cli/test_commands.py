"""The command line as a person or a script uses it: output, exit codes, errors."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.error_examples import EXAMPLES

from holdfast import __version__
from holdfast.cli.main import main
from holdfast.cli.output import EXIT_CODES, exit_code
from holdfast.testing.harness import StoreHarness
from holdfast.vocabulary import errors


def run(*argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "holdfast", *argv], capture_output=True, text=True, timeout=100)


def json_lines(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def test_version_is_the_packages() -> None:
    assert run("--version").stdout == f"holdfast {__version__}\n"


def test_help_lists_commands_and_exit_codes() -> None:
    text = run("--help").stdout
    assert "registry" in text
    assert "store" in text
    assert EXIT_CODES.splitlines()[1] in text


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_every_error_has_an_exit_code_that_is_in_the_help(error: errors.HoldfastError) -> None:
    assert f"  {exit_code(error)}  " in EXIT_CODES


def test_the_demo_reproduces_the_golden_distribution(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["registry", "demo", "--plan", "contiguous", "--json"]) == 0
    initial, hundred, removed, rebalanced, final = json_lines(capsys.readouterr().out)

    def column(phase: dict[str, object], name: str) -> list[object]:
        partitions = phase["partitions"]
        assert isinstance(partitions, list)
        return [partition[name] for partition in partitions]

    assert set(initial) == {"phase", "partitions", "processed"}
    assert column(initial, "id") == list(range(8))
    assert column(initial, "owner") == ["A", "A", "A", "B", "B", "B", "C", "C"]
    assert column(hundred, "checkpoint") == [14, 13, 12, 12, 12, 12, 12, 13]
    assert column(hundred, "epoch") == [1] * 8
    assert hundred["processed"] == {"A": 39, "B": 36, "C": 25}
    assert column(removed, "owner") == [None, None, None, "B", "B", "B", "C", "C"]
    assert column(rebalanced, "owner") == ["B"] * 4 + ["C"] * 4
    assert column(rebalanced, "epoch") == [3, 3, 3, 1, 3, 3, 1, 1]
    assert column(final, "checkpoint") == [21, 20, 18, 17, 17, 18, 19, 20]
    assert final["processed"] == {"A": 39, "B": 61, "C": 50}


def test_under_the_sticky_plan_only_the_leavers_partitions_move(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["registry", "demo", "--json"]) == 0
    phases = json_lines(capsys.readouterr().out)
    before, after = phases[1]["partitions"], phases[3]["partitions"]
    assert isinstance(before, list)
    assert isinstance(after, list)
    moved = [p["id"] for p, q in zip(before, after, strict=True) if p["owner"] != q["owner"]]
    assert moved == [p["id"] for p in before if p["owner"] == "A"]


async def test_the_demo_runs_on_every_engine_in_a_process_of_its_own(harness: StoreHarness) -> None:
    store = harness.url or "memory:"
    done = await asyncio.to_thread(run, "registry", "demo", "--json", "--partitions", "4", "--store", store)
    assert done.returncode == 0, done.stderr
    phases = json_lines(done.stdout)
    assert [phase["phase"] for phase in phases] == [
        "initial assignment",
        "100 messages",
        "A removed",
        "rebalance",
        "final",
    ]
    processed = phases[-1]["processed"]
    assert isinstance(processed, dict)
    assert sum(processed.values()) == 150


def test_the_demo_is_readable_without_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["registry", "demo"]) == 0
    text = capsys.readouterr().out
    assert "initial assignment" in text
    assert "processed: A 39, B 36, C 25" in text


async def test_store_check_says_what_works_on_every_engine(harness: StoreHarness) -> None:
    done = await asyncio.to_thread(run, "store", "check", harness.url or "memory:", "--json")
    assert done.returncode == 0, done.stderr + done.stdout
    findings = json_lines(done.stdout)
    assert len(findings) == 7
    assert all(finding["ok"] for finding in findings)


@pytest.mark.parametrize(
    ("argv", "code", "says"),
    [
        (["store", "check", "mysql://host/db"], 2, "postgresql://"),
        (["store", "check", "memory:?colour=red"], 2, "colour"),
        (["store", "check", "postgresql://u:secret@127.0.0.1:1/db"], 3, "127.0.0.1"),
        (["store", "check", "redis://127.0.0.1:1/0"], 3, "127.0.0.1:1"),
        # It tries for five seconds, as in the contract.
        pytest.param(["store", "check", "etcd://127.0.0.1:1"], 3, "127.0.0.1:1", marks=pytest.mark.long),
        (["store", "check", "sqlite:///"], 2, "sqlite:///"),
        (["registry", "demo", "--partitions", "nine"], 2, "nine"),
        (["registry", "demo", "--partitions", "0"], 2, "between 1 and"),
        (["registry", "demo", "--plan", "random"], 2, "sticky, contiguous"),
        (["registry", "partitions", "--store", "memory:"], 2, "pxrs"),
    ],
)
def test_a_wrong_call_says_what_is_allowed_and_its_code_says_whose_turn_it_is(
    argv: list[str], code: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == code
    message = capsys.readouterr().err
    assert says in message
    assert "secret" not in message
    assert "Traceback" not in message


def test_listings_show_a_registry_that_lives_in_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from holdfast.registry import RegistrySettings, RegistryStore
    from holdfast.stores.urls import open_store
    from holdfast.vocabulary.clock import RealClock
    from holdfast.vocabulary.random import SystemRandom

    url = f"sqlite:///{tmp_path}/registry.db"
    clock, random = RealClock(), SystemRandom()

    async def fill() -> None:
        async with open_store(url, clock=clock, random=random) as store:
            registry = RegistryStore(store, clock=clock, random=random, settings=RegistrySettings(partitions=3))
            await registry.initialize()
            await registry.register("ann")
            assert await registry.claim(1, "ann", 0)

    asyncio.run(fill())
    assert main(["registry", "partitions", "--store", url, "--json"]) == 0
    rows = json_lines(capsys.readouterr().out)
    assert [row["owner"] for row in rows] == [None, "ann", None]
    assert main(["registry", "consumers", "--store", url, "--json"]) == 0
    assert json_lines(capsys.readouterr().out) == [{"id": "ann", "partitions": [1]}]
    assert main(["registry", "partitions", "--store", url]) == 0
    assert "ann" in capsys.readouterr().out
