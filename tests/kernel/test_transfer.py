"""Transfers: the table, and the one commit that moves a lease."""

from itertools import product

import pytest

from holdfast.contracts.store import Put, Store
from holdfast.kernel.keys import holder_key, partition_from_resource, partition_resource
from holdfast.kernel.lease import Lease, acquire, commit_fenced, read_holder
from holdfast.kernel.transfer import (
    Transfer,
    TransferState,
    TransferStep,
    answer_transfer,
    complete_transfer,
    next_state,
    offer_transfer,
)
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import FencedError, InvalidError
from holdfast.vocabulary.random import SystemRandom
from holdfast.vocabulary.types import TopicPartition

CLOCK, RANDOM = RealClock(), SystemRandom()
ALLOWED = {
    ("pending", "accept"): "accepted",
    ("pending", "reject"): "rejected",
    ("pending", "fail"): "failed",
    ("accepted", "complete"): "completed",
    ("accepted", "fail"): "failed",
}


@pytest.mark.parametrize(("state", "step"), list(product(TransferState, TransferStep)))
def test_the_table_of_transitions_is_the_one_in_the_design(state: TransferState, step: TransferStep) -> None:
    if (state, step) in ALLOWED:
        assert next_state(state, step) == ALLOWED[state, step]
    else:
        with pytest.raises(InvalidError):
            next_state(state, step)


async def source_lease(store: Store) -> Lease:
    session = await store.open_session(30_000)
    lease = await acquire(store, "p/0", holder="ann", session=session.id, clock=CLOCK, random=RANDOM)
    assert isinstance(lease, Lease)
    return lease


async def accepted(store: Store, lease: Lease) -> Transfer:
    offer = await offer_transfer(store, lease, target="bob", latest=None, clock=CLOCK, random=RANDOM)
    assert offer is not None
    agreed = await answer_transfer(store, offer, TransferStep.ACCEPT, clock=CLOCK, random=RANDOM)
    assert agreed is not None
    return agreed


async def test_completing_moves_the_lease_to_the_targets_session_at_the_next_epoch(store: Store) -> None:
    ann = await source_lease(store)
    transfer = await accepted(store, ann)
    target = await store.open_session(30_000)
    bob = await complete_transfer(store, ann, transfer, target_session=target.id, clock=CLOCK, random=RANDOM)
    assert bob is not None
    assert (bob.epoch, bob.holder, bob.session) == (2, "bob", target.id)
    await store.close_session(ann.session)  # the source dies: nothing of the lease was its any more
    entry = await store.get(holder_key("p/0"))
    assert entry is not None
    assert read_holder(entry).holder == "bob"
    with pytest.raises(FencedError):
        await commit_fenced(store, ann, clock=CLOCK, random=RANDOM, apply=[Put("effect", b"1")])
    await commit_fenced(store, bob, clock=CLOCK, random=RANDOM, apply=[Put("effect", b"2")])


async def test_a_target_whose_session_died_leaves_the_source_the_owner(store: Store) -> None:
    ann = await source_lease(store)
    transfer = await accepted(store, ann)
    target = await store.open_session(30_000)
    await store.close_session(target.id)
    assert await complete_transfer(store, ann, transfer, target_session=target.id, clock=CLOCK, random=RANDOM) is None
    await commit_fenced(store, ann, clock=CLOCK, random=RANDOM, apply=[Put("effect", b"1")])


async def test_a_transfer_that_was_failed_meanwhile_cannot_be_completed(store: Store) -> None:
    ann = await source_lease(store)
    transfer = await accepted(store, ann)
    assert await answer_transfer(store, transfer, TransferStep.FAIL, clock=CLOCK, random=RANDOM) is not None
    target = await store.open_session(30_000)
    assert await complete_transfer(store, ann, transfer, target_session=target.id, clock=CLOCK, random=RANDOM) is None


async def test_an_owner_that_was_succeeded_can_neither_begin_nor_complete(store: Store) -> None:
    ann = await source_lease(store)
    transfer = await accepted(store, ann)
    await store.close_session(ann.session)
    await source_lease(store)
    target = await store.open_session(30_000)
    with pytest.raises(FencedError):
        await complete_transfer(store, ann, transfer, target_session=target.id, clock=CLOCK, random=RANDOM)
    with pytest.raises(FencedError):
        await offer_transfer(store, ann, target="bob", latest=transfer, clock=CLOCK, random=RANDOM)


async def test_two_answers_to_one_offer_do_not_both_count(store: Store) -> None:
    ann = await source_lease(store)
    offer = await offer_transfer(store, ann, target="bob", latest=None, clock=CLOCK, random=RANDOM)
    assert offer is not None
    assert await answer_transfer(store, offer, TransferStep.REJECT, clock=CLOCK, random=RANDOM) is not None
    assert await answer_transfer(store, offer, TransferStep.ACCEPT, clock=CLOCK, random=RANDOM) is None
    with pytest.raises(InvalidError):
        await answer_transfer(store, offer, TransferStep.COMPLETE, clock=CLOCK, random=RANDOM)


def test_partition_resources_read_back_whatever_the_topic_is_called() -> None:
    for topic in ("orders", "a.b-c_d", "with/slash"):
        partition = TopicPartition(topic, 42)
        assert partition_from_resource(partition_resource(partition)) == partition
    with pytest.raises(InvalidError):
        partition_from_resource("planner")
