"""The services behind the HTTP gateway, passed in by the composition root."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.gateways.http.access_policy import HostPolicy
from holdfast.gateways.http.health import HealthCheck
from holdfast.gateways.http.metrics.exposition import MetricSource
from holdfast.gateways.http.metrics.requests import RequestCounters
from holdfast.gateways.http.settings import HttpSettings
from holdfast.security.confirmations import Confirmations
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.tracing import Tracer

if TYPE_CHECKING:
    from holdfast.gateways.heap.calls import HeapCalls
    from holdfast.gateways.http.security import HttpSecurity
    from holdfast.gateways.log_access.backend import LogBackend
    from holdfast.pipeline.service.service import PipelineService


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpBackend:
    """The services behind the gateway. `checks` are run by `/ready`, `metrics` are read by `/metrics`."""

    access_policy: HostPolicy
    checks: Sequence[HealthCheck]
    metrics: Sequence[MetricSource]
    open_pipelines: Callable[[], "PipelineService"]
    """Called on a thread: its imports take a while."""
    clock: Clock
    random: Random
    confirmations: Confirmations
    log: "LogBackend | None" = None
    """None: a gateway of pipelines alone."""
    heaps: "HeapCalls | None" = None
    security: "HttpSecurity | None" = None
    """None: everybody may do everything."""
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the server stops: what never ends by itself ends."""
    settings: HttpSettings = field(default_factory=HttpSettings)
    counters: RequestCounters = field(default_factory=RequestCounters)
    tracer: Tracer | None = None
    """None: traces are off."""
