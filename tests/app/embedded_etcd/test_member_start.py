"""What a node's member does next: no empty disk ever answers for a member that had data."""

import pytest

from holdfast.app.embedded_etcd.member_start import (
    AddLearner,
    EtcdBootstrap,
    EtcdMemberRecord,
    Refuse,
    RemoveMember,
    SetAside,
    StartAdded,
    StartOwn,
    Step,
    Wait,
    next_step,
)
from holdfast.stores.etcd.members import EtcdPeer, MemberList

N1 = EtcdPeer(id=1, name="n1", peer_urls=("http://h1:2380",), client_urls=("http://h1:2379",), learner=False)
N2 = EtcdPeer(id=2, name="n2", peer_urls=("http://h2:2380",), client_urls=("http://h2:2379",), learner=False)
ADDED = EtcdPeer(id=3, name="", peer_urls=("http://h2:2380",), client_urls=(), learner=True)
OTHER_LEARNER = EtcdPeer(id=4, name="", peer_urls=("http://h3:2380",), client_urls=(), learner=True)
RECORD = EtcdMemberRecord(name="n2", cluster=7, member=2)


def step(
    *members: EtcdPeer,
    has_data: bool = False,
    record: EtcdMemberRecord | None = None,
    joins: bool = True,
    answers: bool = True,
    replace: bool = False,
    cluster: int = 7,
) -> Step:
    return next_step(
        name="n2",
        peer_url="http://h2:2380",
        has_data=has_data,
        record=record,
        joins=joins,
        found=MemberList(cluster, members) if answers and joins else None,
        replace=replace,
    )


def test_a_node_that_joins_nobody_begins_a_cluster() -> None:
    assert step(joins=False) == EtcdBootstrap()


def test_a_node_that_was_a_member_never_begins_another_cluster_by_itself() -> None:
    refused = step(joins=False, record=RECORD)
    assert isinstance(refused, Refuse)
    assert "--replace" in refused.message
    assert "store restore" in refused.message


def test_data_are_started_as_they_are_whether_anybody_answers_or_not() -> None:
    assert step(has_data=True, joins=False, record=RECORD) == StartOwn()
    assert step(has_data=True, answers=False, record=RECORD) == StartOwn()
    assert step(N1, N2, has_data=True, record=RECORD) == StartOwn()
    assert step(N1, ADDED, has_data=True) == StartOwn()  # died before it had written which member it is


def test_a_removed_member_comes_back_as_a_new_one_and_only_if_asked_to() -> None:
    assert isinstance(step(N1, has_data=True, record=RECORD), Refuse)
    assert step(N1, has_data=True, record=RECORD, replace=True) == SetAside()


def test_a_member_of_one_cluster_does_not_join_another() -> None:
    refused = step(N1, N2, has_data=True, record=RECORD, cluster=8, replace=True)
    assert isinstance(refused, Refuse)
    assert "cluster 8" in refused.message


def test_a_new_node_is_added_once_and_started_once_it_is_added() -> None:
    assert step(N1) == AddLearner()
    assert step(N1, ADDED) == StartAdded((N1, ADDED))


def test_a_new_node_waits_for_somebody_to_answer_and_for_the_learner_before_it() -> None:
    assert isinstance(step(answers=False), Wait)
    waits = step(N1, OTHER_LEARNER)
    assert isinstance(waits, Wait)
    assert "h3:2380" in waits.reason


@pytest.mark.parametrize("known", [N2, EtcdPeer(id=5, name="", peer_urls=N2.peer_urls, client_urls=(), learner=False)])
def test_an_empty_disk_never_answers_for_a_voter(known: EtcdPeer) -> None:
    refused = step(N1, known)
    assert isinstance(refused, Refuse)
    assert "new member" in refused.message
    assert step(N1, known, replace=True) == RemoveMember(known)


def test_an_address_of_another_member_is_refused() -> None:
    taken = EtcdPeer(id=6, name="n9", peer_urls=N2.peer_urls, client_urls=(), learner=False)
    refused = step(N1, taken, replace=True)
    assert isinstance(refused, Refuse)
    assert "n9" in refused.message
