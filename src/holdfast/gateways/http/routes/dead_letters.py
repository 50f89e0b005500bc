"""Dead letters: records a pipeline rejected, and their replay."""

from litestar import get, post
from litestar.params import FromPath, FromQuery, JSONBody

from holdfast.gateways.http.routes.bodies import RequestBody
from holdfast.gateways.http.routes.dependencies import PIPELINE_PATH, PipelinesDependency, pipeline_id
from holdfast.pipeline.service.dead_letter_table import DeadLetterQuery
from holdfast.pipeline.service.responses import DeadLetterCount, DeadLetterRows, Replayed


class ReplayAsked(RequestBody, frozen=True):
    """Selects dead letters; by default all that wait."""

    generation: int | None = None
    partition: int | None = None
    offsets: tuple[int, ...] = ()
    reason: str = ""
    since_ms: int | None = None
    until_ms: int | None = None
    limit: int | None = None


@get(f"{PIPELINE_PATH}/dlq", tags=["reprocessing"], summary="List dead letters")
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
) -> DeadLetterRows:
    """A page of rejected records with payload, reason and offset; pass `after` for the next page."""
    chosen = DeadLetterQuery(
        generation=generation, partition=partition, reason=reason, since_ms=since_ms, until_ms=until_ms, waiting=waiting
    )
    at = await pipeline_id(pipelines, pipeline)
    return await pipelines.dead_letters.page(at, chosen, after=after, limit=limit)


@get(f"{PIPELINE_PATH}/dlq/count", tags=["reprocessing"], summary="Count dead letters")
async def count_dead_letters(
    pipelines: PipelinesDependency, pipeline: FromPath[str], waiting: FromQuery[bool] = False
) -> DeadLetterCount:
    """Totals, and the most frequent reasons."""
    at = await pipeline_id(pipelines, pipeline)
    return await pipelines.dead_letters.count(at, DeadLetterQuery(waiting=waiting))


@post(f"{PIPELINE_PATH}/dlq/replay", tags=["reprocessing"], summary="Replay dead letters", status_code=200)
async def replay(
    pipelines: PipelinesDependency, pipeline: FromPath[str], data: JSONBody[ReplayAsked | None] = None
) -> Replayed:
    """Process waiting dead letters by the newest revision. Repeating a replay stores nothing twice."""
    asked = data or ReplayAsked()
    chosen = DeadLetterQuery(
        generation=asked.generation,
        partition=asked.partition,
        offsets=asked.offsets,
        reason=asked.reason,
        since_ms=asked.since_ms,
        until_ms=asked.until_ms,
    )
    return await pipelines.dead_letters.replay(await pipeline_id(pipelines, pipeline), chosen, limit=asked.limit)


HANDLERS = (dead_letters, count_dead_letters, replay)
