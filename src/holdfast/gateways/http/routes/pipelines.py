"""Pipelines: listed, made, renamed, removed, started, stopped, scaled, and how they do."""

from datetime import UTC, datetime
from typing import Literal

import msgspec
from litestar import Response, delete, get, patch, post, put
from litestar.params import FromPath, JSONBody

from holdfast.gateways.http.routes.dependencies import (
    PIPELINE_PATH,
    PIPELINES_PATH,
    HttpRequest,
    PipelinesDependency,
    if_match_version,
    pipeline_id,
    pipeline_response,
    with_etag,
)
from holdfast.pipeline.catalog.worker_status import SlotAssignment, WorkerRecord
from holdfast.pipeline.model.definition import Pipeline, PipelineState
from holdfast.pipeline.service.status import PipelineStatus


class _PipelineBody(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What a body may hold."""


class NewPipeline(_PipelineBody, frozen=True):
    """A pipeline's name and what it is for."""

    name: str
    description: str = ""


class PipelineChange(_PipelineBody, frozen=True):
    """What is not said stays."""

    name: str | None = None
    description: str | None = None


class StateChange(_PipelineBody, frozen=True):
    """What is not said stays."""

    desired: Literal["started", "stopped"] | None = None
    replicas: int | None = None


class Replicas(_PipelineBody, frozen=True):
    """How many slots."""

    replicas: int


class Assignment(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Who holds a slot, and until when by its own account."""

    slot: int
    worker_id: str
    lease_until: str | None
    epoch: int

    @classmethod
    def of(cls, held: SlotAssignment) -> "Assignment":
        """As it is shown."""
        until = held.lease_until_ms
        text = None if until is None else datetime.fromtimestamp(until / 1000, UTC).isoformat(timespec="milliseconds")
        return cls(slot=held.slot, worker_id=held.worker_id, lease_until=text, epoch=held.epoch)


@get(PIPELINES_PATH, tags=["pipelines"], summary="All pipelines")
async def list_pipelines(pipelines: PipelinesDependency) -> list[Pipeline]:
    """Every pipeline, by name."""
    return list(await pipelines.catalog.list())


@post(PIPELINES_PATH, tags=["pipelines"], summary="A new pipeline")
async def create_pipeline(pipelines: PipelinesDependency, data: JSONBody[NewPipeline]) -> Response[Pipeline]:
    """Make a pipeline without parts, stopped. 409 if the name is taken."""
    made = await pipelines.catalog.create(data.name, data.description)
    return with_etag(made, made.version, location=f"{PIPELINES_PATH}/{made.id}")


@get(PIPELINE_PATH, tags=["pipelines"], summary="A pipeline")
async def get_pipeline(pipelines: PipelinesDependency, pipeline: FromPath[str]) -> Response[Pipeline]:
    """A pipeline, by its id or its name: its state, its generations, and what keeps it from running."""
    return pipeline_response(await pipelines.catalog.find(pipeline))


@put(PIPELINE_PATH, tags=["pipelines"], summary="Rename or describe")
async def update_pipeline(
    request: HttpRequest, pipelines: PipelinesDependency, pipeline: FromPath[str], data: JSONBody[PipelineChange]
) -> Response[Pipeline]:
    """Change the name or the description."""
    at = await pipeline_id(pipelines, pipeline)
    changed = await pipelines.catalog.update(
        at, name=data.name, description=data.description, expected=if_match_version(request)
    )
    return pipeline_response(changed)


@delete(PIPELINE_PATH, tags=["pipelines"], summary="Remove a pipeline")
async def delete_pipeline(request: HttpRequest, pipelines: PipelinesDependency, pipeline: FromPath[str]) -> None:
    """Remove a stopped pipeline with its parts and its progress. Its tables stay."""
    await pipelines.catalog.delete(await pipeline_id(pipelines, pipeline), expected=if_match_version(request))


@get(f"{PIPELINE_PATH}/state", tags=["state"], summary="What is wanted of it")
async def get_state(pipelines: PipelinesDependency, pipeline: FromPath[str]) -> Response[PipelineState]:
    """Started or stopped, and how many slots."""
    found = await pipelines.catalog.find(pipeline)
    return with_etag(found.state, found.version)


@put(f"{PIPELINE_PATH}/state", tags=["state"], summary="Set what is wanted of it")
async def put_state(
    request: HttpRequest, pipelines: PipelinesDependency, pipeline: FromPath[str], data: JSONBody[PipelineState]
) -> Response[PipelineState]:
    """Set both; what is left out has its default."""
    at = await pipeline_id(pipelines, pipeline)
    after = await pipelines.catalog.set_state(
        at, desired=data.desired, replicas=data.replicas, expected=if_match_version(request)
    )
    return with_etag(after.state, after.version)


@patch(f"{PIPELINE_PATH}/state", tags=["state"], summary="Change what is wanted of it")
async def patch_state(
    request: HttpRequest, pipelines: PipelinesDependency, pipeline: FromPath[str], data: JSONBody[StateChange]
) -> Response[PipelineState]:
    """Set one or both; what is left out stays."""
    at = await pipeline_id(pipelines, pipeline)
    after = await pipelines.catalog.set_state(
        at, desired=data.desired, replicas=data.replicas, expected=if_match_version(request)
    )
    return with_etag(after.state, after.version)


@post(f"{PIPELINE_PATH}/start", tags=["state"], summary="Start it", status_code=200)
async def start_pipeline(
    request: HttpRequest, pipelines: PipelinesDependency, pipeline: FromPath[str]
) -> Response[Pipeline]:
    """Workers run it from now on. 409 says what is missing."""
    return pipeline_response(
        await pipelines.start(await pipeline_id(pipelines, pipeline), expected=if_match_version(request))
    )


@post(f"{PIPELINE_PATH}/stop", tags=["state"], summary="Stop it", status_code=200)
async def stop_pipeline(
    request: HttpRequest, pipelines: PipelinesDependency, pipeline: FromPath[str]
) -> Response[Pipeline]:
    """Workers finish what is under way and let it go."""
    return pipeline_response(
        await pipelines.stop(await pipeline_id(pipelines, pipeline), expected=if_match_version(request))
    )


@post(f"{PIPELINE_PATH}/scale", tags=["state"], summary="Give it more or fewer slots", status_code=200)
async def scale_pipeline(
    request: HttpRequest, pipelines: PipelinesDependency, pipeline: FromPath[str], data: JSONBody[Replicas]
) -> Response[Pipeline]:
    """How many slots it has; those that stay are not disturbed."""
    at = await pipeline_id(pipelines, pipeline)
    return pipeline_response(await pipelines.scale(at, data.replicas, expected=if_match_version(request)))


@get(f"{PIPELINE_PATH}/status", tags=["state"], summary="How it does")
async def get_status(pipelines: PipelinesDependency, pipeline: FromPath[str]) -> PipelineStatus:
    """Rows, lag, slots, partitions and what is in the way, over all workers."""
    return await pipelines.status(await pipeline_id(pipelines, pipeline))


@get(f"{PIPELINE_PATH}/assignments", tags=["state"], summary="Who runs its slots")
async def get_assignments(pipelines: PipelinesDependency, pipeline: FromPath[str]) -> list[Assignment]:
    """Who holds which slot, and until when."""
    held = await pipelines.assignments(await pipeline_id(pipelines, pipeline))
    return [Assignment.of(each) for each in held]


@get("/api/status", tags=["state"], summary="How all pipelines do")
async def get_statuses(pipelines: PipelinesDependency) -> list[PipelineStatus]:
    """The status of every pipeline, by name."""
    return list(await pipelines.statuses())


@get("/api/workers", tags=["workers"], summary="All workers")
async def list_workers(pipelines: PipelinesDependency) -> list[WorkerRecord]:
    """Every live worker, with its slots and its Spark driver."""
    return list(await pipelines.workers())


HANDLERS = (
    list_pipelines,
    create_pipeline,
    get_pipeline,
    update_pipeline,
    delete_pipeline,
    get_state,
    put_state,
    patch_state,
    start_pipeline,
    stop_pipeline,
    scale_pipeline,
    get_status,
    get_assignments,
    get_statuses,
    list_workers,
)
