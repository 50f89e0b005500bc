"""The parts of a pipeline: source, sink, mapping, filters, SQL, drift; each by itself, or all at once.

A body goes to the service as it came, which knows the defaults and old spellings; its type is in the OpenAPI document. Secrets are
shown as `***`; a part that is sent back with it keeps what is stored.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from litestar import Response, get, put
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath, RawBody

from holdfast.gateways.http.errors import MissingPartError, UnreadableError
from holdfast.gateways.http.etags import expected_parts, parts_etag
from holdfast.gateways.http.routes.asking import ONE, Asked, Pipelines, pipeline_id, seen, tagged
from holdfast.pipeline.checking import Part
from holdfast.pipeline.filters.config import FiltersConfig
from holdfast.pipeline.mapping.nouns import Mapping as ColumnMapping
from holdfast.pipeline.mapping.nouns import mapping_json
from holdfast.pipeline.nouns import ClickHouseConfig, DriftPolicy, KafkaConfig, SinkConfig, SqlConfig
from holdfast.pipeline.secrets import redacted
from holdfast.pipeline.service import PipelineService
from holdfast.pipeline.stored import StoredPart
from holdfast.vocabulary.errors import InvalidError

_DEFAULTS: Final[Mapping[str, Part]] = {"filters": FiltersConfig(), "sql": SqlConfig(), "drift": DriftPolicy()}


class Parts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Parts that are saved together, all or none; those left out stay."""

    source: KafkaConfig | msgspec.UnsetType = msgspec.UNSET
    sink: SinkConfig | msgspec.UnsetType = msgspec.UNSET
    mapping: ColumnMapping | msgspec.UnsetType = msgspec.UNSET
    filters: FiltersConfig | msgspec.UnsetType = msgspec.UNSET
    sql: SqlConfig | msgspec.UnsetType = msgspec.UNSET
    drift: DriftPolicy | msgspec.UnsetType = msgspec.UNSET


def _shown(part: Part) -> Any:
    """A part as anybody may see it."""
    safe = redacted(part)
    return mapping_json(safe) if isinstance(safe, ColumnMapping) else safe


async def _stored(pipelines: PipelineService, named: str, part: str) -> StoredPart:
    saved = (await pipelines.catalog.parts(await pipeline_id(pipelines, named))).get(part)
    if saved is not None:
        return saved
    if part not in _DEFAULTS:
        raise MissingPartError(part, named, "it was not saved yet")
    return StoredPart(part, _DEFAULTS[part], 0, 0)


def _family(path: str, part: str, kind: Any, only: type | None = None) -> tuple[HTTPRouteHandler, HTTPRouteHandler]:
    """GET and PUT of one part. `only`: what the sink must be for this path."""

    @get(f"{ONE}/{path}", tags=["parts"], summary=f"Its {part}", name=f"get {path}", opt={"answer": kind})
    async def read(pipelines: Pipelines, pipeline: FromPath[str]) -> Response[Any]:
        saved = await _stored(pipelines, pipeline, part)
        if only is not None and not isinstance(saved.value, only):
            raise MissingPartError(path, pipeline, "its sink is of another kind; read it as sink-config")
        return tagged(_shown(saved.value), saved.version, part)

    @put(
        f"{ONE}/{path}",
        tags=["parts"],
        summary=f"Save its {part}",
        name=f"put {path}",
        opt={"body": kind, "answer": kind},
    )
    async def write(request: Asked, pipelines: Pipelines, pipeline: FromPath[str], body: RawBody) -> Response[Any]:
        at = await pipeline_id(pipelines, pipeline)
        given = _object(body)
        if only is not None and given.get("kind", "clickhouse") != "clickhouse":
            raise InvalidError(
                f"{part}.kind", str(given["kind"])[:100], "clickhouse; other sinks are saved as sink-config"
            )
        after, saved = await pipelines.catalog.put_part(at, part, given, expected=seen(request, part))
        problems = {"x-holdfast-problems": str(len(after.problems))} if after.problems else {}
        return tagged(_shown(saved.value), saved.version, part, **problems)

    return read, write


def _object(body: bytes) -> dict[str, Any]:
    try:
        given = msgspec.json.decode(body)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise UnreadableError(str(error)) from None
    if not isinstance(given, dict):
        raise UnreadableError("expected an object")
    return given


@get(f"{ONE}/parts", tags=["parts"], summary="All its parts")
async def get_parts(pipelines: Pipelines, pipeline: FromPath[str]) -> Response[dict[str, Any]]:
    """Every part that was saved, as `holdfast pipeline apply` reads it; the ETag holds each one's version."""
    found = await pipelines.catalog.find(pipeline)
    saved = await pipelines.catalog.parts(found.id)
    return _together(saved)


@put(f"{ONE}/parts", tags=["parts"], summary="Save several parts", opt={"body": Parts})
async def put_parts(
    request: Asked, pipelines: Pipelines, pipeline: FromPath[str], body: RawBody
) -> Response[dict[str, Any]]:
    """Save parts together, all or none. With the ETag of `GET …/parts` in `If-Match`, only over those versions."""
    at = await pipeline_id(pipelines, pipeline)
    given = _object(body)
    wanted = expected_parts(given, request.headers)
    after, saved = await pipelines.catalog.put_parts(at, given, expected=wanted)
    return _together(saved, **{"x-holdfast-problems": str(len(after.problems))})


def _together(saved: Mapping[str, StoredPart], **more: str) -> Response[dict[str, Any]]:
    tag = parts_etag({name: part.version for name, part in saved.items()})
    return Response({name: _shown(part.value) for name, part in saved.items()}, headers={"etag": tag, **more})


HANDLERS = (
    *_family("kafka-config", "source", KafkaConfig),
    *_family("clickhouse-config", "sink", ClickHouseConfig, ClickHouseConfig),
    *_family("sink-config", "sink", SinkConfig),
    *_family("mapping", "mapping", ColumnMapping),
    *_family("filters-config", "filters", FiltersConfig),
    *_family("sql-config", "sql", SqlConfig),
    *_family("drift-config", "drift", DriftPolicy),
    get_parts,
    put_parts,
)
