"""Pipelines: create, list, edit, delete, start, stop, scale, status."""

from datetime import UTC, datetime
from typing import Literal

import msgspec
from litestar import Response, delete, get, patch, post, put
from litestar.params import FromPath, FromQuery, JSONBody

from holdfast.gateways.http.routes.bodies import RequestBody
from holdfast.gateways.http.routes.confirmations import ConfirmationsDependency, principal_of
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
from holdfast.security.confirmations import Action


class NewPipeline(RequestBody, frozen=True):
    """Name and description of a new pipeline."""

    name: str
    description: str = ""


class PipelineChange(RequestBody, frozen=True):
    """Fields that are left out are unchanged."""

    name: str | None = None
    description: str | None = None


class StateChange(RequestBody, frozen=True):
    """Fields that are left out are unchanged."""

    desired: Literal["started", "stopped"] | None = None
    replicas: int | None = None


class Replicas(RequestBody, frozen=True):
    """The number of slots."""

    replicas: int


class Assignment(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The worker that holds a slot, and its own deadline for the lease."""

    slot: int
    worker_id: str
    lease_until: str | None
    epoch: int

    @classmethod
    def of(cls, held: SlotAssignment) -> "Assignment":
        """The response for an assignment."""
        until = held.lease_until_ms
        text = None if until is None else datetime.fromtimestamp(until / 1000, UTC).isoformat(timespec="milliseconds")
        return cls(slot=held.slot, worker_id=held.worker_id, lease_until=text, epoch=held.epoch)


@get(PIPELINES_PATH, tags=["pipelines"], summary="List pipelines")
async def list_pipelines(pipelines: PipelinesDependency) -> list[Pipeline]:
    """Every pipeline, by name."""
    return list(await pipelines.catalog.list())


@post(PIPELINES_PATH, tags=["pipelines"], summary="Create a pipeline")
async def create_pipeline(pipelines: PipelinesDependency, data: JSONBody[NewPipeline]) -> Response[Pipeline]:
    """Create a stopped pipeline without parts. 409 if the name is taken."""
    created = await pipelines.catalog.create(data.name, data.description)
    return with_etag(created, created.version, location=f"{PIPELINES_PATH}/{created.id}")


@get(PIPELINE_PATH, tags=["pipelines"], summary="Read a pipeline")
async def get_pipeline(pipelines: PipelinesDependency, pipeline: FromPath[str]) -> Response[Pipeline]:
    """A pipeline, by id or name: its state, its generations, and the problems that keep it from running."""
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


@delete(PIPELINE_PATH, tags=["pipelines"], summary="Delete a pipeline")
async def delete_pipeline(
    request: HttpRequest,
    pipelines: PipelinesDependency,
    confirmations: ConfirmationsDependency,
    pipeline: FromPath[str],
    force: FromQuery[bool] = False,
    confirmation_token: FromQuery[str] = "",
) -> None:
    """Delete a stopped pipeline with its parts and its progress. Its tables are kept.

    Where `confirmations.required` says so, it takes `force` and a token for the name or id in the path.
    """
    await confirmations.check(
        Action.DELETE_PIPELINE, pipeline, force=force, token=confirmation_token, principal=principal_of(request)
    )
    await pipelines.catalog.delete(await pipeline_id(pipelines, pipeline), expected=if_match_version(request))


@get(f"{PIPELINE_PATH}/state", tags=["state"], summary="Desired state")
async def get_state(pipelines: PipelinesDependency, pipeline: FromPath[str]) -> Response[PipelineState]:
    """Started or stopped, and the number of slots."""
    found = await pipelines.catalog.find(pipeline)
    return with_etag(found.state, found.version)


@put(f"{PIPELINE_PATH}/state", tags=["state"], summary="Replace the desired state")
async def put_state(
    request: HttpRequest, pipelines: PipelinesDependency, pipeline: FromPath[str], data: JSONBody[PipelineState]
) -> Response[PipelineState]:
    """Set all fields; those left out get their defaults."""
    at = await pipeline_id(pipelines, pipeline)
    after = await pipelines.catalog.set_state(
        at, desired=data.desired, replicas=data.replicas, expected=if_match_version(request)
    )
    return with_etag(after.state, after.version)


@patch(f"{PIPELINE_PATH}/state", tags=["state"], summary="Change the desired state")
async def patch_state(
    request: HttpRequest, pipelines: PipelinesDependency, pipeline: FromPath[str], data: JSONBody[StateChange]
) -> Response[PipelineState]:
    """Set some fields; those left out are unchanged."""
    at = await pipeline_id(pipelines, pipeline)
    after = await pipelines.catalog.set_state(
        at, desired=data.desired, replicas=data.replicas, expected=if_match_version(request)
    )
    return with_etag(after.state, after.version)


@post(f"{PIPELINE_PATH}/start", tags=["state"], summary="Start", status_code=200)
async def start_pipeline(
    request: HttpRequest, pipelines: PipelinesDependency, pipeline: FromPath[str]
) -> Response[Pipeline]:
    """Have workers run it. 409 with the reasons if it is incomplete."""
    return pipeline_response(
        await pipelines.start(await pipeline_id(pipelines, pipeline), expected=if_match_version(request))
    )


@post(f"{PIPELINE_PATH}/stop", tags=["state"], summary="Stop", status_code=200)
async def stop_pipeline(
    request: HttpRequest, pipelines: PipelinesDependency, pipeline: FromPath[str]
) -> Response[Pipeline]:
    """Have workers finish the batch in flight and release it."""
    return pipeline_response(
        await pipelines.stop(await pipeline_id(pipelines, pipeline), expected=if_match_version(request))
    )


@post(f"{PIPELINE_PATH}/scale", tags=["state"], summary="Scale", status_code=200)
async def scale_pipeline(
    request: HttpRequest, pipelines: PipelinesDependency, pipeline: FromPath[str], data: JSONBody[Replicas]
) -> Response[Pipeline]:
    """Set the number of slots; remaining slots are not interrupted."""
    at = await pipeline_id(pipelines, pipeline)
    return pipeline_response(await pipelines.scale(at, data.replicas, expected=if_match_version(request)))


@get(f"{PIPELINE_PATH}/status", tags=["state"], summary="Status")
async def get_status(pipelines: PipelinesDependency, pipeline: FromPath[str]) -> PipelineStatus:
    """Rows, lag, slots, partitions and problems, over all workers."""
    return await pipelines.status(await pipeline_id(pipelines, pipeline))


@get(f"{PIPELINE_PATH}/assignments", tags=["state"], summary="Slot assignments")
async def get_assignments(pipelines: PipelinesDependency, pipeline: FromPath[str]) -> list[Assignment]:
    """The worker of each slot, and the end of its lease."""
    held = await pipelines.assignments(await pipeline_id(pipelines, pipeline))
    return [Assignment.of(each) for each in held]


@get("/api/status", tags=["state"], summary="Status of all pipelines")
async def get_statuses(pipelines: PipelinesDependency) -> list[PipelineStatus]:
    """The status of every pipeline, by name."""
    return list(await pipelines.statuses())


@get("/api/workers", tags=["workers"], summary="List workers")
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
