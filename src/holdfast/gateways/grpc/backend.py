"""What the gRPC gateway stands on."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from holdfast.contracts.store import Store
from holdfast.gateways.grpc.access import GrpcSecurity
from holdfast.gateways.grpc.settings import GrpcCounters, GrpcSettings
from holdfast.gateways.heap.calls import HeapCalls
from holdfast.gateways.http.health import HealthCheck
from holdfast.gateways.log_access.backend import LogBackend
from holdfast.security.confirmations import Confirmations
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.tracing import Tracer


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpcBackend:
    """Services and settings of one node. `checks`: whether it is ready. `stopping`: what never ends by itself ends."""

    log: LogBackend
    store: Store
    confirmations: Confirmations
    checks: Sequence[HealthCheck]
    clock: Clock
    random: Random
    heaps: HeapCalls | None = None
    security: GrpcSecurity | None = None
    """None: everybody may do everything."""
    settings: GrpcSettings = field(default_factory=GrpcSettings)
    counters: GrpcCounters = field(default_factory=GrpcCounters)
    tracer: Tracer | None = None
    """None: traces are off."""
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
