"""One server: store, objects, agent and gateways, composed in the order of their dependencies and closed in reverse.

The order matters. Addresses are bound first, so that one in use leaves nothing behind, and because the agent joins with its
address. Nothing is accepted before it has joined: clients ask for leaders at once. On the way down requests in flight are finished,
then everything is published, then leases are released.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from holdfast import __version__
from holdfast.agent.client_quotas import watching_client_quotas
from holdfast.app.addresses import Address
from holdfast.app.components import Components, open_components
from holdfast.app.config import WORKER, ServeSettings
from holdfast.app.master_keys import sealed_pipelines
from holdfast.app.node import Node, join
from holdfast.app.node_gateways import http_services, kafka_gateway, text_gateway
from holdfast.app.stop_progress import StopProgress
from holdfast.app.worker_role import WorkerRole, why_no_worker, worker_role
from holdfast.contracts.store import Store
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import HoldfastError
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.redaction import redacted

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningServer:
    """A server that listens. `disabled`: what is off, each with the reason and the remedy.

    `failed` has a result once the WAL has failed: then nothing is acknowledged any more, and the process must end.
    `bootstrap_token`: with which the first administrator is made, if this start has made one.
    `stopping`: what a graceful stop waits for. `further_agents`: where the others of this host listen for Kafka's clients.
    """

    kafka: Address
    http: Address | None = None
    grpc: Address | None = None
    text: Address | None = None
    clickhouse: Address | None = None
    advertised: Address
    node: int
    name: str
    cluster_id: str
    further_agents: tuple[str, ...] = ()
    bootstrap_token: str = field(default="", repr=False)
    disabled: dict[str, str] = field(default_factory=dict)
    failed: "asyncio.Future[HoldfastError] | None" = None
    stopping: StopProgress = field(default_factory=StopProgress)

    @property
    def addresses(self) -> dict[str, str]:
        """One address per gateway, as `--print-addresses` writes them."""
        others = {"http": self.http, "grpc": self.grpc, "text": self.text, "clickhouse": self.clickhouse}
        agents = {"agents": ",".join((str(self.kafka), *self.further_agents))} if self.further_agents else {}
        return {"kafka": str(self.kafka), **{n: str(each) for n, each in others.items() if each is not None}, **agents}


@asynccontextmanager
async def running_server(settings: ServeSettings, *, clock: Clock, random: Random) -> AsyncIterator[RunningServer]:
    """A server for the body. Leaving the body finishes requests, publishes and releases leases; cancelling it does none of that."""
    async with AsyncExitStack() as stack:
        parts = await open_components(stack, settings, clock=clock, random=random)
        served = await stack.enter_async_context(_running_node(parts))
        _log.info(
            "serving",
            extra={
                **served.addresses,
                "advertised": served.advertised,
                "node": served.node,
                "agent": served.name,
                "store": redacted(settings.store),
                "objects": redacted(settings.objects),
                "version": __version__,
            },
        )
        yield served
        _log.info("stopping: finishing requests, publishing records, releasing leases")


@asynccontextmanager
async def _running_node(parts: Components) -> AsyncIterator[RunningServer]:
    """The node and its gateways, once everything below them is open."""
    stopping = StopProgress()
    async with AsyncExitStack() as stack:
        node = await join(stack, parts)
        security = node.security
        watching = watching_client_quotas(parts.client_store, clock=parts.clock, random=parts.random)
        quotas = await stack.enter_async_context(watching)
        logins = security.kafka if security else None
        kafka = await stack.enter_async_context(kafka_gateway(parts, node, logins, quotas))
        text = await stack.enter_async_context(text_gateway(parts, parts.text, node, security)) if parts.text else None
        pipelines = await sealed_pipelines(parts.settings, parts.client_store, clock=parts.clock, random=parts.random)
        services = http_services(parts, node, kafka, text, pipelines)
        await stack.enter_async_context(parts.grpc.serving(services))
        if parts.http is not None:
            await stack.enter_async_context(parts.http.serving(services))
        worker = await _start_worker(stack, parts, node, pipelines)
        parts.store.served = True
        yield RunningServer(
            kafka=parts.kafka.address,
            http=parts.http.address if parts.http is not None else None,
            grpc=parts.grpc.address,
            text=parts.text.address if parts.text is not None else None,
            clickhouse=parts.clickhouse.address,
            advertised=parts.advertised,
            node=node.number,
            name=node.name,
            cluster_id=node.cluster_id,
            bootstrap_token=security.bootstrap_token if security is not None else "",
            disabled=_disabled(parts),
            failed=node.agent.wal.failed if node.agent is not None else None,
            stopping=stopping,
        )
        if worker is not None:
            stopping.stage("pipelines")
            await worker.stop()
        if node.agent is not None:  # clients are served meanwhile, and told who leads instead
            sessions = node.agent.sessions
            stopping.follow(lambda: sessions.waits_for)
            await sessions.hand_over()
        _log.info("closing the gateways")
        if parts.http is not None:
            stopping.stage("HTTP requests in flight")
            await parts.http.close_gracefully()
        stopping.stage("gRPC calls in flight")
        await parts.grpc.close_gracefully()
        stopping.stage("Kafka requests in flight")
        await kafka.close_gracefully()
        if text is not None:
            stopping.stage("text requests in flight")
            await text.close_gracefully()
        if node.agent is not None:
            stopping.follow(lambda: sessions.waits_for)


async def _start_worker(stack: AsyncExitStack, parts: Components, node: Node, pipelines: Store) -> WorkerRole | None:
    if WORKER not in parts.settings.roles:
        return None
    return await stack.enter_async_context(
        worker_role(
            parts.settings,
            name=node.name,
            bootstrap=str(parts.advertised),
            clickhouse=parts.clickhouse.url,
            login=node.login,
            store=pipelines,
            clock=parts.clock,
            random=parts.random,
        )
    )


def _disabled(parts: Components) -> dict[str, str]:
    reasons = {
        "http": "--http off" if parts.http is None else "",
        "grpc": parts.grpc.disabled,
        "pipelines": why_no_worker(parts.settings),
        "clickhouse": parts.clickhouse.disabled,
    }
    return {name: reason for name, reason in reasons.items() if reason}
