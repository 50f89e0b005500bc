"""Which node and which connection takes a request, when nodes are away, frozen or slow, and when the client is closed."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast import heaps
from holdfast.client.addresses import BrokerAddress
from holdfast.heap.dead_letters import DeadLetterReport
from holdfast.heap.lease_token import LeaseToken
from holdfast.heap.model import Enqueued, PoppedMessage
from holdfast.heap.wire import (
    AckRequest,
    DeadLettersRequest,
    EnqueueRequest,
    HeapRequest,
    PlacesRequest,
    PopRequest,
    ReleaseRequest,
    SpineRequest,
    StatsRequest,
)
from holdfast.heaps.client import HeapClient
from holdfast.heaps.node_health import ANSWER_MS, ANSWER_PARTS, CHECK_MS, SHUNNED_MAX_MS, SHUNNED_MS
from holdfast.heaps.nodes import IDLE_MS, HeapNodes
from holdfast.heaps.places import KNOWN_MS
from holdfast.log.topics import UnknownTopicError
from holdfast.vocabulary.clock import FakeClock
from holdfast.vocabulary.errors import ClosedError, HoldfastError, OutcomeUnknownError, UnavailableError
from holdfast.vocabulary.runtime import Runtime

ANN, BOB = BrokerAddress("ann", 1), BrokerAddress("bob", 2)
FROZEN_MS = 2 * CHECK_MS + ANSWER_PARTS * ANSWER_MS
"""After which a node is known to be frozen at which something waits."""
POP = PopRequest(topic="jobs", consumer="c", visibility_timeout_ms=1, wait_ms=20_000)
STATS = StatsRequest(topic="jobs", partition=0)
REPLAY = DeadLettersRequest(topic="jobs", action="replay", rate_per_s=1)


class Connection:
    """A connection to a node that a test answers for."""

    def __init__(self, network: "Network", address: BrokerAddress) -> None:
        self.network, self.address = network, address
        self.lost: str | None = None
        self.waiting: list[asyncio.Future[Any]] = []

    @property
    def is_usable(self) -> bool:
        return self.lost is None

    @property
    def pending(self) -> int:
        return len(self.waiting)

    @property
    def oldest(self) -> int | None:
        return id(self.waiting[0]) if self.waiting else None

    async def call(self, request: HeapRequest) -> Any:
        """Waits behind all that waits."""
        self.network.requests.append((self.address, request))
        stuck = isinstance(request, self.network.stuck) or request.topic in self.network.offline
        if (
            self.waiting
            or self.address in self.network.frozen
            or (stuck and not isinstance(request, PlacesRequest | SpineRequest))
        ):
            self.waiting.append(asyncio.get_running_loop().create_future())
            return await self.waiting[-1]
        result = self.network.results[type(request)]
        if isinstance(result, HoldfastError):
            raise result
        return result

    async def ping(self) -> None:
        if self.address in self.network.frozen:
            await asyncio.get_running_loop().create_future()
        if self.network.held_up_ms:
            await _turns()
            self.network.clock.advance_ms(self.network.held_up_ms)
            await _turns()

    def end_requests(self) -> None:
        self.close()

    def close(self) -> None:
        self.lost = "closed"
        for each in self.waiting:
            if not each.done():
                each.set_exception(OutcomeUnknownError("request", "closed"))


class Network:
    """`down`: nodes that cannot be reached; `frozen`: those that answer nothing.

    `stuck`: requests that take their time; `offline`: heaps without leaders, for which nodes wait.
    """

    def __init__(self) -> None:
        self.down, self.frozen = set[BrokerAddress](), set[BrokerAddress]()
        self.stuck: tuple[type[HeapRequest], ...] = ()
        self.offline = set[str]()
        self.results: dict[type[HeapRequest], Any] = {
            PlacesRequest: ["ann:1", "bob:2"],
            SpineRequest: "ann:1",
            PopRequest: [],
            StatsRequest: [],
            AckRequest: [None],
            ReleaseRequest: [None],
            DeadLettersRequest: DeadLetterReport(0, 0),
        }
        self.opened: list[Connection] = []
        self.tried: list[BrokerAddress] = []
        self.requests: list[tuple[BrokerAddress, HeapRequest]] = []
        self.clock, self.held_up_ms = FakeClock(), 0
        self.nodes: list[HeapNodes] = []

    async def open(self, address: BrokerAddress, **options: Any) -> Connection:
        self.tried.append(address)
        await asyncio.sleep(0)  # noqa: TID251
        if address in self.down:
            raise UnavailableError(f"node {address}", "not reached")
        self.opened.append(Connection(self, address))
        return self.opened[-1]

    def client(self, bootstrap: str = "ann:1,bob:2", timeout_ms: int = 30_000) -> HeapNodes:
        nodes = HeapNodes(bootstrap, timeout_ms=timeout_ms, runtime=Runtime(clock=self.clock))
        self.nodes.append(nodes)
        return nodes

    def served(self, kind: type[HeapRequest]) -> list[BrokerAddress]:
        return [address for address, request in self.requests if isinstance(request, kind)]


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Iterator[Network]:
    network = Network()
    monkeypatch.setattr("holdfast.heaps.nodes.open_heap_connection", network.open)
    yield network
    for nodes in network.nodes:
        nodes.close()


async def _turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)  # noqa: TID251


async def test_a_frozen_node_is_given_up_long_before_the_time_of_a_pop_is_over(network: Network) -> None:
    nodes = network.client()
    await nodes.places.find("jobs")
    network.frozen = {ANN}
    popping = asyncio.ensure_future(nodes.pop(POP))
    acking = asyncio.ensure_future(nodes.call(STATS, again=True))
    await network.clock.run_for_ms(FROZEN_MS)
    assert popping.done()
    with pytest.raises(OutcomeUnknownError):
        await popping
    assert await nodes.pop(POP) == []
    await network.clock.run_for_ms(1_000)
    assert await acking == []
    assert network.served(PopRequest) == [ANN, BOB]
    assert network.served(StatsRequest) == [ANN, BOB]


async def test_a_node_that_is_only_slow_is_not_given_up(network: Network) -> None:
    nodes = network.client()
    await nodes.places.find("jobs")
    network.stuck = (PopRequest,)
    popping = asyncio.ensure_future(nodes.pop(POP))
    await network.clock.run_for_ms(2 * FROZEN_MS)
    assert not popping.done()
    assert len(network.opened) == 3  # for lookups, for the pop, and to ask whether the node is there
    popping.cancel()


async def test_no_node_is_taken_for_frozen_because_its_client_was_held_up(network: Network) -> None:
    """By work on its event loop, for instance: the answer is there, and was not read."""
    nodes = network.client()
    await nodes.places.find("jobs")
    network.stuck = (PopRequest,)
    popping = asyncio.ensure_future(nodes.pop(POP))
    await _turns()
    network.held_up_ms = 60_000
    await network.clock.run_for_ms(2 * FROZEN_MS)
    assert not popping.done()
    popping.cancel()


async def test_a_node_that_takes_no_new_connections_may_finish_what_it_has(network: Network) -> None:
    nodes = network.client()
    await nodes.places.find("jobs")
    network.stuck = (PopRequest,)
    popping = asyncio.ensure_future(nodes.pop(POP))
    await _turns()
    network.down = {ANN}
    await network.clock.run_for_ms(2 * FROZEN_MS)
    assert not popping.done()
    popping.cancel()


async def test_a_node_that_cannot_be_reached_is_tried_again_by_nobody_who_waits(network: Network) -> None:
    """Connecting to it may take seconds, though its address may be good for others."""
    nodes = network.client("bob:2")
    await nodes.places.find("jobs")
    network.down = {ANN}
    calls = (nodes.call(StatsRequest(topic="jobs", partition=0), again=True) for _ in range(20))
    assert await asyncio.gather(*calls) == [[]] * 20
    assert network.tried.count(ANN) == 1
    assert set(network.served(StatsRequest)) == {BOB}
    for pause_ms in (SHUNNED_MS, 2 * SHUNNED_MS, 4 * SHUNNED_MS):
        tried = network.tried.count(ANN)
        await network.clock.run_for_ms(pause_ms - 1)
        await nodes.call(STATS, again=True)
        assert network.tried.count(ANN) == tried
        await network.clock.run_for_ms(1)
        assert network.tried.count(ANN) == tried + 1
    await network.clock.run_for_ms(3 * SHUNNED_MAX_MS)
    network.down = set()
    await network.clock.run_for_ms(SHUNNED_MAX_MS)
    await nodes.call(STATS, again=True)
    assert network.served(StatsRequest)[-1] == ANN


async def test_a_node_that_left_the_cluster_is_not_tried_for_ever(network: Network) -> None:
    nodes = network.client("bob:2")
    await nodes.places.find("jobs")
    network.down, network.results[PlacesRequest], network.results[SpineRequest] = {ANN}, ["bob:2", "bob:2"], "bob:2"
    await nodes.call(STATS, again=True)
    network.clock.advance_ms(KNOWN_MS)
    await nodes.call(STATS, again=True)
    await network.clock.run_for_ms(2 * SHUNNED_MAX_MS)
    tried = network.tried.count(ANN)
    await network.clock.run_for_ms(5 * SHUNNED_MAX_MS)
    assert network.tried.count(ANN) == tried


async def test_pops_that_connect_at_once_all_find_the_node_that_is_there(network: Network) -> None:
    network.down = {ANN}
    network.results[PlacesRequest] = [""]
    nodes = network.client()
    assert await asyncio.gather(*(nodes.pop(POP) for _ in range(8))) == [[]] * 8


async def test_calls_that_time_out_together_leave_a_frozen_node_together(network: Network) -> None:
    network.frozen = {ANN}
    nodes = network.client(timeout_ms=10)
    calls = [nodes.call(StatsRequest(topic=f"heap-{at}"), again=False) for at in range(2)]
    await asyncio.gather(*calls, return_exceptions=True)
    nodes._timeout_ms = 30_000
    assert await nodes.call(STATS, again=False) == []


async def test_nodes_that_are_known_serve_on_without_those_of_the_bootstrap(network: Network) -> None:
    nodes = network.client("carol:3")
    await nodes.places.find("jobs")
    network.down = {BrokerAddress("carol", 3)}
    for connection in network.opened:
        connection.close()
    network.results[PlacesRequest] = UnavailableError("node", "it does not know")
    looking_up = asyncio.ensure_future(nodes.call(PlacesRequest(topic="jobs"), again=True))
    await _turns()
    assert nodes.places.of(STATS) == ANN
    network.results[PlacesRequest] = ["ann:1", "bob:2"]
    await network.clock.run_for_ms(1_000)
    assert await looking_up == ["ann:1", "bob:2"]
    assert network.served(PlacesRequest)[-1] == ANN


async def test_a_pop_of_a_heap_that_is_gone_forgets_where_it_was(network: Network) -> None:
    nodes = network.client()
    await nodes.places.find("jobs")
    network.results[PopRequest] = UnknownTopicError("jobs")
    with pytest.raises(UnknownTopicError):
        await nodes.pop(POP)
    assert nodes.places.of(STATS) is None


@pytest.mark.parametrize("request_of_client", [POP, STATS])
async def test_a_client_that_is_closed_while_it_connects_leaves_nothing_open(
    network: Network, request_of_client: HeapRequest
) -> None:
    nodes = network.client()
    work = nodes.pop(POP) if request_of_client is POP else nodes.call(STATS, again=True)
    asking = asyncio.ensure_future(work)
    while not network.tried:
        await asyncio.sleep(0)  # noqa: TID251
    nodes.close()
    with pytest.raises(ClosedError):
        await asking
    assert [each.lost for each in network.opened] == ["closed"]
    assert network.requests == []


async def test_what_a_pop_gets_while_the_client_is_closed_is_not_kept(network: Network) -> None:
    client = HeapClient(network.client(), name="c", buffered_bytes_max=1, linger_ms=5)
    await client.pop("jobs")
    network.stuck = (PopRequest,)
    popping = asyncio.ensure_future(client.pop("jobs", wait=10))
    await _turns()
    [waiting] = [each for connection in network.opened for each in connection.waiting]
    token = LeaseToken(0, 1, 0, 1).encode()
    waiting.set_result([PoppedMessage("id", "jobs", 0, b"", 0, 0, token, 0, 0, 0, None, None, ())])
    await client.close()
    with pytest.raises(ClosedError):
        await popping
    assert network.served(ReleaseRequest)
    assert client._leases.held == 0
    renewed = heaps.Message(waiting.result()[0], 1_000, client._leases)
    client._leases.keep([renewed])
    assert client._leases.held == 0


async def test_a_paced_replay_takes_its_time_and_holds_up_nobody(network: Network) -> None:
    nodes = network.client(timeout_ms=1)
    network.stuck = (DeadLettersRequest,)
    replays = [asyncio.ensure_future(nodes.call(REPLAY, again=False)) for _ in range(2)]
    await _turns()
    assert await nodes.call(AckRequest(topic="jobs", tokens=[b""]), again=False) == [None]
    await asyncio.sleep(0.02)  # noqa: TID251
    for connection in network.opened:
        for each in connection.waiting:
            each.set_result(DeadLetterReport(1, 1))
    assert await asyncio.gather(*replays) == [DeadLetterReport(1, 1)] * 2


async def test_a_heap_without_a_leader_holds_up_no_other_one(network: Network) -> None:
    """Its requests wait at the node, and responses come in order."""
    nodes = network.client()
    for heap in ("jobs", "others"):
        await nodes.places.find(heap)
    network.offline = {"jobs"}
    waiting = [asyncio.ensure_future(nodes.call(STATS, again=True)) for _ in range(2)]
    await _turns()
    async with asyncio.timeout(5):
        assert await nodes.call(StatsRequest(topic="others", partition=0), again=True) == []
        assert await nodes.call(AckRequest(topic="others", partition=0, tokens=[b""]), again=True) == [None]
        nodes.places.forget("jobs")
        assert await nodes.places.count("jobs") == 2
    assert not any(each.done() for each in waiting)
    for each in waiting:
        each.cancel()


async def test_a_request_that_took_too_long_keeps_nobody_from_its_node(network: Network) -> None:
    nodes = network.client()
    await nodes.places.find("others")
    network.offline = {"jobs"}
    with pytest.raises(OutcomeUnknownError):
        await nodes.call(STATS, again=False, timeout_ms=10)
    await _turns()
    for _ in range(3):
        await nodes.call(StatsRequest(topic="others", partition=0), again=True)
    assert network.served(StatsRequest) == [ANN] * 4


async def test_nothing_is_kept_of_nodes_that_have_left(network: Network) -> None:
    nodes = network.client("bob:2")
    for at in range(20):
        network.results[PlacesRequest] = [f"node-{at}:1", "bob:2"]
        network.results[SpineRequest] = f"node-{at}:1"
        nodes.places.forget("jobs")
        await nodes.places.find("jobs")
        await nodes.call(STATS, again=True)
        network.stuck = (PopRequest,)
        popping = asyncio.ensure_future(nodes.pop(POP))
        await network.clock.run_for_ms(2 * CHECK_MS)
        popping.cancel()
        await _turns()
        network.stuck = ()
        for connection in network.opened:
            if connection.address != BOB:
                connection.close()
    await network.clock.run_for_ms(2 * CHECK_MS)
    health = nodes._health
    kept = (nodes._connections, nodes._opening, nodes._alone, health._pings, health._asking)
    assert [len(each) < 6 for each in kept] == [True] * 5, [len(each) for each in kept]


async def test_connections_of_a_burst_of_pops_are_closed_after_a_while(network: Network) -> None:
    nodes = network.client("ann:1")
    network.stuck = (PopRequest,)
    burst = [asyncio.ensure_future(nodes.pop(POP)) for _ in range(5)]
    await _turns()
    for connection in network.opened:
        [waiting] = connection.waiting
        waiting.set_result([])
        connection.waiting.clear()
    await asyncio.gather(*burst)
    network.stuck = ()
    for _ in range(3):
        await network.clock.run_for_ms(IDLE_MS // 2)
        await nodes.pop(POP)
    assert [each.lost for each in network.opened] == [None, *["closed"] * 4]
    await network.clock.run_for_ms(IDLE_MS + 2 * CHECK_MS)
    assert not nodes.connections
    assert not nodes._idle_since
    await nodes.pop(POP)


async def test_nothing_is_kept_of_heaps_that_are_not_used_any_more(network: Network) -> None:
    client = HeapClient(network.client("ann:1"), name="c", buffered_bytes_max=1 << 20, linger_ms=5)
    network.results[EnqueueRequest] = [Enqueued("id", False, 0)]
    token = LeaseToken(0, 1, 0, 1).encode()
    for at in range(20):
        await client.enqueue(f"jobs-{at}", b"x")
        network.results[PopRequest] = [PoppedMessage("id", f"jobs-{at}", 0, b"", 0, 0, token, 0, 0, 0, None, None, ())]
        [message] = await client.pop(f"jobs-{at}", visibility=30)
        await message.ack()
    await _turns()
    assert (len(client._enqueuing._lanes), len(client._popping._lanes), len(client._leases._lanes)) == (0, 0, 0)
    await client.close()


@pytest.mark.parametrize("turns", range(4))
async def test_a_pop_that_is_cancelled_as_it_is_answered_ends_no_other(network: Network, turns: int) -> None:
    """Its connection was free for others already."""
    nodes = network.client("ann:1")
    network.stuck = (PopRequest,)
    popping = asyncio.ensure_future(nodes.pop(POP))
    await _turns()
    [connection] = [each for each in network.opened if each.waiting]
    connection.waiting.pop().set_result([])
    for _ in range(turns):
        await asyncio.sleep(0)  # noqa: TID251
    other = asyncio.ensure_future(nodes.pop(POP))
    popping.cancel()
    await _turns()
    assert not other.done()
    other.cancel()


async def test_pops_that_a_closing_client_ends_are_not_cancelled(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their callers would take it for their own cancellation."""
    monkeypatch.setattr(Connection, "end_requests", lambda self: None)  # it is frozen
    nodes = network.client("ann:1")
    network.stuck = (PopRequest,)
    popping = asyncio.ensure_future(nodes.pop(POP))
    await _turns()
    await nodes.end_pops()
    with pytest.raises(HoldfastError):
        await popping
