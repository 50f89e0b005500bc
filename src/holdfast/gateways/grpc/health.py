"""`grpc.health.v1`: the same checks as `/ready`, run again and again; every service of the node is as healthy as the node.

The one rule: it is answered like our own services, by the same limits. Who asks has not logged in.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from grpc_health.v1 import health_pb2
from grpc_health.v1.health import OVERALL_HEALTH

from holdfast.gateways.grpc.access import CallAccess
from holdfast.gateways.grpc.backend import GrpcBackend
from holdfast.gateways.grpc.errors import UnknownServiceError
from holdfast.gateways.http.health import run_checks
from holdfast.vocabulary.errors import ClosedError
from holdfast.vocabulary.tasks import Notify

_Response: Final = health_pb2.HealthCheckResponse


class HealthReporter:
    """The health service, and what it is told."""

    def __init__(self, backend: GrpcBackend, services: Sequence[str]) -> None:
        self._backend, self._names = backend, (OVERALL_HEALTH, *services)
        self._status: Any = _Response.SERVING
        self._stopped = False
        self._watchers: set[Notify] = set()

    async def run(self) -> None:
        """Follow readiness until the server stops."""
        while True:
            await self.report()
            await self._backend.clock.sleep_ms(self._backend.settings.health_ms)

    async def report(self) -> None:
        """Run the checks once."""
        checks = await run_checks(self._backend.checks, timeout_ms=2_000)
        if not self._stopped:
            self._tell(_Response.SERVING if all(each.ok for each in checks) else _Response.NOT_SERVING)

    def stop(self) -> None:
        """Not serving, for good. Whoever watches is told, and its stream ends."""
        self._stopped = True
        self._tell(_Response.NOT_SERVING)

    def _tell(self, status: Any) -> None:
        self._status = status
        for each in self._watchers:
            each.notify()

    async def check(self, request: health_pb2.HealthCheckRequest, access: CallAccess) -> health_pb2.HealthCheckResponse:
        """The health of a service. `UnknownServiceError`."""
        if request.service not in self._names:
            raise UnknownServiceError(request.service)
        return _Response(status=self._status)

    async def list(self, request: Any, access: CallAccess) -> Any:
        """That of each."""
        return health_pb2.HealthListResponse(statuses={name: _Response(status=self._status) for name in self._names})

    async def watch(
        self, request: health_pb2.HealthCheckRequest, access: CallAccess
    ) -> AsyncIterator[health_pb2.HealthCheckResponse]:
        """The health of a service, now and whenever it changes."""
        known, shown, changed = request.service in self._names, None, Notify()
        self._watchers.add(changed)
        try:
            while True:
                status = self._status if known else _Response.SERVICE_UNKNOWN
                if status != shown:
                    yield _Response(status=status)
                    shown = status
                elif self._stopped:
                    raise ClosedError("the server")
                else:
                    await changed.wait()
        finally:
            self._watchers.discard(changed)
