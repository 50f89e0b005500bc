"""Shared by the routes of the log: what they are injected with."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from litestar import Request
from litestar.di import NamedDependency
from litestar.params import SkipValidation

from holdfast.client.leader_client import LeaderClient
from holdfast.gateways.http.log.waits import Waits
from holdfast.gateways.http.metrics.requests import RequestCounters
from holdfast.gateways.http.settings import HttpSettings
from holdfast.gateways.log_access.backend import KafkaAdmin, LogBackend
from holdfast.gateways.log_access.group_administration import GroupAdministration
from holdfast.gateways.log_access.log_appends import LogAppends
from holdfast.gateways.log_access.log_reads import LogReads
from holdfast.gateways.log_access.topic_administration import TopicAdministration

LOG_PATH = "/api/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRoutes:
    """The log as the routes use it. `stop` is set when the server stops."""

    backend: LogBackend
    settings: HttpSettings
    stop: asyncio.Event
    topics: TopicAdministration
    groups: GroupAdministration
    producing: LogAppends
    reading: LogReads
    waits: Waits
    tails: set[object] = field(default_factory=set)

    @classmethod
    def of(
        cls, backend: LogBackend, settings: HttpSettings, stop: asyncio.Event, counters: RequestCounters
    ) -> "LogRoutes":
        """The routes of one node."""
        # An answer must come before the deadline of its request does, which would leave its outcome unsaid.
        forward = LeaderClient(
            backend.bootstrap, clock=backend.clock, timeout_ms=settings.forward_ms, login=backend.login
        )
        kafka = KafkaAdmin(backend.bootstrap, timeout_s=settings.forward_ms / 1000, login=backend.login)
        return cls(
            backend=backend,
            settings=settings,
            stop=stop,
            topics=TopicAdministration(backend, kafka),
            groups=GroupAdministration(kafka),
            producing=LogAppends(backend, forward),
            reading=LogReads(backend, forward),
            waits=Waits(counters, count_max=settings.waits_max, stop=stop),
        )


STATE = "log"


def log_routes(request: Request[Any, Any, Any]) -> LogRoutes:
    """The same for a hot route: resolving a dependency costs as much as the append of a record."""
    found: LogRoutes = request.app.state[STATE]
    return found


LogDependency = NamedDependency[SkipValidation[LogRoutes]]
