"""Quotas: how many partitions of each topic each agent gets. Pure.

Every agent gets ⌊P/A⌋ or ⌈P/A⌉ of each topic *and* of the total. A topic of P = q·A + r partitions gives everyone q and r agents
one extra; the question is who gets the extras. They go where partitions already are, as far as the totals allow, so that the
fewest possible partitions move. Moving one extra from agent to agent is an edge between agents; evening out the totals along
cheapest paths (Bellman–Ford over A nodes, costs −1, 0, +1 kept partitions) is min-cost flow, hence exact. Sets of topics are
bit masks, so that a step costs A² word operations, not T·A².
"""

from collections.abc import Mapping, Sequence

Quotas = dict[str, dict[str, int]]  # topic → agent → partitions


def quotas(
    sizes: Mapping[str, int],
    held: Mapping[str, Mapping[str, int]],
    agents: Sequence[str],
    preference: Mapping[str, Sequence[str]],
) -> Quotas:
    """The quotas that keep the most of `held`; where nothing is held, `preference` (the ring's order per topic) decides."""
    topics = sorted(sizes)
    extras = _Extras(agents)
    for bit, topic in enumerate(topics):
        base, remainder = divmod(sizes[topic], len(agents))
        counts = held.get(topic, {})
        wants = [agent for agent in agents if counts.get(agent, 0) > base]
        for agent in wants:
            extras.gain[agent] |= 1 << bit
        ranked = sorted(wants, key=lambda agent: extras.total(agent))
        others = [agent for agent in preference[topic] if agent not in wants]
        others.sort(key=lambda agent: extras.total(agent))  # stable: equal totals stay in the ring's order
        for agent in [*ranked, *others][:remainder]:
            extras.has[agent] |= 1 << bit
    extras.level()
    return {
        topic: {agent: sizes[topic] // len(agents) + (extras.has[agent] >> bit & 1) for agent in agents}
        for bit, topic in enumerate(topics)
    }


class _Extras:
    """Which agents have an extra of which topics (`has`), and where an extra would keep a partition in place (`gain`)."""

    def __init__(self, agents: Sequence[str]) -> None:
        self.agents = list(agents)
        self.has = dict.fromkeys(agents, 0)
        self.gain = dict.fromkeys(agents, 0)

    def total(self, agent: str) -> int:
        return self.has[agent].bit_count()

    def level(self) -> None:
        """Even out the totals, then swap who is above average while that keeps more partitions in place."""
        while True:
            totals = {agent: self.total(agent) for agent in self.agents}
            lightest, heaviest = min(totals.values()), max(totals.values())
            if heaviest == lightest:
                return
            sources = [agent for agent in self.agents if totals[agent] == heaviest]
            cost, path = self._cheapest_path(sources, {agent for agent in self.agents if totals[agent] == lightest})
            if heaviest - lightest == 1 and cost >= 0:
                return
            self._shift(path)

    def _edge(self, source: str, target: str) -> tuple[int, int] | None:
        """(cost, topic bit) of the cheapest extra that `source` can pass to `target`."""
        movable = self.has[source] & ~self.has[target]
        if not movable:
            return None
        loses, wins = self.gain[source], self.gain[target]
        for cost, topics in (
            (-1, movable & ~loses & wins),
            (0, movable & ~(loses ^ wins)),
            (1, movable & loses & ~wins),
        ):
            if topics:
                return cost, topics & -topics
        return None

    def _cheapest_path(self, sources: Sequence[str], targets: set[str]) -> tuple[int, list[tuple[str, str, int]]]:
        """Which extras to pass on, from some source to the target that costs the fewest kept partitions."""
        distance = dict.fromkeys(sources, 0)
        came: dict[str, tuple[str, int]] = {}
        edges = [
            (source, target, *edge)
            for source in self.agents
            for target in self.agents
            if source != target and (edge := self._edge(source, target)) is not None
        ]
        for _ in range(len(self.agents) - 1):
            changed = False
            for source, target, cost, bit in edges:
                if source in distance and distance[source] + cost < distance.get(target, len(edges) + 1):
                    distance[target] = distance[source] + cost
                    came[target] = (source, bit)
                    changed = True
            if not changed:
                break
        at = min((agent for agent in self.agents if agent in targets and agent in distance), key=distance.__getitem__)
        cost, path = distance[at], []
        while at in came:
            source, bit = came[at]
            path.append((source, at, bit))
            at = source
        return cost, path

    def _shift(self, path: Sequence[tuple[str, str, int]]) -> None:
        for source, target, bit in path:
            self.has[source] &= ~bit
            self.has[target] |= bit
