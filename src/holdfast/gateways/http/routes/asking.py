"""What routes about pipelines share: the service, the pipeline in the path, and how versions are told."""

from typing import Any, TypeVar

from litestar import Request, Response
from litestar.di import NamedDependency
from litestar.params import SkipValidation

from holdfast.gateways.http.etags import PIPELINE, etag, expected
from holdfast.pipeline.nouns import Pipeline
from holdfast.pipeline.service import PipelineService

Pipelines = NamedDependency[SkipValidation[PipelineService]]
Asked = Request[Any, Any, Any]
T = TypeVar("T")

BASE = "/api/pipelines"
ONE = BASE + "/{pipeline:str}"


async def pipeline_id(pipelines: PipelineService, named: str) -> str:
    """The id of the pipeline in a path, which may also be its name. `UnknownPipelineError`."""
    return (await pipelines.catalog.find(named)).id


def seen(request: Asked, what: str = PIPELINE) -> int | None:
    """The version a change was made to, if it says so."""
    return expected(what, request.headers)


def tagged(body: T, version: int, what: str = PIPELINE, **more: str) -> Response[T]:
    """An answer with its version."""
    return Response(body, headers={"etag": etag(what, version), **more})


def shown(pipeline: Pipeline) -> Response[Pipeline]:
    """A pipeline with its version."""
    return tagged(pipeline, pipeline.version)
