"""Replicas by the names of agents: a WAL is a replica, and an agent that has another one by now is not in sync by the old one."""

import pytest

from holdfast.agent.partition_replicas import named_replicas
from holdfast.log.keys import wal_agent_key
from holdfast.log.replica_sets import ReplicaSet

WAL_AGENTS = {wal_agent_key(wal): agent for wal, agent in (("w1", "ann"), ("w2", "bob"), ("w3", "cyd"), ("w4", "cyd"))}
SET = ReplicaSet(epoch=3, replicas=("w1", "w2", "w3"), in_sync=("w1", "w2", "w3"))


@pytest.mark.parametrize(
    ("live", "in_sync"),
    [
        ({"ann": "w1", "bob": "w2", "cyd": "w3"}, ("ann", "bob", "cyd")),
        ({"ann": "w1", "bob": "w2", "cyd": "w4"}, ("ann", "bob")),  # with a new disk
        ({"ann": "w1", "bob": "w2"}, ("ann", "bob", "cyd")),  # away: its leader says how long it counts
        ({"ann": "w1", "bob": "w2", "cyd": ""}, ("ann", "bob", "cyd")),  # of a release that does not tell
    ],
)
def test_an_agent_with_a_new_disk_is_not_in_sync_by_its_old_wal(live: dict[str, str], in_sync: tuple[str, ...]) -> None:
    named = named_replicas(SET, WAL_AGENTS, live.get)
    assert named.agents == ("ann", "bob", "cyd")
    assert named.in_sync == in_sync


def test_an_agent_is_in_sync_by_the_wal_that_it_has() -> None:
    both = ReplicaSet(epoch=4, replicas=("w1", "w3", "w4"), in_sync=("w1", "w4"))
    assert named_replicas(both, WAL_AGENTS, {"ann": "w1", "cyd": "w4"}.get).in_sync == ("ann", "cyd")
