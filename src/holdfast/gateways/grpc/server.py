"""The gRPC server: all services, health and reflection, on addresses that are reserved already, in the caller's event loop.

gRPC binds its sockets itself. The reserved ones are closed right before, so that an address in use was found before anything else
began. Limits on connections are gRPC's own options.
"""

import logging
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

import grpc
from google.protobuf import descriptor_pool
from google.protobuf.descriptor import ServiceDescriptor
from grpc_health.v1.health import SERVICE_NAME as HEALTH
from grpc_reflection.v1alpha import reflection

from holdfast.client.leader_client import LeaderClient
from holdfast.gateways.grpc.backend import GrpcBackend
from holdfast.gateways.grpc.call_limits import CallLimits
from holdfast.gateways.grpc.calls import service_handler
from holdfast.gateways.grpc.credentials import server_credentials
from holdfast.gateways.grpc.health import HealthReporter
from holdfast.gateways.grpc.request_reader import ParsingThread
from holdfast.gateways.grpc.server_reflection import ReflectionService
from holdfast.gateways.grpc.services.cluster import ClusterService
from holdfast.gateways.grpc.services.consumer_groups import ConsumerGroupService
from holdfast.gateways.grpc.services.coordination import CoordinationService
from holdfast.gateways.grpc.services.fetch import FetchService
from holdfast.gateways.grpc.services.heaps import HeapService
from holdfast.gateways.grpc.services.produce import ProduceService
from holdfast.gateways.grpc.services.topics import TopicService
from holdfast.gateways.grpc.settings import GrpcSettings
from holdfast.gateways.log_access.backend import KafkaAdmin
from holdfast.gateways.log_access.group_administration import GroupAdministration
from holdfast.gateways.log_access.log_appends import LogAppends
from holdfast.gateways.log_access.log_reads import LogReads
from holdfast.gateways.log_access.topic_administration import TopicAdministration
from holdfast.v1 import (
    cluster_service_pb2,
    consumer_group_service_pb2,
    coordination_service_pb2,
    fetch_service_pb2,
    heap_service_pb2,
    produce_service_pb2,
    topic_service_pb2,
)
from holdfast.vocabulary.errors import UnavailableError
from holdfast.vocabulary.host_port import join_host_port
from holdfast.vocabulary.tasks import background_tasks

_log: Final = logging.getLogger(__name__)
_MODULES: Final = (
    topic_service_pb2,
    produce_service_pb2,
    fetch_service_pb2,
    consumer_group_service_pb2,
    cluster_service_pb2,
    coordination_service_pb2,
    heap_service_pb2,
)
SERVICES: Final[Mapping[str, ServiceDescriptor]] = {
    service.name: service for module in _MODULES for service in module.DESCRIPTOR.services_by_name.values()
}


class GrpcServer:
    """The gRPC gateway of one node. Created by `serving_grpc`."""

    def __init__(self, backend: GrpcBackend) -> None:
        self.backend = backend
        self._inner = grpc.aio.server(
            options=_options(backend.settings), maximum_concurrent_rpcs=backend.settings.calls_max
        )
        names = [service.full_name for service in SERVICES.values()]
        self.health = HealthReporter(backend, names)
        self._forward = LeaderClient(
            backend.log.bootstrap,
            clock=backend.clock,
            timeout_ms=backend.settings.forward_ms,
            login=backend.log.login,
        )
        served = _served(backend, self._forward)
        self._parsing = ParsingThread()
        limits = CallLimits(backend.settings)
        public = {
            HEALTH: self.health,
            reflection.SERVICE_NAME: ReflectionService((*names, HEALTH, reflection.SERVICE_NAME), backend.stopping),
        }
        found = [(service, served[name]) for name, service in SERVICES.items()]
        found += [(descriptor_pool.Default().FindServiceByName(name), each) for name, each in public.items()]
        self._inner.add_generic_rpc_handlers(
            [service_handler(service, each, backend, self._parsing, limits) for service, each in found]
        )

    async def start(self, sockets: Sequence[socket.socket], credentials: grpc.ServerCredentials | None) -> None:
        """Listen where the sockets are, which are closed. `UnavailableError`: another process was faster."""
        addresses = [join_host_port(*each.getsockname()[:2]) for each in sockets]
        for each in sockets:
            each.close()
        for address in addresses:
            try:
                if credentials is None:
                    self._inner.add_insecure_port(address)
                else:
                    self._inner.add_secure_port(address, credentials)
            except RuntimeError as error:
                raise UnavailableError(f"address {address}", f"cannot listen there: {error}") from None
        await self._inner.start()

    async def close_gracefully(self) -> None:
        """Accept no more calls, finish those in flight, end what never ends, then close."""
        counters, stop_ms = self.backend.counters, self.backend.settings.stop_ms
        self.backend.stopping.set()
        self.health.stop()
        async with background_tasks(self._inner.stop(stop_ms / 1000)):
            while counters.in_flight and await counters.idle.wait_ms(self.backend.clock, stop_ms):
                pass
        await self._inner.stop(None)  # those that took longer

    async def close(self) -> None:
        """Abort all calls."""
        await self._inner.stop(None)
        await self._forward.close()
        self._parsing.close()


@asynccontextmanager
async def serving_grpc(backend: GrpcBackend, sockets: Sequence[socket.socket]) -> AsyncIterator[GrpcServer]:
    """Serve gRPC where the sockets are bound for the body; leaving aborts all calls: call `close_gracefully` before."""
    credentials = server_credentials(backend.settings)
    server = GrpcServer(backend)
    try:
        await server.health.report()
        await server.start(sockets, credentials)
        async with background_tasks(server.health.run()):
            yield server
    finally:
        await server.close()


def _served(backend: GrpcBackend, forward: LeaderClient) -> Mapping[str, object]:
    """Who serves each service."""
    kafka = KafkaAdmin(backend.log.bootstrap, timeout_s=backend.settings.forward_ms / 1000, login=backend.log.login)
    reading = LogReads(backend.log, forward)
    return {
        "TopicService": TopicService(TopicAdministration(backend.log, kafka)),
        "ProduceService": ProduceService(backend, LogAppends(backend.log, forward)),
        "FetchService": FetchService(backend, reading),
        "ConsumerGroupService": ConsumerGroupService(GroupAdministration(kafka), reading),
        "ClusterService": ClusterService(backend.log),
        "CoordinationService": CoordinationService(backend),
        "HeapService": HeapService(backend),
    }


def _options(settings: GrpcSettings) -> list[tuple[str, int]]:
    return [
        ("grpc.so_reuseport", 0),  # two servers on one port would each get some of the connections
        ("grpc.max_receive_message_length", settings.message_bytes_max),
        ("grpc.max_send_message_length", -1),  # a record is as large as its topic allows
        ("grpc.max_metadata_size", settings.metadata_bytes_max),
        ("grpc.absolute_max_metadata_size", settings.metadata_bytes_max),
        ("grpc.max_concurrent_streams", settings.streams_max),
        ("grpc.max_allowed_incoming_connections", settings.connections_max),
        ("grpc.server_handshake_timeout_ms", settings.handshake_ms),
        ("grpc.keepalive_time_ms", settings.keepalive_ms),
        ("grpc.keepalive_timeout_ms", settings.keepalive_timeout_ms),
        ("grpc.keepalive_permit_without_calls", 1),
        # Who acknowledges neither settings nor pings: a minute each by default, whatever the keepalive says.
        ("grpc.http2.ping_timeout_ms", settings.keepalive_timeout_ms),
        ("grpc.http2.settings_timeout", settings.keepalive_timeout_ms),
        ("grpc.http2.min_ping_interval_without_data_ms", settings.ping_ms_min),
        ("grpc.http2.max_ping_strikes", 2),
        ("grpc.max_connection_idle_ms", settings.idle_ms),
        ("grpc.max_connection_age_ms", settings.age_ms),
        ("grpc.max_connection_age_grace_ms", settings.age_grace_ms),
    ]
