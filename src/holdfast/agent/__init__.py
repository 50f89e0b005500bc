"""A process that owns leases: it executes the plan, serves each lease by the handler of its kind, and hands over."""

from holdfast.agent.agent import Agent, running_agent
from holdfast.agent.settings import AgentSettings

__all__ = ["Agent", "AgentSettings", "running_agent"]
