"""A process that owns partitions: it follows the plan, opens, publishes and hands over, and serves the log of what it leads."""

from holdfast.agent.agent import Agent, running_agent
from holdfast.agent.settings import AgentSettings

__all__ = ["Agent", "AgentSettings", "running_agent"]
