"""This process as a member of its cluster: it joins as an agent, or as a node that leads nothing."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final, Protocol

from holdfast.agent.agent import Agent, running_agent
from holdfast.agent.cluster import Cluster
from holdfast.app.api_node import running_api_node
from holdfast.app.components import Components
from holdfast.app.config import API
from holdfast.app.node_security import NodeSecurity, node_login, node_security
from holdfast.client.broker_login import BrokerLogin
from holdfast.cursors.service import CursorService
from holdfast.gateways.heap.calls import HeapBackend, HeapCalls
from holdfast.groups.service import GroupService
from holdfast.heap.service import HeapService
from holdfast.kernel.cluster_identity import cluster_identity
from holdfast.kernel.cluster_move import ClusterMovedError
from holdfast.kernel.membership import node_id
from holdfast.kernel.objects_owner import ObjectsOwner, claim_objects
from holdfast.log.service import LogService
from holdfast.vocabulary.redaction import redacted

_log: Final = logging.getLogger(__name__)

_JOIN_WARNING_MS: Final = 2_000
_JOIN_POLL_MS: Final = 5  # the agent joins within a few of these


class NodeServices(Protocol):
    """What the gateways call: an agent's services, or those of a node without one."""

    @property
    def cluster(self) -> Cluster: ...
    @property
    def service(self) -> LogService: ...
    @property
    def groups(self) -> GroupService: ...
    @property
    def cursors(self) -> CursorService: ...
    @property
    def heaps(self) -> HeapService: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """This process as a member of the cluster. `agent` is None without the agent role.

    `security` is None where everybody may do everything. `login`: to the Kafka ports of other nodes.
    """

    name: str
    number: int
    cluster_id: str
    services: NodeServices
    agent: Agent | None
    heaps: HeapCalls
    security: NodeSecurity | None
    login: BrokerLogin | None


async def join(stack: AsyncExitStack, parts: Components) -> Node:
    """Join the cluster; `stack` leaves it."""
    settings, store, clock, random = parts.settings, parts.store, parts.clock, parts.random
    try:
        cluster_id = await cluster_identity(store, clock=clock, random=random)
    except ClusterMovedError as moved:
        if parts.etcd is None or settings.roles != (API,):
            raise
        # Both commands need the members, and nothing else runs them.
        _log.warning("running the etcd member alone, for `holdfast migrate` and `holdfast objects adopt`: %s", moved)
        await asyncio.Event().wait()
        raise
    await asyncio.to_thread(parts.directory.bind_to_cluster, cluster_id)
    owner = await claim_objects(store, parts.objects, clock=clock, random=random, place=redacted(settings.objects))
    name = settings.agent_id or await asyncio.to_thread(parts.directory.agent_id, random)
    security = await stack.enter_async_context(node_security(settings, parts.client_store, clock=clock, random=random))
    login = node_login(settings.kafka, security.secret if security is not None else None, random)
    if settings.leads:
        agent = await stack.enter_async_context(_joined_agent(parts, owner, name))
        number = agent.member.node if agent.member is not None else 0
        heaps = _heap_calls(stack, parts, agent, login, name)
        return Node(
            name=name,
            number=number,
            cluster_id=cluster_id,
            services=agent,
            agent=agent,
            heaps=heaps,
            security=security,
            login=login,
        )
    services = await stack.enter_async_context(
        running_api_node(
            settings, store=parts.client_store, objects=parts.objects, owner=owner, clock=clock, random=random
        )
    )
    number = await node_id(store, name, clock=clock, random=random)
    heaps = _heap_calls(stack, parts, services, login)
    return Node(
        name=name,
        number=number,
        cluster_id=cluster_id,
        services=services,
        agent=None,
        heaps=heaps,
        security=security,
        login=login,
    )


@asynccontextmanager
async def _joined_agent(parts: Components, owner: ObjectsOwner, name: str) -> AsyncIterator[Agent]:
    """The agent, once it has joined: then it has its node id and others know its address."""
    async with running_agent(
        parts.settings.as_agent(name, str(parts.advertised), parts.advertised_text),
        parts.directory.wal,
        store=parts.store,
        objects=parts.objects,
        owner=owner,
        peers=parts.peers,
        clock=parts.clock,
        random=parts.random,
        tracer=parts.tracer,
    ) as agent:
        began_ms, warned = parts.clock.boot_ms(), False
        while agent.member is None:
            await parts.clock.sleep_ms(_JOIN_POLL_MS)
            if not warned and parts.clock.boot_ms() - began_ms > _JOIN_WARNING_MS:
                _log.warning("agent %s is waiting to join: its id is still registered by a live session", name)
                warned = True
        yield agent


def _heap_calls(
    stack: AsyncExitStack, parts: Components, services: NodeServices, login: BrokerLogin | None, agent: str = ""
) -> HeapCalls:
    """Heap requests of every gateway of this node. `agent`: its name; "": there is none."""
    backend = HeapBackend(
        heaps=services.heaps,
        cluster=services.cluster,
        agent=agent,
        login=login,
        topic_settings=parts.settings.topics,
        clock=parts.clock,
        random=parts.random,
    )
    calls = HeapCalls(backend)
    stack.callback(calls.close)
    return calls
