"""Looking before anything runs: samples, inference, previews, filters tried, servers validated, tables compared and made."""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from litestar import get, post
from litestar.params import FromPath, FromQuery, JSONBody

from holdfast.gateways.http.routes.dependencies import PIPELINE_PATH, PipelinesDependency, pipeline_id
from holdfast.pipeline.filters.trial import Trial
from holdfast.pipeline.service.responses import Inferred, Preview, Sample, TableDiff, TableSchema, Validation

SampleEnd = Literal["first", "last"]


class Unsaved(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Parts to look at instead of the saved ones, by name: source, sink, mapping, filters, sql, drift."""

    parts: dict[str, dict[str, Any]] = {}


class Look(Unsaved, frozen=True):
    """How many records, and from which end of the topic."""

    limit: int = 100
    where: SampleEnd = "last"


class FilterTrial(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A filter to try on a sample, or on `values`."""

    expression: str
    limit: int = 100
    where: SampleEnd = "last"
    values: Sequence[Any] | None = None


@get(f"{PIPELINE_PATH}/sample", tags=["looking"], summary="Some records of the source")
async def sample(
    pipelines: PipelinesDependency,
    pipeline: FromPath[str],
    limit: FromQuery[int] = 100,
    where: FromQuery[SampleEnd] = "last",
) -> Sample:
    """Records of the source as they are, in the order of their times."""
    return await pipelines.looking.sample(await pipeline_id(pipelines, pipeline), limit=limit, where=where)


@post(f"{PIPELINE_PATH}/infer", tags=["looking"], summary="Propose a mapping", status_code=200)
async def infer(
    pipelines: PipelinesDependency, pipeline: FromPath[str], data: JSONBody[Look | None] = None
) -> Inferred:
    """A mapping, a sorting key and a table name, proposed from a sample, with the evidence. Nothing is saved."""
    look = data or Look()
    return await pipelines.looking.infer(
        await pipeline_id(pipelines, pipeline), limit=look.limit, where=look.where, unsaved=look.parts
    )


@post(f"{PIPELINE_PATH}/preview", tags=["looking"], summary="Rows as they would be stored", status_code=200)
async def preview(
    pipelines: PipelinesDependency, pipeline: FromPath[str], data: JSONBody[Look | None] = None
) -> Preview:
    """Sample, filter and map: rows, refusals with their reasons, the DDL, and how the table there is differs."""
    look = data or Look(limit=20)
    return await pipelines.looking.preview(
        await pipeline_id(pipelines, pipeline), limit=look.limit, where=look.where, unsaved=look.parts
    )


@post(f"{PIPELINE_PATH}/filters-eval", tags=["looking"], summary="Try a filter", status_code=200)
async def try_filter(pipelines: PipelinesDependency, pipeline: FromPath[str], data: JSONBody[FilterTrial]) -> Trial:
    """For each record of a sample: kept, dropped or an error, and why."""
    return await pipelines.looking.try_filter(
        await pipeline_id(pipelines, pipeline), data.expression, limit=data.limit, where=data.where, values=data.values
    )


@post(
    f"{PIPELINE_PATH}/validate/{{what:str}}",
    tags=["looking"],
    summary="Check kafka, clickhouse or clickhouse-table",
    status_code=200,
)
async def validate(
    pipelines: PipelinesDependency, pipeline: FromPath[str], what: FromPath[str], data: JSONBody[Unsaved | None] = None
) -> Validation:
    """Check the source, the server or the table, one thing after the other."""
    unsaved = data.parts if data is not None else None
    return await pipelines.looking.validate(await pipeline_id(pipelines, pipeline), what, unsaved=unsaved)


@get(f"{PIPELINE_PATH}/clickhouse/databases", tags=["looking"], summary="The sink's databases")
async def databases(pipelines: PipelinesDependency, pipeline: FromPath[str]) -> list[str]:
    """The databases of the sink's server."""
    return await pipelines.looking.databases(await pipeline_id(pipelines, pipeline))


@get(f"{PIPELINE_PATH}/clickhouse/tables", tags=["looking"], summary="The tables of a database")
async def tables(pipelines: PipelinesDependency, pipeline: FromPath[str], database: FromQuery[str] = "") -> list[str]:
    """The tables of a database, or of the sink's."""
    return await pipelines.looking.tables(await pipeline_id(pipelines, pipeline), database)


@get(f"{PIPELINE_PATH}/clickhouse/schema", tags=["looking"], summary="The columns of a table")
async def schema(
    pipelines: PipelinesDependency, pipeline: FromPath[str], database: FromQuery[str] = "", table: FromQuery[str] = ""
) -> TableSchema:
    """The columns of a table, or of the sink's."""
    return await pipelines.looking.schema(await pipeline_id(pipelines, pipeline), database, table)


@get(f"{PIPELINE_PATH}/table-diff", tags=["looking"], summary="What is between the table and the mapping")
async def table_diff(pipelines: PipelinesDependency, pipeline: FromPath[str]) -> TableDiff:
    """What is missing or different, and the statements that would help; none is run."""
    return await pipelines.looking.diff(await pipeline_id(pipelines, pipeline))


@post(f"{PIPELINE_PATH}/table", tags=["looking"], summary="Create the table", status_code=200)
async def make_table(pipelines: PipelinesDependency, pipeline: FromPath[str]) -> TableDiff:
    """Create the sink's table if there is none. A table that is there is never changed."""
    return await pipelines.looking.make_table(await pipeline_id(pipelines, pipeline))


HANDLERS = (
    sample,
    infer,
    preview,
    try_filter,
    validate,
    databases,
    tables,
    schema,
    table_diff,
    make_table,
)
