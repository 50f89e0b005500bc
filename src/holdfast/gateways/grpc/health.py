"""`grpc.health.v1`: the same checks as `/ready`, run again and again; every service of the node is as healthy as the node."""

import asyncio
from collections.abc import Sequence

from grpc_health.v1 import health_pb2
from grpc_health.v1.health import OVERALL_HEALTH
from grpc_health.v1.health import aio as health  # type: ignore[attr-defined]  # not in its stubs

from holdfast.gateways.grpc.backend import GrpcBackend
from holdfast.gateways.http.health import run_checks


class HealthReporter:
    """The health service, and what it is told."""

    def __init__(self, backend: GrpcBackend, services: Sequence[str]) -> None:
        self.servicer = health.HealthServicer()
        self._backend, self._names = backend, (OVERALL_HEALTH, *services)

    async def run(self) -> None:
        """Follow readiness until the server stops."""
        while True:
            await self.report()
            await self._backend.clock.sleep_ms(self._backend.settings.health_ms)

    async def report(self) -> None:
        """Run the checks once."""
        checks = await run_checks(self._backend.checks, timeout_ms=2_000)
        ready = all(each.ok for each in checks)
        status = health_pb2.HealthCheckResponse.SERVING if ready else health_pb2.HealthCheckResponse.NOT_SERVING
        await asyncio.gather(*(self.servicer.set(name, status) for name in self._names))

    async def stop(self) -> None:
        """Not serving, for good."""
        await self.servicer.enter_graceful_shutdown()
