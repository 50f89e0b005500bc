"""Agents, leases and transfers of the cluster."""

from dataclasses import asdict

import msgspec
from litestar import get
from litestar.params import FromPath

from holdfast.agent.administration import AgentStatus, LeaseStatus
from holdfast.gateways.http.errors import UnknownAgentError
from holdfast.gateways.http.routes.log_dependencies import LOG_PATH, LogDependency


class AgentDescription(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An agent. `leases`: what it holds; `planned`: what it is to hold; `replicas`: the tails it keeps, and those `inSync`."""

    id: str
    node: int
    address: str
    zone: str
    group: str
    live: bool
    draining: bool
    leases: int
    planned: int
    replicas: int
    in_sync: int
    started_at_ms: int
    seen_at_ms: int

    @classmethod
    def of(cls, agent: AgentStatus) -> "AgentDescription":
        """The description of an agent."""
        return cls(**asdict(agent))


class LeaseDescription(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A lease: who holds it at which epoch, who is to hold it, and where a transfer stands, if one is under way."""

    resource: str
    holder: str
    epoch: int
    planned: str | None
    transfer: str

    @classmethod
    def of(cls, lease: LeaseStatus) -> "LeaseDescription":
        """The description of a lease."""
        return cls(**asdict(lease))


@get(f"{LOG_PATH}/agents", tags=["cluster"], summary="List agents")
async def agents(log: LogDependency) -> list[AgentDescription]:
    """Every agent that is live or was a minute ago, by id."""
    return [AgentDescription.of(each) for each in await log.backend.administration.agents()]


@get(f"{LOG_PATH}/agents/{{agent:str}}", tags=["cluster"], summary="Describe an agent")
async def get_agent(log: LogDependency, agent: FromPath[str]) -> AgentDescription:
    """One agent."""
    found = [each for each in await log.backend.administration.agents() if each.id == agent]
    if not found:
        raise UnknownAgentError(agent)
    return AgentDescription.of(found[0])


@get(f"{LOG_PATH}/leases", tags=["cluster"], summary="List leases")
async def leases(log: LogDependency) -> list[LeaseDescription]:
    """Every lease, by resource."""
    return [LeaseDescription.of(each) for each in await log.backend.administration.leases()]


@get(f"{LOG_PATH}/transfers", tags=["cluster"], summary="List transfers")
async def transfers(log: LogDependency) -> list[LeaseDescription]:
    """The leases that are being transferred to another agent."""
    return [LeaseDescription.of(each) for each in await log.backend.administration.leases() if each.transfer]


HANDLERS = (agents, get_agent, leases, transfers)
