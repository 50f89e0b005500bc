"""Which files of streaming queries are left behind."""

import pytest

from holdfast.pipeline.model.definition import Generation, Pipeline
from holdfast.pipeline.model.stream_files import GenerationFolder, folder_of, left_behind

PIPELINE = Pipeline(
    id="p1",
    name="p",
    created_at_ms=0,
    updated_at_ms=0,
    generations=(Generation(number=3, retired=True), Generation(number=4), Generation(number=5, retired=True)),
)


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("p1/2/pieces/7/0/x.arrow", GenerationFolder("p1", 2)),
        ("p1/2", GenerationFolder("p1", 2)),
        ("p1/e2/x", None),
        ("p1", None),
        ("/2/x", None),
    ],
)
def test_a_file_belongs_to_a_generation(name: str, folder: GenerationFolder | None) -> None:
    assert folder_of(name) == folder


def test_retired_and_forgotten_generations_and_deleted_pipelines_are_left_behind() -> None:
    folders = [GenerationFolder("p1", number) for number in range(1, 8)] + [GenerationFolder("gone", 9)]
    assert [each.name for each in left_behind(folders, [PIPELINE])] == ["p1/1", "p1/2", "p1/3", "gone/9"]
