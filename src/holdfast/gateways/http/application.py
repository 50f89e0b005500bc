"""The application: all routes, and what becomes of everything that goes wrong in one. Importing this imports Litestar."""

import logging
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from litestar import Litestar, Request, Response
from litestar.di import Provide
from litestar.exceptions import HTTPException, MethodNotAllowedException, NotFoundException, ValidationException
from litestar.routes import HTTPRoute

from holdfast.gateways.http.allowed import allowed_at, pointer_of
from holdfast.gateways.http.asgi import Application
from holdfast.gateways.http.backend import Backend
from holdfast.gateways.http.guard import Guard
from holdfast.gateways.http.metrics.pipelines import pipeline_metrics
from holdfast.gateways.http.openapi import Described
from holdfast.gateways.http.problems import (
    FAILED,
    MALFORMED,
    MEDIA_TYPE,
    METHOD,
    NOT_FOUND,
    UNAVAILABLE,
    Fault,
    Problem,
    encoded,
    headers_of,
    kind_of_status,
    of_error,
    problem,
)
from holdfast.gateways.http.routes import again, described, health, looking, parts
from holdfast.gateways.http.routes import pipelines as pipeline_routes
from holdfast.pipeline.service import PipelineService
from holdfast.vocabulary.errors import HoldfastError

_log: Final = logging.getLogger(__name__)


def make_application(backend: Backend, pipelines: PipelineService) -> Application:
    """Everything between the socket and the services."""
    handlers = [
        *health.HANDLERS,
        *described.HANDLERS,
        *pipeline_routes.HANDLERS,
        *parts.HANDLERS,
        *looking.HANDLERS,
        *again.HANDLERS,
    ]
    dependencies = {
        "backend": Provide(lambda: backend, sync_to_thread=False),
        "pipelines": Provide(lambda: pipelines, sync_to_thread=False),
        "sources": Provide(lambda: sources, sync_to_thread=False),
        "document": Provide(lambda: document, sync_to_thread=False),
    }
    sources = (*backend.metrics, pipeline_metrics(pipelines))
    document = Described(handlers, dependencies)
    inner = Litestar(
        route_handlers=handlers,
        dependencies=dependencies,
        exception_handlers={Exception: _failed},
        openapi_config=None,
        logging_config=None,
        request_max_body_size=None,
    )
    return Guard(
        inner,
        doors=backend.doors,
        counters=backend.counters,
        settings=backend.settings,
        clock=backend.clock,
        chance=backend.chance,
    )


def _failed(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    said = _problem_of(request, error)
    headers = headers_of(said)
    if isinstance(error, MethodNotAllowedException):
        headers["allow"] = ", ".join(_methods(request))
    return Response(encoded(said), status_code=said.status, media_type=MEDIA_TYPE, headers=headers)


def _problem_of(request: Request[Any, Any, Any], error: Exception) -> Problem:
    match error:
        case HoldfastError():
            return of_error(error, whole=request.scope["path"].endswith("/parts"))
        case ValidationException():
            return _unreadable(request, error)
        case ModuleNotFoundError():
            return problem(UNAVAILABLE, f"this server lacks {error.name}: pip install 'holdfast[all]'")
        case RecursionError():
            return problem(MALFORMED, "the body is nested too deeply")
        case NotFoundException():
            return problem(
                NOT_FOUND, f"{request.scope['path'][:200]!r} is not a path of this server; /openapi.json has all"
            )
        case MethodNotAllowedException():
            return problem(METHOD, f"{request.method} is not for this path; it takes {', '.join(_methods(request))}")
        case HTTPException() if error.status_code < 500:
            return problem(kind_of_status(error.status_code), error.detail)
    _log.error("a request failed", exc_info=error)
    return problem(FAILED, "the log of this server says why")


def _unreadable(request: Request[Any, Any, Any], error: ValidationException) -> Problem:
    """A body, parameter or header that is not what its route takes."""
    cause = error.__cause__
    text = str(cause) if isinstance(cause, msgspec.ValidationError) else error.detail
    what, _, path = text.partition(" - at `")
    path = path.rstrip("`")
    handler = request.scope["route_handler"]
    kinds = {name: each.annotation for name, each in handler.parsed_fn_signature.parameters.items()}
    name, rest = _first_step(path or "$.data")
    if name == "data":
        fault = Fault(detail=what, pointer=pointer_of("$" + rest), allowed=allowed_at(kinds.get("data"), "$" + rest))
    else:
        fault = Fault(detail=what, parameter=name, allowed=allowed_at(kinds.get(name), "$" + rest))
    return problem(MALFORMED, f"{fault.pointer or name}: {what}", fault)


def _first_step(path: str) -> tuple[str, str]:
    bare = path.removeprefix("$.")
    end = min((at for at in (bare.find("."), bare.find("[")) if at >= 0), default=len(bare))
    return bare[:end], bare[end:]


def _methods(request: Request[Any, Any, Any]) -> list[str]:
    """What may be done with a path, of all routes it may mean."""
    steps = [step for step in request.scope["path"].split("/") if step]
    found: set[str] = set()
    for route in request.app.routes:
        if isinstance(route, HTTPRoute) and _leads_to(route.path_components, steps):
            found |= {str(each) for each in route.methods if each != "OPTIONS"}
    return sorted(found)


def _leads_to(components: Sequence[Any], steps: Sequence[str]) -> bool:
    return len(components) == len(steps) and all(
        each == step for each, step in zip(components, steps, strict=True) if isinstance(each, str)
    )
