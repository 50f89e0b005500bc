"""What an owner removes: only while the objects are those of its own store."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.pipeline.driver.streaming.leftovers import remove_leftovers
from holdfast.pipeline.driver.streaming.stream_record import StreamRecord
from holdfast.vocabulary.errors import UsageError


class Folders:
    """Checkpoint folders beside which lies that of a pipeline."""

    def __init__(self) -> None:
        self.removed: list[str] = []

    def remove_older(self, epoch: int) -> None:
        self.removed.append(f"before e{epoch}")

    def siblings(self, *, levels: int) -> list[str]:
        return [] if levels == 1 else ["neighbour"]

    def remove_sibling(self, name: str, *, levels: int) -> None:
        self.removed.append(name)


def remove(folders: Folders, tmp_path: Path, check_owner: Any) -> None:
    running: Any = SimpleNamespace(
        epoch=3, folders=folders, store=SimpleNamespace(record=StreamRecord(epoch=3, folder=3))
    )
    store: Any = SimpleNamespace(
        pipeline=lambda: SimpleNamespace(generations=[SimpleNamespace(number=1, retired=False)]),
        exists=lambda name: False,  # a store of before the neighbour was created
    )
    remove_leftovers(running, store, f"file://{tmp_path}", "cluster/streams/p/1/", check_owner)


def test_files_of_pipelines_that_the_store_does_not_know_are_removed(tmp_path: Path) -> None:
    folders = Folders()
    remove(folders, tmp_path, lambda: None)
    assert folders.removed == ["before e3", "neighbour"]


@pytest.mark.parametrize("checks", [0, 1])
def test_a_process_of_an_older_history_removes_nothing_of_pipelines_that_only_the_newer_one_has(
    tmp_path: Path, checks: int
) -> None:
    folders = Folders()
    passed: list[None] = []

    def check_owner() -> None:
        if len(passed) == checks:
            raise UsageError("the objects are another history's")
        passed.append(None)

    with pytest.raises(UsageError):
        remove(folders, tmp_path, check_owner)
    assert "neighbour" not in folders.removed
