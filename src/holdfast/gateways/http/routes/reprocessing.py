"""Doing it again: what was refused (the DLQ and its replay), and what was read (rewind and backfill)."""

from typing import Any

import msgspec
from litestar import Response, delete, get, post
from litestar.params import FromPath, FromQuery, JSONBody

from holdfast.gateways.http.routes.dependencies import (
    PIPELINE_PATH,
    HttpRequest,
    PipelinesDependency,
    if_match_version,
    pipeline_id,
    pipeline_response,
    with_etag,
)
from holdfast.pipeline.model.definition import EARLIEST, LATEST, Generation, Pipeline
from holdfast.pipeline.service.dead_letter_table import DeadLetterFilter
from holdfast.pipeline.service.responses import DeadLetterCount, DeadLetters, Replayed
from holdfast.pipeline.service.rewind_rules import read_position


class _ReprocessingBody(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What a body may hold."""


class ReplayAsked(_ReprocessingBody, frozen=True):
    """Which dead letters; without anything, all that wait."""

    generation: int | None = None
    partition: int | None = None
    offsets: tuple[int, ...] = ()
    reason: str = ""
    since_ms: int | None = None
    until_ms: int | None = None
    limit: int | None = None


class RewindAsked(_ReprocessingBody, frozen=True):
    """`to`: earliest, latest, an ISO 8601 time, or offsets by partition."""

    to: str | dict[str, int] = EARLIEST
    delete_previous: bool = False


class BackfillAsked(_ReprocessingBody, frozen=True):
    """Both ends as in a rewind."""

    start: str | dict[str, int] = msgspec.field(name="from", default=EARLIEST)
    end: str | dict[str, int] = msgspec.field(name="to", default=LATEST)


class Begun(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A generation that was begun, and the pipeline that has it."""

    generation: Generation
    pipeline: Pipeline


@get(f"{PIPELINE_PATH}/dlq", tags=["again"], summary="What was refused")
async def dead_letters(
    pipelines: PipelinesDependency,
    pipeline: FromPath[str],
    limit: FromQuery[int] = 100,
    after: FromQuery[str] = "",
    generation: FromQuery[int | None] = None,
    partition: FromQuery[int | None] = None,
    reason: FromQuery[str] = "",
    since_ms: FromQuery[int | None] = None,
    until_ms: FromQuery[int | None] = None,
    waiting: FromQuery[bool] = False,
) -> DeadLetters:
    """A page of refused records with payload, reason and offset; `after` asks for the next."""
    chosen = DeadLetterFilter(
        generation=generation, partition=partition, reason=reason, since_ms=since_ms, until_ms=until_ms, waiting=waiting
    )
    at = await pipeline_id(pipelines, pipeline)
    return await pipelines.letters.page(at, chosen, after=after, limit=limit)


@get(f"{PIPELINE_PATH}/dlq/count", tags=["again"], summary="How many were refused, and why")
async def count_dead_letters(
    pipelines: PipelinesDependency, pipeline: FromPath[str], waiting: FromQuery[bool] = False
) -> DeadLetterCount:
    """Totals, and the most frequent reasons."""
    at = await pipeline_id(pipelines, pipeline)
    return await pipelines.letters.count(at, DeadLetterFilter(waiting=waiting))


@post(f"{PIPELINE_PATH}/dlq/replay", tags=["again"], summary="Try refused records again", status_code=200)
async def replay(
    pipelines: PipelinesDependency, pipeline: FromPath[str], data: JSONBody[ReplayAsked | None] = None
) -> Replayed:
    """Put what waits through the newest recipe. Asking twice stores nothing twice."""
    asked = data or ReplayAsked()
    chosen = DeadLetterFilter(
        generation=asked.generation,
        partition=asked.partition,
        offsets=asked.offsets,
        reason=asked.reason,
        since_ms=asked.since_ms,
        until_ms=asked.until_ms,
    )
    return await pipelines.letters.replay(await pipeline_id(pipelines, pipeline), chosen, limit=asked.limit)


@post(f"{PIPELINE_PATH}/rewind", tags=["again"], summary="Read the source again", status_code=200)
async def rewind(
    request: HttpRequest, pipelines: PipelinesDependency, pipeline: FromPath[str], data: JSONBody[RewindAsked]
) -> Response[Begun]:
    """Retire the live generation and begin the next one where `to` says."""
    after, generation = await pipelines.rewinds.rewind(
        await pipeline_id(pipelines, pipeline),
        read_position(_plain(data.to)),
        delete_previous=data.delete_previous,
        expected=if_match_version(request),
    )
    return with_etag(Begun(generation=generation, pipeline=after), after.version)


@post(f"{PIPELINE_PATH}/backfill", tags=["again"], summary="Read a part of the source again", status_code=200)
async def backfill(
    request: HttpRequest, pipelines: PipelinesDependency, pipeline: FromPath[str], data: JSONBody[BackfillAsked]
) -> Response[Begun]:
    """Read from … to again, beside the live generation."""
    after, generation = await pipelines.rewinds.backfill(
        await pipeline_id(pipelines, pipeline),
        read_position(_plain(data.start), "from"),
        read_position(_plain(data.end), "to"),
        expected=if_match_version(request),
    )
    return with_etag(Begun(generation=generation, pipeline=after), after.version)


@delete(f"{PIPELINE_PATH}/backfill/{{generation:int}}", tags=["again"], summary="Give a backfill up", status_code=200)
async def give_up(
    pipelines: PipelinesDependency, pipeline: FromPath[str], generation: FromPath[int]
) -> Response[Pipeline]:
    """End a backfill before it is done. What it has written stays."""
    return pipeline_response(await pipelines.rewinds.give_up(await pipeline_id(pipelines, pipeline), generation))


def _plain(given: str | dict[str, int]) -> Any:
    return given


HANDLERS = (dead_letters, count_dead_letters, replay, rewind, backfill, give_up)
