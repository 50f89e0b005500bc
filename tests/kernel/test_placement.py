"""Placement: bounded, sticky, deterministic (docs/safety.md, rule 6)."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.kernel.hash_ring import HashRing
from holdfast.kernel.placement import Placement, PlacementPlan, PlacementRequests, Workload, make_plan
from holdfast.kernel.quotas import quotas
from holdfast.vocabulary.types import Member, TopicPartition


def moved_partitions(
    before: Mapping[str, Sequence[Placement]], after: Mapping[str, Sequence[Placement]]
) -> list[TopicPartition]:
    """Partitions whose owner differs between two plans (new partitions do not count)."""
    return [
        TopicPartition(topic, number)
        for topic, placements in after.items()
        for number, placement in enumerate(placements)
        if number < len(before.get(topic, ())) and before[topic][number][:1] not in ((), placement[:1])
    ]


def agents(*numbers: int, zones: str = "", group: str = "default") -> list[Member]:
    return [
        Member(id=f"agent-{n}", session=f"s{n}", group=group, zone=zones[at] if zones else "")
        for at, n in enumerate(numbers)
    ]


def loads(plan: PlacementPlan, topic: str | None = None) -> Counter[str]:
    return Counter(
        placement[0]
        for name, placements in plan.items()
        if topic in (None, name)
        for placement in placements
        if placement
    )


def orders(partitions: int, **more: object) -> list[Workload]:
    return [Workload(topic="orders", partitions=partitions, **more)]  # type: ignore[arg-type]


def test_the_plain_ring_matches_the_published_vectors() -> None:
    three, four = HashRing(["agent-1", "agent-2", "agent-3"]), HashRing([f"agent-{n}" for n in range(1, 5)])
    labels = [f"orders:{n}" for n in range(6)]
    assert [int(three.owner(label)[-1]) for label in labels] == [1, 3, 1, 1, 2, 2]
    assert [int(four.owner(label)[-1]) for label in labels] == [1, 4, 1, 4, 2, 2]
    many = [f"orders:{n}" for n in range(600)]
    counts = Counter(three.owner(label) for label in many)
    assert [counts[f"agent-{n}"] for n in (1, 2, 3)] == [202, 190, 208]
    moved = sum(three.owner(label) != four.owner(label) for label in many)
    assert round(100 * moved / 600, 1) == 24.8


def test_six_partitions_on_three_agents_are_two_each() -> None:
    assert sorted(loads(make_plan({}, agents(1, 2, 3), orders(6))).values()) == [2, 2, 2]


def test_six_partitions_on_four_agents_are_2_2_1_1() -> None:
    assert sorted(loads(make_plan({}, agents(1, 2, 3, 4), orders(6))).values()) == [1, 1, 2, 2]


def test_600_partitions_move_only_when_they_must() -> None:
    on_three = make_plan({}, agents(1, 2, 3), orders(600))
    assert set(loads(on_three).values()) == {200}
    on_four = make_plan(on_three, agents(1, 2, 3, 4), orders(600))
    moved = moved_partitions(on_three, on_four)
    assert len(moved) == 150
    assert {on_four["orders"][partition.number][0] for partition in moved} == {"agent-4"}
    without_two = make_plan(on_four, agents(1, 3, 4), orders(600))
    lost = [number for number, placement in enumerate(on_four["orders"]) if placement[0] == "agent-2"]
    assert [partition.number for partition in moved_partitions(on_four, without_two)] == lost
    assert set(loads(without_two).values()) == {200}


def test_nothing_moves_when_nothing_changed() -> None:
    first = make_plan({}, agents(1, 2, 3), orders(17, replicas=2))
    assert make_plan(first, agents(3, 1, 2), orders(17, replicas=2)) == first


def test_a_new_placement_follows_the_ring_while_there_is_room() -> None:
    plan = make_plan({}, agents(1, 2, 3), orders(6))
    # The plain ring says 1,3,1,1,2,2; the fourth does not fit on agent-1 and goes on clockwise.
    assert [placement[0] for placement in plan["orders"]][:3] == ["agent-1", "agent-3", "agent-1"]


def test_groups_restrict_where_a_topic_may_live() -> None:
    members = [*agents(1, 2), *agents(3, group="bulk")]
    plan = make_plan({}, members, [*orders(4), Workload(topic="logs", partitions=4, group="bulk")])
    assert set(loads(plan, "orders")) == {"agent-1", "agent-2"}
    assert loads(plan, "logs") == {"agent-3": 4}


def test_replicas_are_spread_over_zones_and_differ_from_the_owner() -> None:
    members = agents(1, 2, 3, 4, zones="aabb")
    zone = {member.id: member.zone for member in members}
    for owner, replica in make_plan({}, members, orders(40, replicas=2))["orders"]:
        assert zone[owner] != zone[replica]


def test_fewer_agents_than_replicas_gives_what_there_is() -> None:
    assert all(len(set(p)) == 2 for p in make_plan({}, agents(1, 2), orders(4, replicas=3))["orders"])


def test_failover_lands_where_the_copy_is() -> None:
    before = make_plan({}, agents(1, 2, 3, 4), orders(400, replicas=3))
    after = make_plan(before, agents(1, 2, 3), orders(400, replicas=3))
    orphans = [n for n, placement in enumerate(before["orders"]) if placement[0] == "agent-4"]
    on_copy = [n for n in orphans if after["orders"][n][0] in before["orders"][n][1:]]
    assert len(on_copy) >= 0.9 * len(orphans)


def test_failover_prefers_a_replica_that_is_in_sync() -> None:
    members = agents(1, 2, 3, 4)
    before = make_plan({}, members, orders(400, replicas=3))
    placements = before["orders"]
    orphans = [n for n, placement in enumerate(placements) if placement[0] == "agent-4"]
    asked: set[int] = set()

    def in_sync(topic: str, number: int) -> tuple[str, ...]:
        asked.add(number)
        return ("agent-4", placements[number][2])  # the last one keeps up, the one before it does not

    after = make_plan(before, members[:3], orders(400, replicas=3), in_sync=in_sync)["orders"]
    assert asked == set(orphans)
    in_plain_order = make_plan(before, members[:3], orders(400, replicas=3))["orders"]
    ready, plain = (
        sum(plan[n][0] == placements[n][2] for n in orphans)  # as far as the load cap allows
        for plan in (after, in_plain_order)
    )
    assert ready >= 0.8 * len(orphans) > 2 * plain
    assert set(loads({"orders": after}).values()) <= {133, 134}


def test_replicas_do_not_depend_on_what_was_planned_before() -> None:
    """They are remembered from plan to plan for as long as the agents and their zones are the same."""
    for zones in ("abab", "aabb", "abab"):
        members = agents(1, 2, 3, 4, zones=zones)
        zone = {member.id: member.zone for member in members}
        for owner, replica in make_plan({}, members, orders(40, replicas=2))["orders"]:
            assert zone[owner] != zone[replica]


def test_a_group_whose_agents_are_all_gone_keeps_its_plan() -> None:
    before = make_plan({}, agents(1, 2), orders(4))
    assert make_plan(before, [], orders(4)) == before
    assert make_plan({}, [], orders(2)) == {"orders": ((), ())}


members_lists = st.sets(st.integers(1, 7), min_size=1, max_size=6).map(sorted)
workload_lists = st.lists(st.integers(1, 9), min_size=1, max_size=6).map(
    lambda sizes: [Workload(topic=f"t{n}", partitions=size) for n, size in enumerate(sizes)]
)


@given(st.lists(members_lists, min_size=1, max_size=5), workload_lists)
def test_every_plan_of_a_history_is_bounded_per_topic_and_in_total(
    history: list[list[int]], workloads: list[Workload]
) -> None:
    plan: PlacementPlan = {}
    for numbers in history:
        members = agents(*numbers)
        plan = make_plan(plan, members, workloads)
        for counts in [loads(plan), *(loads(plan, workload.topic) for workload in workloads)]:
            spread = [counts[member.id] for member in members]
            assert max(spread) - min(spread) <= 1
        assert loads(plan).total() == sum(workload.partitions for workload in workloads)


small_sizes = st.lists(st.integers(1, 5), min_size=1, max_size=3)
small_held = st.lists(st.lists(st.integers(0, 2), min_size=3, max_size=3), min_size=3, max_size=3)


@given(small_sizes, small_held, st.integers(2, 3))
def test_quotas_keep_as_much_as_any_balanced_quotas_could(sizes: list[int], held: list[list[int]], count: int) -> None:
    ids = [f"a{n}" for n in range(count)]
    named = {f"t{n}": size for n, size in enumerate(sizes)}
    counts = {f"t{n}": dict(zip(ids, held[n], strict=False)) for n in range(len(sizes))}
    chosen = quotas(named, counts, ids, dict.fromkeys(named, ids))
    choices = [list(combinations(ids, size % count)) for size in sizes]
    best = -1
    for extras in product(*choices):
        given_ = {t: {a: named[t] // count + (a in e) for a in ids} for t, e in zip(named, extras, strict=True)}
        totals = [sum(given_[t][a] for t in named) for a in ids]
        if max(totals) - min(totals) <= 1:
            best = max(best, kept(given_, counts))
    assert kept(chosen, counts) == best


def kept(quota: dict[str, dict[str, int]], held: dict[str, dict[str, int]]) -> int:
    return sum(min(room, held[topic].get(agent, 0)) for topic, rooms in quota.items() for agent, room in rooms.items())


class TestRequestsOfOperators:
    def test_a_drained_agent_gets_nothing_and_only_its_partitions_move(self) -> None:
        before = make_plan({}, agents(1, 2, 3), orders(9))
        after = make_plan(before, agents(1, 2, 3), orders(9), PlacementRequests({"agent-2"}))
        assert loads(after)["agent-2"] == 0
        assert sorted(loads(after).values()) == [4, 5]
        assert {before["orders"][each.number][0] for each in moved_partitions(before, after)} == {"agent-2"}

    def test_one_that_nobody_can_replace_keeps_its_work(self) -> None:
        members = [*agents(1), *agents(2, group="bulk")]
        both = [*orders(4), Workload(topic="logs", partitions=4, group="bulk")]
        plan = make_plan({}, members, both, PlacementRequests({"agent-1", "agent-2"}))
        assert loads(plan) == {"agent-1": 4, "agent-2": 4}

    def test_an_assigned_partition_goes_where_it_is_assigned_and_others_make_room(self) -> None:
        before = make_plan({}, agents(1, 2), orders(6))
        number = next(n for n, placement in enumerate(before["orders"]) if placement[0] == "agent-1")
        requests = PlacementRequests(assigned={"orders": {number: ("agent-2",)}})
        after = make_plan(before, agents(1, 2), orders(6), requests)
        assert after["orders"][number] == ("agent-2",)
        assert loads(after) == {"agent-1": 3, "agent-2": 3}
        assert len(moved_partitions(before, after)) == 2
        assert make_plan(after, agents(1, 2), orders(6), requests) == after

    def test_more_than_its_share_can_be_assigned_to_an_agent(self) -> None:
        requests = PlacementRequests(assigned={"orders": dict.fromkeys(range(5), ("agent-1",))})
        plan = make_plan({}, agents(1, 2), orders(6), requests)
        assert loads(plan) == {"agent-1": 5, "agent-2": 1}

    def test_an_assignment_to_agents_that_are_gone_or_drained_is_not_followed(self) -> None:
        requests = PlacementRequests(
            {"agent-2"}, {"orders": {0: ("agent-9",), 1: ("agent-2", "agent-3"), 7: ("agent-1",)}}
        )
        plan = make_plan({}, agents(1, 2, 3), orders(4), requests)
        assert plan["orders"][1] == ("agent-3",)
        assert sorted(loads(plan).values()) == [2, 2]

    def test_assigned_replicas_come_before_those_of_the_ring(self) -> None:
        requests = PlacementRequests(
            assigned={"orders": {0: ("agent-3", "agent-1"), 1: ("agent-2", "agent-4", "agent-1")}}
        )
        plan = make_plan({}, agents(1, 2, 3, 4), orders(8, replicas=2), requests)
        assert plan["orders"][:2] == (("agent-3", "agent-1"), ("agent-2", "agent-4"))
        assert all(len(set(placement)) == 2 for placement in plan["orders"])

    @given(
        partitions=st.integers(1, 30),
        count=st.integers(1, 5),
        assigned=st.dictionaries(st.integers(0, 35), st.lists(st.integers(1, 7), min_size=1, max_size=3), max_size=10),
        drained=st.sets(st.integers(1, 7), max_size=5),
    )
    def test_every_partition_is_placed_and_the_plan_settles(
        self, partitions: int, count: int, assigned: dict[int, list[int]], drained: set[int]
    ) -> None:
        named = {number: tuple(f"agent-{n}" for n in ids) for number, ids in assigned.items()}
        requests = PlacementRequests({f"agent-{n}" for n in drained}, {"orders": named})
        members = agents(*range(1, count + 1))
        staying = {each.id for each in members} - set(requests.drained) or {each.id for each in members}
        plan = make_plan({}, members, orders(partitions, replicas=2), requests)
        assert len(plan["orders"]) == partitions
        assert {agent for placement in plan["orders"] for agent in placement} <= staying
        assert make_plan(plan, members, orders(partitions, replicas=2), requests) == plan


def test_the_ring_is_asked_only_where_several_agents_have_room(monkeypatch: pytest.MonkeyPatch) -> None:
    real, walks = HashRing.walk, []

    def counted(ring: HashRing, label: str) -> Iterator[str]:
        walks.append(label)
        return real(ring, label)

    monkeypatch.setattr(HashRing, "walk", counted)
    plan = make_plan({}, agents(1), [Workload(topic="orders", partitions=50)])
    assert plan["orders"] == (("agent-1",),) * 50
    assert len(walks) == 1  # of the topic, for its quotas
