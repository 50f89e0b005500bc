"""Where a client sends requests: to the leader of their partition or to the spine, as soon as that is known."""

import asyncio

import pytest

from holdfast.client.addresses import BrokerAddress
from holdfast.client.broker_login import LoginRefusedError
from holdfast.heap.wire import PopRequest, StatsRequest
from holdfast.heaps.places import FORGOTTEN_MS, KNOWN_MS, UNKNOWN_MS, AnsweredPlaces, HeapPlaces
from holdfast.vocabulary.clock import FakeClock
from holdfast.vocabulary.errors import ClosedError, UnavailableError

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
        await asyncio.sleep(0)  # noqa: TID251
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


async def test_nothing_is_kept_of_heaps_that_nobody_has_used_for_long() -> None:
    clock, cluster = FakeClock(), Cluster("ann:1")
    places = HeapPlaces(cluster.ask, clock)
    for at in range(20):
        await places.find(f"reply-{at}")
    await places.find("jobs")
    for _ in range(FORGOTTEN_MS // KNOWN_MS + 2):
        assert places.of(POP) == ANN
        await turns()
        clock.advance_ms(KNOWN_MS)
    assert list(places._heaps) == ["jobs"]


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


async def test_what_was_at_a_node_that_does_not_answer_is_asked_for_again() -> None:
    clock, cluster = FakeClock(), Cluster("ann:1", "bob:2", spine="bob:2")
    places = HeapPlaces(cluster.ask, clock)
    await places.find("jobs")
    places.lost(BOB)
    assert (places.of(OF_FIRST), places.of(OF_SECOND), places.of(POP)) == (ANN, None, None)
    assert places.nodes == {ANN, BOB}
    cluster.leaders, cluster.spine = ("ann:1", "ann:1"), "ann:1"
    clock.advance_ms(UNKNOWN_MS)
    places.of(POP)
    await turns()
    assert (places.of(OF_SECOND), places.of(POP)) == (ANN, ANN)
    assert places.nodes == {ANN}


async def test_whoever_asks_at_the_same_time_shares_one_lookup() -> None:
    cluster = Cluster("ann:1", "bob:2")
    places = HeapPlaces(cluster.ask, FakeClock())
    asking = [asyncio.ensure_future(places.count("jobs")) for _ in range(100)]
    await asyncio.sleep(0)  # noqa: TID251
    asking.pop(0).cancel()
    assert await asyncio.gather(*asking) == [2] * 99
    assert cluster.asked == 1


async def test_a_lookup_from_before_a_heap_was_changed_counts_for_nobody_else() -> None:
    cluster, late = Cluster("ann:1"), asyncio.Event()

    async def ask(topic: str) -> AnsweredPlaces:
        answer = await cluster.ask(topic)
        if len(answer.leaders) == 1:
            await late.wait()
        return answer

    places = HeapPlaces(ask, FakeClock())
    before = asyncio.ensure_future(places.count("jobs"))
    await turns()
    places.forget("jobs")
    cluster.leaders = ("ann:1", "bob:2")
    assert await places.count("jobs") == 2
    late.set()
    assert (await before, await places.count("jobs")) == (1, 2)


async def test_who_waits_for_a_lookup_learns_that_the_client_was_closed() -> None:
    places = HeapPlaces(Cluster("ann:1").ask, FakeClock())
    asking = asyncio.ensure_future(places.count("jobs"))
    await asyncio.sleep(0)  # noqa: TID251
    places.close()
    with pytest.raises(ClosedError):
        await asking


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
