"""Inspection before a pipeline runs: samples, inference, previews, filter trials, validation, tables."""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from litestar import get, post
from litestar.params import FromPath, FromQuery, JSONBody

from holdfast.gateways.http.routes.bodies import RequestBody
from holdfast.gateways.http.routes.dependencies import PIPELINE_PATH, PipelinesDependency, pipeline_id
from holdfast.pipeline.filters.trial import Trial
from holdfast.pipeline.service.responses import (
    Inferred,
    MigrationStatements,
    Preview,
    Sample,
    TableDiff,
    TableSchema,
    Validation,
)

SampleEnd = Literal["first", "last"]


class Unsaved(RequestBody, frozen=True):
    """Parts to use instead of the saved ones, by name: source, sink, mapping, filters, sql, drift."""

    parts: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)


class Look(Unsaved, frozen=True):
    """How many records, and from which end of the topic."""

    limit: int = 100
    where: SampleEnd = "last"


class FilterTrial(RequestBody, frozen=True, kw_only=True):
    """A filter to try on a sample, or on `values`."""

    expression: str
    limit: int = 100
    where: SampleEnd = "last"
    values: Sequence[Any] | None = None


@get(f"{PIPELINE_PATH}/sample", tags=["inspection"], summary="Sample the source")
async def sample(
    pipelines: PipelinesDependency,
    pipeline: FromPath[str],
    limit: FromQuery[int] = 100,
    where: FromQuery[SampleEnd] = "last",
) -> Sample:
    """Records of the source, unchanged, in the order of their timestamps."""
    return await pipelines.inspection.sample(await pipeline_id(pipelines, pipeline), limit=limit, where=where)


@post(f"{PIPELINE_PATH}/infer", tags=["inspection"], summary="Propose a mapping", status_code=200)
async def infer(
    pipelines: PipelinesDependency, pipeline: FromPath[str], data: JSONBody[Look | None] = None
) -> Inferred:
    """A mapping, a sorting key and a table name, proposed from a sample, with the evidence. Nothing is saved."""
    look = data or Look()
    return await pipelines.inspection.infer(
        await pipeline_id(pipelines, pipeline), limit=look.limit, where=look.where, unsaved=look.parts
    )


@post(f"{PIPELINE_PATH}/preview", tags=["inspection"], summary="Preview rows", status_code=200)
async def preview(
    pipelines: PipelinesDependency, pipeline: FromPath[str], data: JSONBody[Look | None] = None
) -> Preview:
    """Sample, filter and map: rows, rejected records with reasons, the DDL, and how the existing table differs."""
    look = data or Look(limit=20)
    return await pipelines.inspection.preview(
        await pipeline_id(pipelines, pipeline), limit=look.limit, where=look.where, unsaved=look.parts
    )


@post(f"{PIPELINE_PATH}/filters-eval", tags=["inspection"], summary="Try a filter", status_code=200)
async def try_filter(pipelines: PipelinesDependency, pipeline: FromPath[str], data: JSONBody[FilterTrial]) -> Trial:
    """For each record of a sample: kept, dropped or an error, and why."""
    return await pipelines.inspection.try_filter(
        await pipeline_id(pipelines, pipeline), data.expression, limit=data.limit, where=data.where, values=data.values
    )


@post(
    f"{PIPELINE_PATH}/validate/{{what:str}}",
    tags=["inspection"],
    summary="Check kafka, sink, clickhouse or clickhouse-table",
    status_code=200,
)
async def validate(
    pipelines: PipelinesDependency, pipeline: FromPath[str], what: FromPath[str], data: JSONBody[Unsaved | None] = None
) -> Validation:
    """Check the source, the server or the table, step by step."""
    unsaved = data.parts if data is not None else None
    return await pipelines.inspection.validate(await pipeline_id(pipelines, pipeline), what, unsaved=unsaved)


@get(f"{PIPELINE_PATH}/clickhouse/databases", tags=["inspection"], summary="List databases")
async def databases(pipelines: PipelinesDependency, pipeline: FromPath[str]) -> list[str]:
    """The databases of the sink's server."""
    return await pipelines.inspection.databases(await pipeline_id(pipelines, pipeline))


@get(f"{PIPELINE_PATH}/clickhouse/tables", tags=["inspection"], summary="List tables")
async def tables(pipelines: PipelinesDependency, pipeline: FromPath[str], database: FromQuery[str] = "") -> list[str]:
    """The tables of a database; by default of the sink's."""
    return await pipelines.inspection.tables(await pipeline_id(pipelines, pipeline), database)


@get(f"{PIPELINE_PATH}/clickhouse/schema", tags=["inspection"], summary="List columns")
async def schema(
    pipelines: PipelinesDependency, pipeline: FromPath[str], database: FromQuery[str] = "", table: FromQuery[str] = ""
) -> TableSchema:
    """The columns of a table; by default of the sink's."""
    return await pipelines.inspection.schema(await pipeline_id(pipelines, pipeline), database, table)


@get(f"{PIPELINE_PATH}/table-diff", tags=["inspection"], summary="Compare table and mapping")
async def table_diff(pipelines: PipelinesDependency, pipeline: FromPath[str]) -> TableDiff:
    """Missing and different columns, and the statements that would fix them; none is run."""
    return await pipelines.inspection.diff(await pipeline_id(pipelines, pipeline))


@post(f"{PIPELINE_PATH}/table", tags=["inspection"], summary="Create the table", status_code=200)
async def make_table(pipelines: PipelinesDependency, pipeline: FromPath[str]) -> TableDiff:
    """Create the sink's table if it does not exist. An existing table is never changed."""
    return await pipelines.inspection.create_table(await pipeline_id(pipelines, pipeline))


@get(f"{PIPELINE_PATH}/migration", tags=["inspection"], summary="Show the migration of the tables")
async def pending_migration(pipelines: PipelinesDependency, pipeline: FromPath[str]) -> MigrationStatements:
    """The statements that tables of an earlier release need; none is run."""
    return await pipelines.migration.pending(await pipeline_id(pipelines, pipeline))


@post(f"{PIPELINE_PATH}/migration", tags=["inspection"], summary="Migrate the tables", status_code=200)
async def migrate(pipelines: PipelinesDependency, pipeline: FromPath[str]) -> MigrationStatements:
    """Run the statements of the migration. It may be repeated."""
    return await pipelines.migration.apply(await pipeline_id(pipelines, pipeline))


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
    pending_migration,
    migrate,
)
