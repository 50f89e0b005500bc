"""ElectLeaders: the preferred leader is whom the assignment, or else the plan, names first."""

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from tests.support.kafka_admin import Admin, code
from tests.support.replicas import admins_of
from tests.support.waiting import async_until

from holdfast.gateways.kafka.leaders import leader_of
from holdfast.kafka.error_codes import ErrorCode

SOON = timedelta(seconds=20)
PREFERRED, UNCLEAN = 0, 1
QUORUM = {"durability": "quorum", "replication_factor": 2}


async def elect(
    admin: Admin, numbers: Sequence[int] | None, kind: int = PREFERRED, topic: str = "orders"
) -> dict[int, ErrorCode]:
    named = None if numbers is None else [{"topic": topic, "partitions": list(numbers)}]
    answer = await admin.ask("ElectLeaders", election_type=kind, topic_partitions=named, timeout=SOON)
    assert code(answer) is ErrorCode.NONE
    return {
        each.partition_id: code(each) for topic in answer.replica_election_results for each in topic.partition_result
    }


async def test_the_assigned_leader_is_waited_for_and_one_that_is_gone_is_named(tmp_path: Path) -> None:
    async with admins_of(tmp_path, "ann", "bob", "cat") as admins:
        admin, bob = admins[0], admins[1]
        await admin.backend.log.topics.create("orders", 2, QUORUM)
        cluster, administration = admin.backend.cluster, admin.backend.administration
        await async_until(lambda: all(cluster.leader("orders", number) for number in (0, 1)))

        async def follows_the_plan() -> bool:
            preferred = await administration.preferred_leaders(["orders"])
            leaders = {which: cluster.leader("orders", which.number) for which in preferred}
            return len(preferred) == 2 and all(
                held is not None and held.holder == preferred[which] for which, held in leaders.items()
            )

        await async_until(follows_the_plan)
        not_needed = dict.fromkeys((0, 1), ErrorCode.ELECTION_NOT_NEEDED)
        assert await elect(admin, [0, 1, 7]) == {**not_needed, 7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert await elect(admin, None) == {}
        assert await elect(admin, [0, 1], UNCLEAN) == not_needed
        # From a broker to another: the answer is given when it leads.
        for first, second in (("bob", "cat"), ("cat", "bob"), ("bob", "ann")):
            await administration.assign("orders", {0: (first, second)})
            assert (await elect(admin, [0]))[0] in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)
            held = cluster.leader("orders", 0)
            assert held is not None
            assert held.holder == first
        await bob.gateway.node.drop()
        await async_until(lambda: len(cluster.members) == 2)
        assert (await elect(admin, [0]))[0] is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        assert (await elect(admin, None))[0] is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


async def test_a_partition_without_replicas_needs_no_election_and_one_without_a_leader_gets_none(
    tmp_path: Path,
) -> None:
    async with admins_of(tmp_path, "ann") as (admin,):
        await admin.backend.log.topics.create("orders", 1)
        await admin.backend.log.topics.create("elsewhere", 1, {"agent_group": "nobody"})
        await admin.backend.log.topics.create("kept", 1, {**QUORUM, "agent_group": "nobody"})
        await async_until(lambda: leader_of(admin.backend.cluster, "orders", 0).node == admin.node)
        await async_until(lambda: admin.backend.cluster.topic("kept"))
        assert await elect(admin, [0]) == {0: ErrorCode.ELECTION_NOT_NEEDED}
        for topic in ("elsewhere", "kept"):
            assert await elect(admin, [0], topic=topic) == {0: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
            assert await elect(admin, [0], UNCLEAN, topic) == {0: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}
