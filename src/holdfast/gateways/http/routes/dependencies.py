"""Shared by the routes: the injected service, request bodies, the pipeline in the path, and versions."""

from typing import Any, TypeVar

from litestar import Request, Response
from litestar.di import NamedDependency
from litestar.params import SkipValidation

from holdfast.gateways.http.etags import PIPELINE, etag, expected_version
from holdfast.pipeline.model.definition import Pipeline
from holdfast.pipeline.service.service import PipelineService

PipelinesDependency = NamedDependency[SkipValidation[PipelineService]]
HttpRequest = Request[Any, Any, Any]
T = TypeVar("T")

PIPELINES_PATH = "/api/pipelines"
PIPELINE_PATH = PIPELINES_PATH + "/{pipeline:str}"


async def pipeline_id(pipelines: PipelineService, named: str) -> str:
    """The id of the pipeline in a path, which may also be its name. `UnknownPipelineError`: there is none."""
    return (await pipelines.catalog.find(named)).id


def if_match_version(request: HttpRequest, what: str = PIPELINE) -> int | None:
    """The version a change is conditional on; None: unconditional."""
    return expected_version(what, request.headers)


def with_etag(body: T, version: int, what: str = PIPELINE, **more: str) -> Response[T]:
    """A response with its version."""
    return Response(body, headers={"etag": etag(what, version), **more})


def pipeline_response(pipeline: Pipeline) -> Response[Pipeline]:
    """A pipeline with its version."""
    return with_etag(pipeline, pipeline.version)
