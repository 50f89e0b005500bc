"""The application: all routes, and the problem for every error in one. Importing this imports Litestar."""

import logging
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from litestar import Litestar, Request, Response
from litestar.datastructures import State
from litestar.di import Provide
from litestar.exceptions import HTTPException, MethodNotAllowedException, NotFoundException, ValidationException
from litestar.routes import HTTPRoute

from holdfast.gateways.http.asgi import Application
from holdfast.gateways.http.backend import HttpBackend
from holdfast.gateways.http.errors import CsrfError
from holdfast.gateways.http.guard import Guard
from holdfast.gateways.http.log.waits import Waits
from holdfast.gateways.http.metrics.pipelines import pipeline_metrics
from holdfast.gateways.http.middleware import REQUEST_ID, RequestMiddleware
from holdfast.gateways.http.openapi import OpenApiDocument
from holdfast.gateways.http.problems import (
    INTERNAL_ERROR,
    MALFORMED,
    METHOD_NOT_ALLOWED,
    NOT_FOUND,
    PROBLEM_MEDIA_TYPE,
    UNAVAILABLE,
    Fault,
    Problem,
    encode_problem,
    problem,
    problem_headers,
    problem_of_error,
    problem_type_of_status,
)
from holdfast.gateways.http.route_rules import check_routes
from holdfast.gateways.http.routes import (
    cluster,
    confirmations,
    consumer_groups,
    dead_letters,
    health,
    heap_dead_letters,
    heap_messages,
    heaps,
    inspection,
    openapi,
    parts,
    records,
    reprocessing,
    security,
    sessions,
    topics,
)
from holdfast.gateways.http.routes import pipelines as pipeline_routes
from holdfast.gateways.http.routes.bodies import JsonRequest
from holdfast.gateways.http.routes.heap_dependencies import HEAP_PATH, HeapRoutes
from holdfast.gateways.http.routes.log_dependencies import LOG_PATH, STATE, LogRoutes
from holdfast.gateways.http.routes.topics import TOPICS_PATH
from holdfast.gateways.http.schema_hints import allowed_values_at, json_pointer
from holdfast.gateways.http.security import REFUSED
from holdfast.pipeline.service.service import PipelineService
from holdfast.security.identity import AuthenticationError, ForbiddenError, TooManyAttemptsError
from holdfast.vocabulary.errors import HoldfastError
from holdfast.vocabulary.installation import install_hint

_log: Final = logging.getLogger(__name__)


def make_application(backend: HttpBackend, pipelines: PipelineService) -> Application:
    """All routes with their middleware."""
    handlers = [
        *health.HANDLERS,
        *openapi.HANDLERS,
        *pipeline_routes.HANDLERS,
        *parts.HANDLERS,
        *inspection.HANDLERS,
        *dead_letters.HANDLERS,
        *reprocessing.HANDLERS,
        *security.HANDLERS,
        *sessions.HANDLERS,
        *confirmations.HANDLERS,
    ]
    if backend.log is not None:
        handlers += [*topics.HANDLERS, *records.HANDLERS, *consumer_groups.HANDLERS, *cluster.HANDLERS]
        routes = LogRoutes.of(backend.log, backend.settings, backend.stopping, backend.counters)
    if backend.heaps is not None:
        handlers += [*heaps.HANDLERS, *heap_messages.HANDLERS, *heap_dead_letters.HANDLERS]
        waits = Waits(backend.counters, count_max=backend.settings.waits_max, stop=backend.stopping)
        heap_routes = HeapRoutes(calls=backend.heaps, waits=waits)
    dependencies = {
        "backend": Provide(lambda: backend, sync_to_thread=False),
        "confirmations": Provide(lambda: backend.confirmations, sync_to_thread=False),
        "pipelines": Provide(lambda: pipelines, sync_to_thread=False),
        "security": Provide(lambda: backend.security, sync_to_thread=False),
        "sources": Provide(lambda: sources, sync_to_thread=False),
        "document": Provide(lambda: document, sync_to_thread=False),
    }
    if backend.log is not None:
        dependencies["log"] = Provide(lambda: routes, sync_to_thread=False)
    if backend.heaps is not None:
        dependencies["heaps"] = Provide(lambda: heap_routes, sync_to_thread=False)
    sources = (*backend.metrics, pipeline_metrics(pipelines))
    document = OpenApiDocument(handlers, dependencies)
    inner = Litestar(
        route_handlers=handlers,
        dependencies=dependencies,
        middleware=[Guard(backend.security)] if backend.security is not None else [],
        exception_handlers={Exception: _handle_exception},
        request_class=JsonRequest,
        openapi_config=None,
        logging_config=None,
        request_max_body_size=None,
        state=State({STATE: routes} if backend.log is not None else {}),
    )
    check_routes(routes_of(inner))
    return RequestMiddleware(
        inner,
        audit=backend.security.record if backend.security is not None else None,
        access_policy=backend.access_policy,
        counters=backend.counters,
        settings=backend.settings,
        clock=backend.clock,
        random=backend.random,
        tracer=backend.tracer,
    )


def routes_of(application: Litestar) -> list[str]:
    """Every route, as the table of rules names it."""
    return [
        f"{method} {route.path_format}"
        for route in application.routes
        if isinstance(route, HTTPRoute)
        for method in route.methods
        if method != "OPTIONS"
    ]


def _handle_exception(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    problem_details = _problem_of(request, error)
    headers = problem_headers(problem_details)
    if isinstance(error, AuthenticationError | ForbiddenError | CsrfError | TooManyAttemptsError):
        request.scope[REFUSED] = error  # type: ignore[literal-required]
        headers |= _refusal_headers(error)
    if isinstance(error, MethodNotAllowedException):
        headers["allow"] = ", ".join(_allowed_methods(request))
    return Response(
        encode_problem(problem_details),
        status_code=problem_details.status,
        media_type=PROBLEM_MEDIA_TYPE,
        headers=headers,
    )


def _refusal_headers(error: HoldfastError) -> dict[str, str]:
    if isinstance(error, AuthenticationError):
        return {"www-authenticate": 'Bearer realm="holdfast", Basic realm="holdfast", charset="UTF-8"'}
    return {"retry-after": str(-(-error.retry_after_ms // 1_000))} if isinstance(error, TooManyAttemptsError) else {}


def _problem_of(request: Request[Any, Any, Any], error: Exception) -> Problem:
    match error:
        case HoldfastError():
            return problem_of_error(error, whole=request.scope["path"].endswith("/parts"), fields=_body_fields(request))
        case ValidationException():
            return _validation_problem(request, error)
        case ModuleNotFoundError():
            return problem(UNAVAILABLE, f"{error.name} is not installed on this server: {install_hint('all')}")
        case RecursionError():
            return problem(MALFORMED, "the body is nested too deeply")
        case NotFoundException():
            return problem(
                NOT_FOUND, f"{request.scope['path'][:200]!r} is not a path of this server; /openapi.json lists them"
            )
        case MethodNotAllowedException():
            return problem(
                METHOD_NOT_ALLOWED,
                f"{request.method} is not allowed here: must be one of {', '.join(_allowed_methods(request))}",
            )
        case HTTPException() if error.status_code < 500:
            return problem(problem_type_of_status(error.status_code), error.detail)
    request_id = request.scope.get(REQUEST_ID, "")
    _log.error("request %s failed", request_id, exc_info=error)
    return problem(INTERNAL_ERROR, f"see the log of this server for request {request_id}")


def _body_fields(request: Request[Any, Any, Any]) -> Sequence[str]:
    """The names in the body of a request about a heap, a topic or records, which errors of theirs use."""
    handler = request.scope.get("route_handler")
    named = request.scope["path"].startswith((HEAP_PATH, TOPICS_PATH, f"{LOG_PATH}/produce"))
    body = handler.opt.get("body") if handler is not None and named else None
    return () if body is None else [each.encode_name for each in msgspec.structs.fields(body)]


def _validation_problem(request: Request[Any, Any, Any], error: ValidationException) -> Problem:
    """A body, parameter or header of the wrong type."""
    cause = error.__cause__
    text = str(cause) if isinstance(cause, msgspec.ValidationError) else error.detail
    what, _, path = text.partition(" - at `")
    path = path.rstrip("`")
    handler = request.scope["route_handler"]
    kinds = {name: each.annotation for name, each in handler.parsed_fn_signature.parameters.items()}
    kinds.setdefault("data", handler.opt.get("body"))
    name, rest = _first_step(path or "$.data")
    if name == "data":
        fault = Fault(
            detail=what, pointer=json_pointer("$" + rest), allowed=allowed_values_at(kinds.get("data"), "$" + rest)
        )
    else:
        fault = Fault(detail=what, parameter=name, allowed=allowed_values_at(kinds.get(name), "$" + rest))
    return problem(MALFORMED, f"{fault.pointer or name}: {what}", fault)


def _first_step(path: str) -> tuple[str, str]:
    bare = path.removeprefix("$.")
    end = min((at for at in (bare.find("."), bare.find("[")) if at >= 0), default=len(bare))
    return bare[:end], bare[end:]


def _allowed_methods(request: Request[Any, Any, Any]) -> list[str]:
    """The methods of all routes that match the path."""
    steps = [step for step in request.scope["path"].split("/") if step]
    methods: set[str] = set()
    for route in request.app.routes:
        if isinstance(route, HTTPRoute) and _matches_path(route.path_components, steps):
            methods |= {str(each) for each in route.methods if each != "OPTIONS"}
    return sorted(methods)


def _matches_path(components: Sequence[Any], steps: Sequence[str]) -> bool:
    return len(components) == len(steps) and all(
        each == step for each, step in zip(components, steps, strict=True) if isinstance(each, str)
    )
