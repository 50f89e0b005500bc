"""Agents that have left, or look dead from here: for those who list brokers and leaders to clients. Time is an argument.

The one rule: it is about listings alone. Who owns what is for the store to say, and nothing is decided from this.

- **Looks dead**: its connection to this agent was reset and its port refuses. Until the store says who leads instead, nobody does:
  a client that is told so asks again at once, one that is told of a dead leader first tries to reach it. If the store does not
  say so within seconds, the agent is listed as before: only this one may be cut off from its port, and clients may reach it.
- **Departed**: it was a member a moment ago. A client that is given other leaders and no such broker any more in one answer may
  drop both (librdkafka 2.10 does, for a second), so it stays in the list of brokers for `LISTED_MS`.
"""

from collections.abc import Iterable
from typing import Final

from holdfast.vocabulary.types import Member

LISTED_MS: Final = 5_000


class Departures:
    """What one process has seen of agents that left. `version` changes with who looks dead."""

    def __init__(self) -> None:
        self.version = 0
        self._dead: dict[str, tuple[str, int]] = {}  # agent → its session then, and when
        self._members: dict[str, Member] = {}
        self._departed: dict[str, tuple[Member, int]] = {}

    @property
    def has_suspects(self) -> bool:
        """Whether anybody looks dead."""
        return bool(self._dead)

    def suspect(self, member: Member, now_ms: int) -> None:
        """It looks dead from here."""
        self._dead[member.id] = member.session, now_ms
        self.version += 1

    def forget_suspects(self, before_ms: int) -> None:
        """What was seen before that does not count any more."""
        for agent in [agent for agent, (_, at_ms) in self._dead.items() if at_ms < before_ms]:
            self.reached(agent)

    def reached(self, agent: str) -> None:
        """It is alive, or may be."""
        if self._dead.pop(agent, None) is not None:
            self.version += 1

    def looks_dead(self, member: Member) -> bool:
        """Whether this session of an agent looks dead from here."""
        return bool(self._dead) and self._dead.get(member.id, ("", 0))[0] == member.session

    def members_changed(self, members: Iterable[Member], now_ms: int) -> None:
        """These are the live agents now."""
        before, self._members = self._members, {member.id: member for member in members}
        left = {agent: (member, now_ms) for agent, member in before.items() if agent not in self._members}
        kept = {agent: each for agent, each in self._departed.items() if now_ms - each[1] < LISTED_MS}
        self._departed = {agent: each for agent, each in {**kept, **left}.items() if agent not in self._members}
        self._dead = {agent: seen for agent, seen in self._dead.items() if agent in self._members}

    def departed(self, now_ms: int) -> list[Member]:
        """The agents that left a moment ago and are not back."""
        return [member for member, left_ms in self._departed.values() if now_ms - left_ms < LISTED_MS]
