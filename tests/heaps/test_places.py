"""Where a client sends requests: to the leader of their partition or to the spine, as soon as that is known."""

import asyncio

import pytest

from holdfast.client.addresses import BrokerAddress
from holdfast.client.broker_login import LoginRefusedError
from holdfast.heap.wire import PopRequest, StatsRequest
from holdfast.heaps.places import KNOWN_MS, SHUNNED_MS, UNKNOWN_MS, AnsweredPlaces, HeapPlaces
from holdfast.vocabulary.clock import FakeClock
from holdfast.vocabulary.errors import UnavailableError

ANN, BOB = BrokerAddress("ann", 1), BrokerAddress("bob", 2)
OF_FIRST, OF_SECOND = StatsRequest(topic="jobs", partition=0), StatsRequest(topic="jobs", partition=1)
POP = PopRequest(topic="jobs", consumer="c", max_messages=1, visibility_timeout_ms=1)


class Cluster:
    """What a node says of the leaders and the spine, and how often it was asked."""

    def __init__(self, *leaders: str, spine: str | None = None) -> None:
        self.leaders, self.spine, self.asked = leaders, spine, 0
        self.failure: Exception | None = None

    async def ask(self, topic: str) -> AnsweredPlaces:
        self.asked += 1
        if self.failure is not None:
            raise self.failure
        return AnsweredPlaces(self.leaders, self.spine)


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)  # noqa: TID251


async def test_a_leader_that_was_unknown_is_asked_for_again_soon() -> None:
    clock, cluster = FakeClock(), Cluster("ann:1", "")
    places = HeapPlaces(cluster.ask, clock)
    assert await places.count("jobs") == 2
    cluster.leaders = ("ann:1", "bob:2")
    assert (places.of(OF_FIRST), places.of(OF_SECOND)) == (ANN, None)
    clock.advance_ms(UNKNOWN_MS)
    assert [places.of(OF_SECOND), places.of(OF_SECOND)] == [None, None]
    await turns()
    assert (places.of(OF_FIRST), places.of(OF_SECOND)) == (ANN, BOB)
    assert cluster.asked == 2


async def test_a_leader_that_is_known_is_asked_for_again_now_and_then() -> None:
    """Where it was before forwards to it, so that no request ever fails."""
    clock, cluster = FakeClock(), Cluster("ann:1")
    places = HeapPlaces(cluster.ask, clock)
    await places.find("jobs")
    cluster.leaders = ("bob:2",)
    clock.advance_ms(KNOWN_MS - 1)
    assert places.of(POP) == ANN
    await turns()
    assert cluster.asked == 1
    clock.advance_ms(1)
    places.of(OF_FIRST)
    await turns()
    assert places.of(OF_FIRST) == BOB


async def test_a_node_that_does_not_say_is_not_asked_all_the_time() -> None:
    clock, cluster = FakeClock(), Cluster("ann:1", "bob:2")
    places = HeapPlaces(cluster.ask, clock)
    await places.find("jobs")
    places.moved("jobs")
    cluster.failure = UnavailableError("node", "away")
    for _ in range(10 * UNKNOWN_MS):
        clock.advance_ms(1)
        assert places.of(OF_SECOND) is None
        await asyncio.sleep(0)  # noqa: TID251
    assert cluster.asked == 1 + 10
    assert await places.count("jobs") == 2  # that is known all the same


async def test_a_heap_of_which_nothing_is_known_is_asked_for_by_each_call() -> None:
    cluster = Cluster("ann:1")
    places = HeapPlaces(cluster.ask, FakeClock())
    cluster.failure = UnavailableError("node", "away")
    await places.find("jobs")
    with pytest.raises(UnavailableError):
        await places.count("jobs")
    cluster.failure = LoginRefusedError("node", "wrong password")
    with pytest.raises(LoginRefusedError):
        await places.find("jobs")
    cluster.failure = None
    await places.find("jobs")
    assert places.of(OF_FIRST) == ANN
    places.forget("jobs")
    assert places.of(OF_FIRST) is None


async def test_nothing_is_asked_after_the_client_was_closed() -> None:
    clock, cluster = FakeClock(), Cluster("")
    places = HeapPlaces(cluster.ask, clock)
    await places.find("jobs")
    clock.advance_ms(UNKNOWN_MS)
    places.of(OF_FIRST)
    places.close()
    await turns()
    assert cluster.asked == 1


async def test_pops_of_several_partitions_go_to_their_spine() -> None:
    clock, cluster = FakeClock(), Cluster("ann:1", "ann:1", spine="")
    places = HeapPlaces(cluster.ask, clock)
    await places.find("jobs")
    cluster.spine = "bob:2"
    assert places.of(POP) is None
    clock.advance_ms(UNKNOWN_MS)
    places.of(POP)
    await turns()
    assert (places.of(POP), places.of(OF_FIRST), places.of(StatsRequest(topic="jobs"))) == (BOB, ANN, None)
    places.moved("jobs")
    assert places.of(POP) is None


async def test_a_node_that_knows_no_spines_is_not_asked_for_them_again_and_again() -> None:
    clock, cluster = FakeClock(), Cluster("ann:1", "ann:1")
    places = HeapPlaces(cluster.ask, clock)
    await places.find("jobs")
    clock.advance_ms(UNKNOWN_MS)
    assert places.of(POP) is None
    await turns()
    assert cluster.asked == 1


async def test_a_node_that_cannot_be_reached_is_not_tried_with_every_request() -> None:
    """Its address may be good for others, and connecting to it may take seconds."""
    clock, cluster = FakeClock(), Cluster("ann:1", "bob:2")
    places = HeapPlaces(cluster.ask, clock)
    await places.find("jobs")
    places.shun(BOB)
    assert (places.of(OF_FIRST), places.of(OF_SECOND)) == (ANN, None)
    clock.advance_ms(SHUNNED_MS - 1)
    assert places.of(OF_SECOND) is None
    await turns()
    assert cluster.asked == 1
    clock.advance_ms(1)
    assert places.of(OF_SECOND) == BOB


async def test_a_login_that_is_refused_is_not_tried_again_in_the_background() -> None:
    clock, cluster = FakeClock(), Cluster("")
    places = HeapPlaces(cluster.ask, clock)
    await places.find("jobs")
    cluster.failure = LoginRefusedError("node", "wrong password")
    for _ in range(20):
        clock.advance_ms(UNKNOWN_MS)
        places.of(OF_FIRST)
        await turns()
    assert cluster.asked == 2
