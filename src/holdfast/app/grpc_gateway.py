"""The gRPC gateway of a node: whether it is served, and what is behind it.

Its address is reserved with the others before anything starts. grpcio is imported on a thread meanwhile; a node listens everywhere
once it says so. The one rule: what nobody asked for stops nothing. Where the default address cannot be served, the node goes on
without it and says why; one that was given must be served.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from holdfast.app.addresses import Address
from holdfast.app.config import ServeSettings
from holdfast.app.http_gateway import HttpServices
from holdfast.app.listeners import Listener, bound_listener
from holdfast.gateways.grpc.access import GrpcSecurity
from holdfast.gateways.grpc.backend import GrpcBackend
from holdfast.gateways.grpc.settings import GrpcCounters, GrpcSettings
from holdfast.vocabulary.errors import UnavailableError
from holdfast.vocabulary.import_lock import import_lock
from holdfast.vocabulary.installation import NotInstalledError, install_hint

if TYPE_CHECKING:
    from holdfast.gateways.grpc.server import GrpcServer

_log: Final = logging.getLogger(__name__)
_REMEDY: Final = "Let clients log in (--sasl) and use TLS (grpc.tls_cert, grpc.tls_key), listen on 127.0.0.1"
_MODULES: Final = ("grpc", "google.protobuf", "grpc_health", "grpc_reflection")


class GrpcGateway:
    """A bound listener, and the server on it once it serves. `disabled`: why there is none."""

    def __init__(
        self, settings: GrpcSettings, listener: Listener | None, disabled: str = "", *, optional: bool = False
    ) -> None:
        self.address: Address | None = None if listener is None else listener.address
        self._optional = optional
        self.disabled, self.counters = disabled, GrpcCounters()
        self._settings, self._listener = settings, listener
        self._server: GrpcServer | None = None

    async def load(self) -> None:
        """Import the server, on a thread."""
        if self._listener is not None:
            await asyncio.to_thread(_import)

    @asynccontextmanager
    async def serving(self, node: HttpServices) -> AsyncIterator[None]:
        """Serve for the body; leaving aborts calls at once: call `close_gracefully` before."""
        if self._listener is None:
            yield
            return
        await self.load()
        from holdfast.gateways.grpc.server import serving_grpc

        backend = GrpcBackend(
            log=node.log_backend(),
            store=node.store,
            confirmations=node.confirmations,
            heaps=node.heaps,
            checks=node.checks(),
            clock=node.clock,
            random=node.random,
            security=_security(node),
            settings=self._settings,
            counters=self.counters,
            tracer=node.tracer,
        )
        async with AsyncExitStack() as stack:
            try:
                self._server = await stack.enter_async_context(serving_grpc(backend, self._listener.sockets))
            except UnavailableError as error:
                if not self._optional:
                    raise
                self.address, self.disabled = None, str(error)  # two processes may reserve one address, one can listen
                _log.info("gRPC is not served: %s", error)
            yield

    async def close_gracefully(self) -> None:
        """Finish calls in flight, then close."""
        if self._server is not None:
            await self._server.close_gracefully()


@asynccontextmanager
async def bound_grpc(settings: ServeSettings) -> AsyncIterator[GrpcGateway]:
    """The gateway with its address bound, or why it has none. `NotInstalledError`, `UnavailableError`: as it was asked for."""
    async with AsyncExitStack() as stack:
        listener: Listener | None = None
        reason = "--grpc off" if settings.grpc_listen is None else ""
        missing = next((name for name in _MODULES if find_spec(name.partition(".")[0]) is None), "")
        if settings.grpc_listen is not None:
            if missing and not settings.grpc_default:
                raise NotInstalledError("--grpc", missing, "grpc")
            if missing:
                reason = f"{missing} is not installed: {install_hint('grpc')}"
            else:
                try:
                    bound = bound_listener(
                        "--grpc",
                        settings.grpc_listen,
                        insecure=settings.insecure,
                        # Keys and passwords beyond this machine need TLS.
                        authenticates=settings.kafka.authenticates and bool(settings.grpc.tls_cert),
                        remedy=_REMEDY,
                    )
                    listener = await stack.enter_async_context(bound)
                except UnavailableError as error:
                    if not settings.grpc_default:
                        raise
                    reason = str(error)
            if reason:
                _log.info("gRPC is not served: %s", reason)
        yield GrpcGateway(settings.grpc, listener, reason, optional=settings.grpc_default)


def _security(node: HttpServices) -> GrpcSecurity | None:
    if node.security is None:
        return None
    return GrpcSecurity(authenticator=node.security.authenticator, audit=node.security.audit)


def _import() -> None:
    with import_lock:
        import holdfast.gateways.grpc.server  # noqa: F401
