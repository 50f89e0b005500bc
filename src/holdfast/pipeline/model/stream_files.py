"""Where the files of streaming queries lie, in object storage and at a checkpoint place of its own: pure.

{cluster id}/streams/{pipeline}/{generation}/pieces/…    rows of a batch that is under way
{cluster id}/streams/{pipeline}/{generation}/e{epoch}/…  Spark's checkpoint and state
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from holdfast.pipeline.model.definition import Pipeline, active_generations

STREAMS_FOLDER: Final = "streams"


class GenerationFolder(NamedTuple):
    """The files of one generation."""

    pipeline_id: str
    generation: int

    @property
    def name(self) -> str:
        """Below the folder of all streams."""
        return f"{self.pipeline_id}/{self.generation}"


def folder_of(name: str) -> GenerationFolder | None:
    """The generation that a file belongs to, by its path below the folder of all streams; None: it is none of ours."""
    pipeline_id, _, rest = name.partition("/")
    generation = rest.partition("/")[0]
    return GenerationFolder(pipeline_id, int(generation)) if pipeline_id and generation.isdecimal() else None


def left_behind(folders: Iterable[GenerationFolder], pipelines: Iterable[Pipeline]) -> list[GenerationFolder]:
    """Those of pipelines that are gone and of generations that are retired. `pipelines` was read after `folders`.

    A generation above all that its pipeline has is not judged: the pipeline is of an older store than its files.
    """
    known = {each.id: each for each in pipelines}
    return [each for each in folders if _is_left(each, known.get(each.pipeline_id))]


def _is_left(folder: GenerationFolder, pipeline: Pipeline | None) -> bool:
    if pipeline is None:
        return True
    active = {each.number for each in active_generations(pipeline)}
    return folder.generation not in active and folder.generation < pipeline.generations[-1].number
