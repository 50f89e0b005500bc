"""`holdfast migrate`: what is refused before either end is opened, and what nobody has confirmed."""

from pathlib import Path

import pytest
from tests.support.command_line import Run

TO = ("--to-store", "postgresql://holdfast@127.0.0.1:1/none", "--to-objects", "s3://events/holdfast")


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_target_is_required_and_the_error_says_how_to_move_one_of_both(run: Run) -> None:
    refused = run("migrate", "--yes", "--to-objects", "s3://events/holdfast")
    assert refused.code == 2
    assert "Give --to-store URL, and --to-objects URL unless the objects stay where they are" in refused.err


@pytest.mark.parametrize(
    ("short", "found"),
    [
        (("--from", "postgresql+file"), "--from postgresql+file does not match the URLs, which are of sqlite+file"),
        (("--to", "postgresql+file"), "--to postgresql+file does not match the URLs, which are of postgresql+s3"),
        (("--to", "postgresql"), "--to postgresql does not match the URLs, which are of postgresql+s3"),
    ],
)
def test_urls_of_other_engines_than_the_short_form_names_are_refused(
    run: Run, short: tuple[str, str], found: str
) -> None:
    refused = run("migrate", "--yes", *short, *TO)
    assert refused.code == 2
    assert found in refused.err
    assert list(Path.cwd().iterdir()) == []


@pytest.mark.parametrize("short", ["postgres+s3", "postgresql+s3"])
def test_the_short_form_knows_aliases_and_a_source_that_does_not_exist_is_not_created(run: Run, short: str) -> None:
    refused = run("migrate", "--yes", "--from", "sqlite+folder", "--to", short, *TO)
    assert refused.code == 2
    assert "must be an existing database" in refused.err
    assert list(Path.cwd().iterdir()) == []


def test_memory_is_no_place_to_move_to(run: Run, tmp_path: Path) -> None:
    refused = run("migrate", "--yes", "--from-store", "memory:", *TO)
    assert refused.code == 2
    assert "must be one that outlives its process" in refused.err


def test_an_embedded_member_is_no_target(run: Run) -> None:
    refused = run("migrate", "--yes", "--to-store", "etcd:embedded", "--to-objects", "s3://events/holdfast")
    assert refused.code == 2
    assert "the address of running members" in refused.err


def test_it_moves_nothing_unless_somebody_has_confirmed_it(run: Run, tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    source = ("--store", f"sqlite:///{tmp_path}/old.db", "--objects", f"file://{tmp_path}/old")
    target = ("--to-store", f"sqlite:///{tmp_path}/new.db", "--to-objects", f"file://{tmp_path}/new")
    assert run("store", "check", f"sqlite:///{tmp_path}/old.db").code == 0  # which creates it
    asked = run("migrate", *source, *target)
    assert asked.code == 2
    assert "pass --yes" in asked.err
    nothing = run("migrate", "--yes", *source, *target)
    assert nothing.code == 2
    assert "there is no cluster in" in nothing.err
