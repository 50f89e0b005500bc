"""The services behind the HTTP gateway, passed in by the composition root."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.gateways.http.access_policy import AccessPolicy
from holdfast.gateways.http.health import HealthCheck
from holdfast.gateways.http.metrics.exposition import MetricSource
from holdfast.gateways.http.metrics.requests import RequestCounters
from holdfast.gateways.http.settings import HttpSettings
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.random import Random

if TYPE_CHECKING:
    from holdfast.gateways.http.log.backend import LogBackend
    from holdfast.pipeline.service.service import PipelineService


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpBackend:
    """The services behind the gateway. `checks` are run by `/ready`, `metrics` are read by `/metrics`."""

    access_policy: AccessPolicy
    checks: Sequence[HealthCheck]
    metrics: Sequence[MetricSource]
    open_pipelines: Callable[[], "PipelineService"]
    """Called on a thread: its imports take a while."""
    clock: Clock
    random: Random
    log: "LogBackend | None" = None
    """None: a gateway of pipelines alone."""
    log_refused: str = ""
    """Why the log is not served, for who asks for it all the same."""
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the server stops: what never ends by itself ends."""
    settings: HttpSettings = field(default_factory=HttpSettings)
    counters: RequestCounters = field(default_factory=RequestCounters)
