"""Checkpoints that are uploaded: the next owner, on another disk, gets what was saved up to the last batch that is done."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from holdfast.client.loop_thread import run
from holdfast.contracts.objects import AlreadyExists, Missing, Stored
from holdfast.objects.memory import MemoryObjects
from holdfast.pipeline.driver.streaming.uploaded_checkpoints import UploadedCheckpoints
from holdfast.vocabulary.clock import RealClock

STATE = "state/0/0/{}.zip"


class RecordingObjects(MemoryObjects):
    """Objects that remember the order of their puts, and may refuse them."""

    def __init__(self) -> None:
        super().__init__(clock=RealClock())
        self.puts: list[str] = []
        self.refuses = ""

    async def put(self, key: str, body: Sequence[Any]) -> Stored | AlreadyExists:
        if self.refuses and self.refuses in key:
            raise OSError("no answer")
        self.puts.append(key)
        return await super().put(key, body)


@pytest.fixture
def objects() -> RecordingObjects:
    return RecordingObjects()


def checkpoints(objects: MemoryObjects, disk: Path) -> UploadedCheckpoints:
    async def opened() -> MemoryObjects:
        return objects

    return UploadedCheckpoints(MagicMock(), disk, opened, "streams/p1/g1/")


def write(disk: Path, **files: str) -> None:
    for name, text in files.items():
        path = disk / "e1" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def batch(disk: Path, number: int) -> None:
    """What Spark leaves after a batch."""
    write(disk, **{f"offsets/{number}": f"o{number}", f"commits/{number}": f"c{number}"})
    write(disk, **{STATE.format(number + 1): f"s{number + 1}", f"offsets/.{number}.crc": "x", "state/a.tmp": "x"})


def found(disk: Path, epoch: int) -> dict[str, str]:
    folder = disk / f"e{epoch}"
    return {
        path.relative_to(folder).as_posix(): path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()
    }


def test_the_next_owner_gets_what_belongs_to_batches_that_are_done(objects: RecordingObjects, tmp_path: Path) -> None:
    ann = checkpoints(objects, tmp_path / "ann")
    write(tmp_path / "ann", metadata="the query's id")
    for number in range(3):
        batch(tmp_path / "ann", number)
    ann.save(1)
    bob = checkpoints(objects, tmp_path / "bob")
    bob._copy(1, 2, done_batch=1)
    assert found(tmp_path / "bob", 2) == {
        "commits/0": "c0",
        "commits/1": "c1",
        "offsets/0": "o0",
        "offsets/1": "o1",
        STATE.format(1): "s1",
        STATE.format(2): "s2",
    }


def test_state_is_there_before_the_commit_that_names_it(objects: RecordingObjects, tmp_path: Path) -> None:
    ann = checkpoints(objects, tmp_path)
    batch(tmp_path, 0)
    ann.save(1)
    assert [key.removeprefix("streams/p1/g1/e1/") for key in objects.puts][-1] == "commits/0"
    batch(tmp_path, 1)
    objects.refuses = "state/"
    with pytest.raises(OSError, match="no answer"):
        ann.save(1)
    assert isinstance(run(objects.get("streams/p1/g1/e1/commits/1")), Missing)
    objects.refuses = ""
    ann.save(1)  # and what failed is uploaded with the next
    assert bytes(run(objects.get("streams/p1/g1/e1/commits/1"))) == b"c1"  # type: ignore[arg-type]


def test_only_what_is_new_is_uploaded_and_what_spark_removes_goes(objects: RecordingObjects, tmp_path: Path) -> None:
    ann = checkpoints(objects, tmp_path)
    batch(tmp_path, 0)
    ann.save(1)
    objects.puts.clear()
    ann.save(1)
    assert objects.puts == []
    (tmp_path / "e1" / STATE.format(1)).unlink()
    batch(tmp_path, 1)
    ann.save(1)
    assert sorted(key.removeprefix("streams/p1/g1/e1/") for key in objects.puts) == [
        "commits/1",
        "offsets/1",
        STATE.format(2),
    ]
    assert isinstance(run(objects.get("streams/p1/g1/e1/" + STATE.format(1))), Missing)


def test_a_file_that_was_uploaded_otherwise_is_replaced(objects: RecordingObjects, tmp_path: Path) -> None:
    run(objects.put("streams/p1/g1/e1/offsets/0", [b"half"]))
    batch(tmp_path, 0)
    checkpoints(objects, tmp_path).save(1)
    assert bytes(run(objects.get("streams/p1/g1/e1/offsets/0"))) == b"o0"  # type: ignore[arg-type]
