"""The parts of a pipeline: source, sink, mapping, filters, SQL, drift, query; each by itself, or several at once.

The service decodes the bodies, since it has the defaults and old spellings; their types are in the OpenAPI document. Secrets are
shown as `***`; a part that is sent back with `***` keeps the stored secret.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from litestar import Response, get, put
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath, FromQuery, RawBody

from holdfast.gateways.http.errors import MalformedBodyError, MissingPartError
from holdfast.gateways.http.etags import expected_part_versions, parts_etag
from holdfast.gateways.http.routes.dependencies import (
    PIPELINE_PATH,
    HttpRequest,
    PipelinesDependency,
    if_match_version,
    pipeline_id,
    with_etag,
)
from holdfast.pipeline.catalog.parts import Part
from holdfast.pipeline.catalog.secrets import redacted
from holdfast.pipeline.catalog.stored_parts import StoredPart
from holdfast.pipeline.model.column_mapping import Mapping as ColumnMapping
from holdfast.pipeline.model.column_mapping import mapping_json
from holdfast.pipeline.model.definition import (
    ClickHouseConfig,
    DriftPolicy,
    FiltersConfig,
    KafkaConfig,
    SinkConfig,
    SqlConfig,
)
from holdfast.pipeline.model.query import QueryConfig
from holdfast.pipeline.service.service import PipelineService
from holdfast.vocabulary.errors import InvalidError

_PART_DEFAULTS: Final[Mapping[str, Part]] = {
    "filters": FiltersConfig(),
    "sql": SqlConfig(),
    "drift": DriftPolicy(),
    "query": QueryConfig(),
}


class Parts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Parts that are saved together, all or none; those left out are unchanged."""

    source: KafkaConfig | msgspec.UnsetType = msgspec.UNSET
    sink: SinkConfig | msgspec.UnsetType = msgspec.UNSET
    mapping: ColumnMapping | msgspec.UnsetType = msgspec.UNSET
    filters: FiltersConfig | msgspec.UnsetType = msgspec.UNSET
    sql: SqlConfig | msgspec.UnsetType = msgspec.UNSET
    drift: DriftPolicy | msgspec.UnsetType = msgspec.UNSET
    query: QueryConfig | msgspec.UnsetType = msgspec.UNSET


def _redacted_json(part: Part) -> Any:
    """A part without its secrets."""
    safe = redacted(part)
    return mapping_json(safe) if isinstance(safe, ColumnMapping) else safe


async def _stored_part(pipelines: PipelineService, named: str, part: str) -> StoredPart:
    saved = (await pipelines.catalog.parts(await pipeline_id(pipelines, named))).get(part)
    if saved is not None:
        return saved
    if part not in _PART_DEFAULTS:
        raise MissingPartError(part, named, "it was never saved")
    return StoredPart(part, _PART_DEFAULTS[part], 0, 0)


def _part_routes(
    path: str, part: str, kind: Any, only: type | None = None
) -> tuple[HTTPRouteHandler, HTTPRouteHandler]:
    """GET and PUT of one part. `only`: the type the sink must have for this path."""

    @get(
        f"{PIPELINE_PATH}/{path}", tags=["parts"], summary=f"Read its {part}", name=f"get {path}", opt={"answer": kind}
    )
    async def read(pipelines: PipelinesDependency, pipeline: FromPath[str]) -> Response[Any]:
        saved = await _stored_part(pipelines, pipeline, part)
        if only is not None and not isinstance(saved.value, only):
            raise MissingPartError(path, pipeline, "its sink is of another kind; use sink-config")
        return with_etag(_redacted_json(saved.value), saved.version, part)

    @put(
        f"{PIPELINE_PATH}/{path}",
        tags=["parts"],
        summary=f"Save its {part}",
        name=f"put {path}",
        opt={"body": kind, "answer": kind},
    )
    async def write(
        request: HttpRequest, pipelines: PipelinesDependency, pipeline: FromPath[str], body: RawBody
    ) -> Response[Any]:
        at = await pipeline_id(pipelines, pipeline)
        given = _json_object(body)
        if only is not None and given.get("kind", "clickhouse") != "clickhouse":
            raise InvalidError(f"{part}.kind", str(given["kind"])[:100], "clickhouse; use sink-config for other sinks")
        after, saved = await pipelines.catalog.put_part(at, part, given, expected=if_match_version(request, part))
        problems = {"x-holdfast-problems": str(len(after.problems))} if after.problems else {}
        return with_etag(_redacted_json(saved.value), saved.version, part, **problems)

    return read, write


def _json_object(body: bytes) -> dict[str, Any]:
    try:
        given = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedBodyError(str(error)) from None
    if not isinstance(given, dict):
        raise MalformedBodyError("expected an object")
    return given


@get(f"{PIPELINE_PATH}/parts", tags=["parts"], summary="Read all parts")
async def get_parts(pipelines: PipelinesDependency, pipeline: FromPath[str]) -> Response[dict[str, Any]]:
    """All saved parts, as `holdfast pipeline apply` reads them; the ETag has the version of each."""
    found = await pipelines.catalog.find(pipeline)
    saved = await pipelines.catalog.parts(found.id)
    return _parts_response(saved)


@put(f"{PIPELINE_PATH}/parts", tags=["parts"], summary="Save several parts", opt={"body": Parts})
async def put_parts(
    request: HttpRequest,
    pipelines: PipelinesDependency,
    pipeline: FromPath[str],
    body: RawBody,
    dryRun: FromQuery[bool] = False,  # noqa: N803 (its name in the URL)
) -> Response[dict[str, Any]]:
    """Save parts together, all or none. With the ETag of `GET …/parts` in `If-Match`, only if none has changed.

    With `dryRun=true` nothing is saved: the answer has the parts as they would be.
    """
    at = await pipeline_id(pipelines, pipeline)
    given = _json_object(body)
    if dryRun:
        return _parts_response(await pipelines.catalog.planned_parts(at, given))
    expected = expected_part_versions(given, request.headers)
    after, saved = await pipelines.catalog.put_parts(at, given, expected=expected)
    return _parts_response(saved, **{"x-holdfast-problems": str(len(after.problems))})


def _parts_response(saved: Mapping[str, StoredPart], **more: str) -> Response[dict[str, Any]]:
    tag = parts_etag({name: part.version for name, part in saved.items()})
    return Response({name: _redacted_json(part.value) for name, part in saved.items()}, headers={"etag": tag, **more})


HANDLERS = (
    *_part_routes("kafka-config", "source", KafkaConfig),
    *_part_routes("clickhouse-config", "sink", ClickHouseConfig, ClickHouseConfig),
    *_part_routes("sink-config", "sink", SinkConfig),
    *_part_routes("mapping", "mapping", ColumnMapping),
    *_part_routes("filters-config", "filters", FiltersConfig),
    *_part_routes("sql-config", "sql", SqlConfig),
    *_part_routes("drift-config", "drift", DriftPolicy),
    *_part_routes("query-config", "query", QueryConfig),
    get_parts,
    put_parts,
)
