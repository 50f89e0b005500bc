"""`holdfast objects`: whose objects these are, and how they change hands."""

import asyncio
from pathlib import Path

import pytest
from tests.support.command_line import Run

from holdfast.stores.urls import open_store
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SystemRandom

DATA = ("--data", "first")


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def other(*more: str) -> tuple[str, ...]:
    """Another store on the same objects."""
    return (*DATA, "--store", f"sqlite:///{Path.cwd()}/other.db", *more)


@pytest.fixture
def stores() -> None:
    """Two stores, and a folder for the objects of the first."""
    for name in ("first/store.db", "other.db"):
        (Path.cwd() / name).parent.mkdir(exist_ok=True)
        asyncio.run(create_store(f"sqlite:///{Path.cwd()}/{name}"))
    (Path.cwd() / "first" / "objects").mkdir()


async def create_store(url: str) -> None:
    async with open_store(url, clock=RealClock(), random=SystemRandom()):
        pass


@pytest.mark.parametrize("action", ["owner", "adopt"])
def test_a_mistyped_store_is_refused_and_not_created(run: Run, action: str) -> None:
    refused = run("objects", action, "--store", "sqlite:///typo/store.db", "--objects", "file:objects")
    assert refused.code == 2
    assert f"must be an existing database: there is no file {Path.cwd()}/typo/store.db" in refused.err
    assert list(Path.cwd().iterdir()) == []


def test_a_mistyped_folder_of_objects_is_refused_and_not_created(run: Run, stores: None) -> None:
    refused = run("objects", "owner", *DATA, "--objects", "file:objcets")
    assert refused.code == 2
    assert f"must be an existing folder: there is no {Path.cwd()}/objcets" in refused.err
    assert not (Path.cwd() / "objcets").exists()


@pytest.mark.parametrize("action", ["partitions", "consumers"])
def test_a_registry_is_not_looked_for_in_a_new_store(run: Run, action: str) -> None:
    refused = run("registry", action, "--store", "sqlite:///typo.db")
    assert refused.code == 2
    assert "must be an existing database" in refused.err
    assert list(Path.cwd().iterdir()) == []


@pytest.mark.slow
def test_what_nobody_owns_is_said_to_be_free_and_adopted_without_a_question(run: Run, stores: None) -> None:
    asked = run("objects", "owner", *DATA)
    assert asked.code == 0
    assert "nobody has claimed these objects" in asked.text
    adopted = run("objects", "adopt", *DATA)
    assert adopted.code == 0
    assert "belongs to cluster" in adopted.text
    [shown] = run("objects", "owner", *DATA, "--json").rows
    assert shown["ownership"] == "ours"
    assert shown["found"] == shown["recorded"]
    assert shown["found"]["cluster"] == shown["cluster"]


def test_another_store_sees_whose_they_are_and_takes_them_over_when_told_so(run: Run, stores: None) -> None:
    run("objects", "adopt", *DATA)
    [first] = run("objects", "owner", *DATA, "--json").rows
    asked = run("objects", "owner", *other())
    assert asked.code == 1
    assert first["cluster"] in asked.text
    for options, says in (
        ((), "pass --yes"),
        (("--yes",), f"cluster {first['cluster']} marked"),
    ):
        refused = run("objects", "adopt", *other(*options))
        assert refused.code == 2
        assert says in refused.err
    assert run("objects", "owner", *DATA).code == 0
    [adopted] = run("objects", "adopt", *other("--yes", "--force", "--json")).rows
    [second] = run("objects", "owner", *other(), "--json").rows
    assert (second["ownership"], second["found"]) == ("ours", adopted["mark"])
    [former] = run("objects", "owner", *DATA, "--json").rows
    assert former["ownership"] == "foreign"
