"""Changes of a pipeline's generations: rewind, backfill, retirement. No I/O.

The one rule: a number is never reused, so rows, tokens and registries of two generations never mix. There is always one live
generation. A retired one keeps its number and loses its offsets: its progress is in its registry.
"""

from collections.abc import Collection, Mapping

import msgspec

from holdfast.pipeline.model.definition import Generation, Pipeline, live_generation
from holdfast.vocabulary.errors import CorruptError, InvalidError


def with_rewind(
    pipeline: Pipeline,
    starts: Mapping[int, int],
    *,
    delete_previous: bool,
    partitions: int = 0,
    topic_id: str = "",
    table: str = "",
) -> Pipeline:
    """The live generation is retired, and the next begins at `starts`. `partitions`: how many the source has now; `topic_id`:
    the topic that has these offsets; `table`: where its rows go."""
    old = _live(pipeline)
    fresh = Generation(
        number=_next_number(pipeline),
        starts=_offsets("starts", starts),
        partitions=partitions,
        topic_id=topic_id,
        replaces=old.number,
        delete_previous=delete_previous,
        tables=(table,) if delete_previous and table else (),
    )
    return _with(pipeline, *_retiring(pipeline, old.number), fresh)


def with_new_source(pipeline: Pipeline) -> Pipeline:
    """The pipeline reads another topic: all generations are retired, and the next starts as the source is configured."""
    retired = [_retired(each) for each in pipeline.generations]
    return _with(pipeline, *retired, Generation(number=_next_number(pipeline)))


def with_brokers(
    pipeline: Pipeline, before: tuple[str, ...], now: tuple[str, ...], *, begun: bool, identified: Collection[int]
) -> Pipeline:
    """The source's brokers are others. What was read so far counts if they share one with those before.

    Otherwise the topic's id tells whether they are of the same Kafka, when it is read. Without one (a generation is not among
    `identified`) the live generation waits for a rewind, and backfills are retired; if it has not `begun`, or one of both is this
    cluster, the next starts as the source is configured.
    """
    live = _live(pipeline)
    moved = [
        each if each.number in identified else _with_other_brokers(each, before, now) for each in pipeline.generations
    ]
    after = _with(pipeline, *moved)
    is_known = live.number in identified or bool(set(live.brokers or before) & set(now))
    return after if is_known or (begun and before and now) else with_new_source(after)


def with_backfill(
    pipeline: Pipeline, starts: Mapping[int, int], ends: Mapping[int, int], *, at_once_max: int, topic_id: str = ""
) -> Pipeline:
    """Some ranges are read again beside the live generation."""
    if not starts or set(starts) != set(ends):
        raise InvalidError("partitions of the backfill's end", sorted(ends), f"those of its start, {sorted(starts)}")
    for partition, start in starts.items():
        if not start < ends[partition]:
            raise InvalidError(
                f"range of partition {partition}", f"{start} to {ends[partition]}", "a start below the end"
            )
    running = [each.number for each in pipeline.generations if each.kind == "backfill" and not each.retired]
    if len(running) >= at_once_max:
        raise InvalidError(
            "number of backfills", len(running) + 1, f"at most {at_once_max} at a time: {running} are running"
        )
    fresh = Generation(
        number=_next_number(pipeline),
        kind="backfill",
        starts=_offsets("starts", starts),
        ends=_offsets("ends", ends),
        topic_id=topic_id,
    )
    return _with(pipeline, *pipeline.generations, fresh)


def with_retired(pipeline: Pipeline, number: int) -> Pipeline:
    """A backfill is done or cancelled. The live generation is retired by a rewind only."""
    found = _numbered(pipeline, number)
    if found.kind == "live" and not found.retired:
        raise InvalidError("generation", number, "a backfill: the live generation is retired by a rewind only")
    return _with(pipeline, *_retiring(pipeline, number))


def with_table(pipeline: Pipeline, before: str, now: str) -> Pipeline:
    """The sink is edited: if rows are still to be deleted, it is remembered that those which replace them went elsewhere."""
    live = _live(pipeline)
    if not live.delete_previous or before == now:
        return pipeline
    tables = tuple(dict.fromkeys((*(live.tables or (before,)), now)))[:2]
    moved = msgspec.structs.replace(live, tables=tables)
    return _with(pipeline, *(moved if each.number == live.number else each for each in pipeline.generations))


def with_previous_deleted(pipeline: Pipeline, number: int) -> Pipeline:
    """The rows that a rewind replaces are deleted."""
    done = msgspec.structs.replace(_numbered(pipeline, number), delete_previous=False, tables=())
    return _with(pipeline, *(done if each.number == number else each for each in pipeline.generations))


def with_pruned_generations(pipeline: Pipeline, kept_max: int) -> Pipeline:
    """The pipeline without its oldest retired generations, if there are more than `kept_max`.

    Those whose rows a rewind is still to delete stay: what is not listed is not deleted.
    """
    surplus = len(pipeline.generations) - kept_max
    kept_below = max((each.number for each in pipeline.generations if each.delete_previous), default=0)
    droppable = [each.number for each in pipeline.generations if each.retired and each.number > kept_below]
    gone = droppable[: max(0, surplus)]
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
    return msgspec.structs.replace(generation, retired=True, starts={}, ends={}, delete_previous=False, tables=())


def _with_other_brokers(generation: Generation, before: tuple[str, ...], now: tuple[str, ...]) -> Generation:
    was = generation.brokers or before
    if set(was) & set(now):
        return msgspec.structs.replace(generation, brokers=())
    kept = _retired(generation) if generation.kind == "backfill" else generation
    return msgspec.structs.replace(kept, brokers=was)


def _offsets(what: str, given: Mapping[int, int]) -> dict[str, int]:
    for partition, offset in given.items():
        if partition < 0 or offset < 0:
            raise InvalidError(what, f"partition {partition}: {offset}", "at least 0")
    return {str(partition): offset for partition, offset in sorted(given.items())}


def _with(pipeline: Pipeline, *generations: Generation) -> Pipeline:
    return msgspec.structs.replace(pipeline, generations=generations)
