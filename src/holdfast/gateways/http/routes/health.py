"""Whether this process lives and can do its work, and its numbers. None of it needs a body, a name or a permission."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

import msgspec
from litestar import Response, get
from litestar.di import NamedDependency
from litestar.params import SkipValidation

from holdfast import __version__
from holdfast.gateways.http.backend import HttpBackend
from holdfast.gateways.http.health import Checked, run_checks
from holdfast.gateways.http.metrics.exposition import MEDIA_TYPE, MetricFamily, MetricSource, gauge, render_exposition
from holdfast.gateways.http.problems import MEDIA_TYPE as PROBLEM
from holdfast.gateways.http.problems import NOT_READY, encode_problem, problem, problem_headers
from holdfast.vocabulary.errors import HoldfastError

_log: Final = logging.getLogger(__name__)

SourcesDependency = NamedDependency[SkipValidation[Sequence[MetricSource]]]
BackendDependency = NamedDependency[SkipValidation[HttpBackend]]


class Live(msgspec.Struct, frozen=True, kw_only=True):
    """It answers."""

    status: str = "live"
    version: str = __version__


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """Every check holds."""

    status: str
    checks: tuple[Checked, ...]


@get("/live", tags=["health"], summary="Whether the process answers")
async def live() -> Live:
    """200 as long as the process answers at all: restart it when this fails."""
    return Live()


@get("/ready", tags=["health"], summary="Whether it can do its work", responses={})
async def ready(backend: BackendDependency) -> Response[Ready | bytes]:
    """200 if the store answers and the agent has joined; 503 with the reason of each check that does not hold."""
    checks = await run_checks(backend.checks, timeout_ms=backend.settings.ready_ms)
    if all(each.ok for each in checks):
        return Response(Ready(status="ready", checks=checks))
    problem_details = problem(NOT_READY, "; ".join(f"{each.name}: {each.reason}" for each in checks if not each.ok))
    body = encode_problem(problem_details, {"checks": msgspec.to_builtins(checks)})
    return Response(
        body, status_code=problem_details.status, media_type=PROBLEM, headers=problem_headers(problem_details)
    )


@get("/metrics", tags=["health"], summary="Numbers for Prometheus", media_type="text/plain")
async def metrics(backend: BackendDependency, sources: SourcesDependency) -> Response[bytes]:
    """Every counter of this process, and what the store says of pipelines, in Prometheus' text format."""
    families: list[MetricFamily] = []
    failed = 0
    for source in sources:
        try:
            async with asyncio.timeout(backend.settings.ready_ms / 1000):
                families += await source()
        except (HoldfastError, TimeoutError) as error:
            failed += 1
            _log.warning("some metrics are left out: %s", error or "no answer in time")
    families.append(gauge("holdfast_metrics_missing", "Parts of this page that could not be read.", failed))
    return Response(render_exposition(families), media_type=MEDIA_TYPE)


HANDLERS = (live, ready, metrics)
