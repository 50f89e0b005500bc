"""What becomes of a pipeline's generations: rewound, backfilled, retired. No I/O.

The one rule: a number is never used again, so that rows, tokens and registries of two readings never meet. There is always one live
generation. A retired one keeps its number and forgets its offsets: its progress stands in its registry.
"""

from collections.abc import Mapping

import msgspec

from holdfast.pipeline.model.definition import Generation, Pipeline, live_generation
from holdfast.vocabulary.errors import CorruptError, InvalidError


def rewound(pipeline: Pipeline, starts: Mapping[int, int], *, delete_previous: bool) -> Pipeline:
    """The live generation is retired, and the next begins at `starts`."""
    old = _live(pipeline)
    fresh = Generation(
        number=_next_number(pipeline),
        starts=_offsets("starts", starts),
        replaces=old.number,
        delete_previous=delete_previous,
    )
    return _with(pipeline, *_retiring(pipeline, old.number), fresh)


def moved(pipeline: Pipeline) -> Pipeline:
    """The pipeline reads another topic: all generations are retired, and the next begins where the source says."""
    retired = [_retired(each) for each in pipeline.generations]
    return _with(pipeline, *retired, Generation(number=_next_number(pipeline)))


def backfilled(pipeline: Pipeline, starts: Mapping[int, int], ends: Mapping[int, int], *, at_once_max: int) -> Pipeline:
    """A reading of some ranges beside the live generation."""
    if not starts or set(starts) != set(ends):
        raise InvalidError(
            "partitions of a backfill", sorted(ends), f"the same as those of its starts, {sorted(starts)}"
        )
    for partition, start in starts.items():
        if not start < ends[partition]:
            raise InvalidError(
                f"range of partition {partition}", f"{start} to {ends[partition]}", "a start below the end"
            )
    running = [each.number for each in pipeline.generations if each.kind == "backfill" and not each.retired]
    if len(running) >= at_once_max:
        raise InvalidError("backfills at a time", len(running) + 1, f"at most {at_once_max}; {running} are under way")
    fresh = Generation(
        number=_next_number(pipeline),
        kind="backfill",
        starts=_offsets("starts", starts),
        ends=_offsets("ends", ends),
    )
    return _with(pipeline, *pipeline.generations, fresh)


def retired(pipeline: Pipeline, number: int) -> Pipeline:
    """A backfill is done or given up. The live generation is not retired by itself: that is what `rewound` is for."""
    found = _numbered(pipeline, number)
    if found.kind == "live" and not found.retired:
        raise InvalidError("generation to retire", number, "a backfill: the live one goes when another takes its place")
    return _with(pipeline, *_retiring(pipeline, number))


def cleaned(pipeline: Pipeline, number: int) -> Pipeline:
    """What a rewind was to delete is deleted."""
    done = msgspec.structs.replace(_numbered(pipeline, number), delete_previous=False)
    return _with(pipeline, *(done if each.number == number else each for each in pipeline.generations))


def bounded(pipeline: Pipeline, kept_max: int) -> Pipeline:
    """The pipeline without its oldest retired generations, if there are more than `kept_max`."""
    surplus = len(pipeline.generations) - kept_max
    gone = [each.number for each in pipeline.generations if each.retired][: max(0, surplus)]
    return _with(pipeline, *(each for each in pipeline.generations if each.number not in gone))


def _next_number(pipeline: Pipeline) -> int:
    return max(each.number for each in pipeline.generations) + 1


def _live(pipeline: Pipeline) -> Generation:
    found = live_generation(pipeline)
    if found is None:
        raise CorruptError(f"pipeline {pipeline.id}", "it has no live generation")
    return found


def _numbered(pipeline: Pipeline, number: int) -> Generation:
    for each in pipeline.generations:
        if each.number == number:
            return each
    known = ", ".join(str(each.number) for each in pipeline.generations)
    raise InvalidError(f"generation of pipeline {pipeline.name!r}", number, f"one of {known}")


def _retiring(pipeline: Pipeline, number: int) -> list[Generation]:
    return [_retired(each) if each.number == number else each for each in pipeline.generations]


def _retired(generation: Generation) -> Generation:
    return msgspec.structs.replace(generation, retired=True, starts={}, ends={}, delete_previous=False)


def _offsets(what: str, given: Mapping[int, int]) -> dict[str, int]:
    for partition, offset in given.items():
        if partition < 0 or offset < 0:
            raise InvalidError(what, f"partition {partition}: {offset}", "numbers from 0 on")
    return {str(partition): offset for partition, offset in sorted(given.items())}


def _with(pipeline: Pipeline, *generations: Generation) -> Pipeline:
    return msgspec.structs.replace(pipeline, generations=generations)
