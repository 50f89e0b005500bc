"""Shards are placed on everybody, by themselves: they do not disturb how topics are shared out."""

from holdfast.groups.keys import GROUP_SHARDS_WORKLOAD
from holdfast.kernel.placement import ANY_GROUP, PlacementPlan, Workload, make_plan
from holdfast.log.topics import check_name
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.types import Member


def owners(plan: PlacementPlan, topic: str) -> dict[str, int]:
    found = [placement[0] for placement in plan[topic] if placement]
    return {owner: found.count(owner) for owner in set(found)}


def member(name: str, group: str = "default") -> Member:
    return Member(id=name, session=name, group=group)


def test_every_agent_gets_its_share_whatever_its_group() -> None:
    shards = Workload(topic=GROUP_SHARDS_WORKLOAD, partitions=16, group=ANY_GROUP)
    topic = Workload(topic="orders", partitions=7, group="blue")
    members = [member("a", "blue"), member("b", "blue"), member("c", "green")]
    plan = make_plan({}, members, [shards, topic])
    assert sorted(owners(plan, GROUP_SHARDS_WORKLOAD).values()) == [5, 5, 6]
    assert owners(plan, "orders").keys() == {"a", "b"}
    assert plan["orders"] == make_plan({}, members, [topic])["orders"]


def test_no_topic_can_have_the_name_of_the_groups() -> None:
    try:
        check_name(GROUP_SHARDS_WORKLOAD)
    except InvalidError:
        return
    raise AssertionError
