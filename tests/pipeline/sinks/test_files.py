"""Files below a place, listed by name."""

from pathlib import Path
from typing import Any

import pytest

from holdfast.pipeline.sinks.files import FileLocation
from holdfast.pipeline.sinks.parquet import end_in

NAMES = ("p=3/0000-0050-a.parquet", "p=3/0050-0080-a.parquet", "p=33/0050-0080-a.parquet")


@pytest.fixture(params=["folder", "object store"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FileLocation:
    if request.param == "folder":
        return FileLocation(str(tmp_path), True)
    objects: Any = pytest.importorskip("obstore.store").MemoryStore()
    monkeypatch.setattr(FileLocation, "_store", lambda self: objects)
    return FileLocation("s3://bucket/prefix", False)


def test_names_are_those_of_a_folder_from_one_on(place: FileLocation) -> None:
    assert place.names_from("p=3", "0000") == []
    for name in NAMES:
        place.put(name, b"rows")
    assert sorted(place.names_from("p=3", "0000")) == ["0000-0050-a.parquet", "0050-0080-a.parquet"]
    assert place.names_from("p=3", "0050") == ["0050-0080-a.parquet"]
    assert place.names_from("p=3", "0080") == []


@pytest.mark.parametrize(
    ("name", "end"),
    [
        ("00000000000000000050-00000000000000000080-p1-topic.parquet", 80),
        ("00000000000000000050-00000000000000000080-p1.parquet", 80),
        ("00000000000000000050-00000000000000000080-p10-topic.parquet", -1),
        ("00000000000000000050-00000000000000000080.parquet", -1),
        (".00000000000000000050-00000000000000000080-p1.parquet.token", -1),
        ("notes.txt", -1),
    ],
)
def test_a_file_name_says_where_its_range_ends(name: str, end: int) -> None:
    assert end_in(name, "p1") == end
