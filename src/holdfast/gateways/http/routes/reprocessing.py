"""Reprocessing of the source: rewind and backfill."""

import msgspec
from litestar import Response, delete, post
from litestar.params import FromPath, JSONBody

from holdfast.gateways.http.routes.bodies import RequestBody
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
from holdfast.pipeline.service.rewind_rules import read_position


class RewindAsked(RequestBody, frozen=True):
    """`to`: earliest, latest, an ISO 8601 time, or offsets by partition."""

    to: str | dict[str, int] = EARLIEST
    delete_previous: bool = False


class BackfillAsked(RequestBody, frozen=True):
    """Both ends are given as in a rewind."""

    start: str | dict[str, int] = msgspec.field(name="from", default=EARLIEST)
    end: str | dict[str, int] = msgspec.field(name="to", default=LATEST)


class Begun(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The new generation, and its pipeline."""

    generation: Generation
    pipeline: Pipeline


@post(f"{PIPELINE_PATH}/rewind", tags=["reprocessing"], summary="Rewind", status_code=200)
async def rewind(
    request: HttpRequest, pipelines: PipelinesDependency, pipeline: FromPath[str], data: JSONBody[RewindAsked]
) -> Response[Begun]:
    """Retire the live generation and start the next one at `to`."""
    after, generation = await pipelines.reprocessing.rewind(
        await pipeline_id(pipelines, pipeline),
        read_position(data.to),
        delete_previous=data.delete_previous,
        expected=if_match_version(request),
    )
    return with_etag(Begun(generation=generation, pipeline=after), after.version)


@post(f"{PIPELINE_PATH}/backfill", tags=["reprocessing"], summary="Backfill", status_code=200)
async def backfill(
    request: HttpRequest, pipelines: PipelinesDependency, pipeline: FromPath[str], data: JSONBody[BackfillAsked]
) -> Response[Begun]:
    """Read a range of the source again, beside the live generation."""
    after, generation = await pipelines.reprocessing.backfill(
        await pipeline_id(pipelines, pipeline),
        read_position(data.start, "from"),
        read_position(data.end, "to"),
        expected=if_match_version(request),
    )
    return with_etag(Begun(generation=generation, pipeline=after), after.version)


@delete(
    f"{PIPELINE_PATH}/backfill/{{generation:int}}", tags=["reprocessing"], summary="Cancel a backfill", status_code=200
)
async def give_up(
    pipelines: PipelinesDependency, pipeline: FromPath[str], generation: FromPath[int]
) -> Response[Pipeline]:
    """Cancel a backfill. Rows it has written are kept."""
    return pipeline_response(
        await pipelines.reprocessing.cancel_backfill(await pipeline_id(pipelines, pipeline), generation)
    )


HANDLERS = (rewind, backfill, give_up)
