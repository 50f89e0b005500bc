"""A real gRPC server on a real socket over an agent of this process, and a channel to it."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc.aio
from tests.support.cluster import LocalCluster, Node

from holdfast.agent.administration import ClusterAdministration
from holdfast.gateways.grpc.access import GrpcSecurity
from holdfast.gateways.grpc.backend import GrpcBackend
from holdfast.gateways.grpc.server import GrpcServer, serving_grpc
from holdfast.gateways.grpc.settings import GrpcSettings
from holdfast.gateways.heap.calls import HeapBackend, HeapCalls
from holdfast.gateways.http.health import HealthCheck
from holdfast.gateways.log_access.backend import LogBackend
from holdfast.security.confirmations import Confirmations
from holdfast.vocabulary.sockets import bind_one

NOBODY = "127.0.0.1:9"  # no other node


@dataclass
class RunningGrpcGateway:
    """A running server, and a client of it."""

    node: Node
    server: GrpcServer
    address: str
    channel: grpc.aio.Channel


class GrpcCluster:
    """An agent, and as many gateways over it as a test wants."""

    def __init__(self, cluster: LocalCluster, node: Node, stack: AsyncExitStack) -> None:
        self.cluster, self.node, self._stack = cluster, node, stack

    async def gateway(
        self,
        *,
        security: GrpcSecurity | None = None,
        checks: tuple[HealthCheck, ...] = (),
        **settings: Any,
    ) -> RunningGrpcGateway:
        clock, random, node = self.cluster.clock, self.cluster.random, self.node
        log = LogBackend(
            log=node.service,
            cluster=node.agent.cluster,
            administration=ClusterAdministration(node.store, clock=clock, random=random),
            bootstrap=NOBODY,
            clock=clock,
            random=random,
        )
        heaps = HeapCalls(
            HeapBackend(heaps=node.agent.heaps, cluster=node.agent.cluster, agent=node.name, clock=clock, random=random)
        )
        self._stack.callback(heaps.close)
        backend = GrpcBackend(
            log=log,
            store=node.store,
            confirmations=Confirmations(node.store, clock=clock, random=random),
            heaps=heaps,
            checks=checks,
            clock=clock,
            random=random,
            security=security,
            settings=GrpcSettings(**settings),
        )
        bound = bind_one("127.0.0.1", 0)
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        server = await self._stack.enter_async_context(serving_grpc(backend, [bound]))
        channel = await self._stack.enter_async_context(grpc.aio.insecure_channel(address))
        return RunningGrpcGateway(node, server, address, channel)


@asynccontextmanager
async def grpc_cluster(directory: Path) -> AsyncIterator[GrpcCluster]:
    """An agent for the body, and gateways over it."""
    cluster = LocalCluster(directory)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(cluster.end)
        yield GrpcCluster(cluster, await cluster.node(), stack)
