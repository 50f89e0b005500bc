"""Liveness, readiness and metrics of this process."""

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
from holdfast.gateways.http.metrics.exposition import (
    EXPOSITION_MEDIA_TYPE,
    MetricFamily,
    MetricSource,
    gauge,
    render_exposition,
)
from holdfast.gateways.http.problems import NOT_READY, PROBLEM_MEDIA_TYPE, encode_problem, problem, problem_headers
from holdfast.vocabulary.errors import HoldfastError

_log: Final = logging.getLogger(__name__)

SourcesDependency = NamedDependency[SkipValidation[Sequence[MetricSource]]]
BackendDependency = NamedDependency[SkipValidation[HttpBackend]]


class Live(msgspec.Struct, frozen=True, kw_only=True):
    """The process responds."""

    status: str = "live"
    version: str = __version__


class ReadinessReport(msgspec.Struct, frozen=True, kw_only=True):
    """Every check passed."""

    status: str
    checks: tuple[Checked, ...]


@get("/live", tags=["health"], summary="Liveness")
async def live() -> Live:
    """200 as long as the process responds: restart it when this fails."""
    return Live()


@get("/ready", tags=["health"], summary="Readiness", responses={})
async def ready(backend: BackendDependency) -> Response[ReadinessReport | bytes]:
    """200 if the store responds and the agent has joined; 503 with the reason of each check that failed."""
    checks = await run_checks(backend.checks, timeout_ms=backend.settings.ready_ms)
    if all(each.ok for each in checks):
        return Response(ReadinessReport(status="ready", checks=checks))
    problem_details = problem(NOT_READY, "; ".join(f"{each.name}: {each.reason}" for each in checks if not each.ok))
    body = encode_problem(problem_details, {"checks": msgspec.to_builtins(checks)})
    return Response(
        body,
        status_code=problem_details.status,
        media_type=PROBLEM_MEDIA_TYPE,
        headers=problem_headers(problem_details),
    )


@get("/metrics", tags=["health"], summary="Metrics for Prometheus", media_type="text/plain")
async def metrics(backend: BackendDependency, sources: SourcesDependency) -> Response[bytes]:
    """All metrics of this process, and those of pipelines from the store, in Prometheus' text format."""
    families: list[MetricFamily] = []
    failed = 0
    for source in sources:
        try:
            async with asyncio.timeout(backend.settings.ready_ms / 1000):
                families += await source()
        except (HoldfastError, TimeoutError) as error:
            failed += 1
            _log.warning("metrics left out: %s", error or "timed out")
    families.append(gauge("holdfast_metrics_missing", "Sources of this page that failed.", failed))
    page = await asyncio.to_thread(render_exposition, families)  # of thousands of series
    return Response(page, media_type=EXPOSITION_MEDIA_TYPE)


HANDLERS = (live, ready, metrics)
