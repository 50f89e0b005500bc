"""What an agent reports of another, when it takes it back, and whose death cannot make anything move."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from tests.support.waiting import async_until

from holdfast.agent.cluster import Cluster
from holdfast.agent.departures import Departures
from holdfast.agent.partition_replicas import ReplicaMirrors
from holdfast.agent.peers.observations import DialOutcome, Observation
from holdfast.agent.peers.stream import PeerStream
from holdfast.agent.suspicions import SuspicionReporter, may_move_early
from holdfast.groups.keys import GROUP_SHARD
from holdfast.kernel.early_ends import SuspicionRecord
from holdfast.kernel.keys import kind_workload, placed_resource, suspicion_key
from holdfast.kernel.lease import Held
from holdfast.kernel.mirror import Mirror
from holdfast.log.keys import topic_key
from holdfast.log.topics import Topic
from holdfast.stores.memory import MemoryStore
from holdfast.testing.faulty_store import FaultyStore
from holdfast.vocabulary.clock import FakeClock
from holdfast.vocabulary.random import SeededRandom
from holdfast.vocabulary.tasks import Notify, background_tasks
from holdfast.vocabulary.types import Member

BOB = Member(id="bob", session="session-of-bob")
STREAM = cast(PeerStream, SimpleNamespace(peer=SimpleNamespace(agent="bob")))
WINDOW_MS = 1_000


@dataclass
class Reporting:
    clock: FakeClock
    store: FaultyStore
    reporter: SuspicionReporter
    departures: Departures
    session: str
    members: dict[str, Member] = field(default_factory=lambda: {"bob": BOB})

    def see(self, outcome: DialOutcome, *, established: bool = False) -> None:
        self.reporter.observed(
            Observation(agent="bob", wal_id="w", outcome=outcome, at_ms=self.clock.boot_ms(), established=established)
        )

    async def reported(self) -> SuspicionRecord | None:
        await self.clock.run_for_ms(1, step_ms=1)
        entry = await self.store.get(suspicion_key("bob", "ann"))
        assert entry is None or entry.session == self.session
        return None if entry is None else msgspec.json.decode(entry.value, type=SuspicionRecord)


@pytest.fixture
async def ann() -> AsyncIterator[Reporting]:
    clock, random = FakeClock(), SeededRandom(3)
    async with MemoryStore.open(clock=clock, random=random) as memory:
        store = FaultyStore(memory, random=random)
        session = (await store.open_session(600_000)).id
        members = {"bob": BOB}
        departures = Departures()
        reporter = SuspicionReporter("ann", members.get, store, departures=departures, window_ms=WINDOW_MS, clock=clock)
        async with background_tasks(reporter.run(session)):
            made = Reporting(clock, store, reporter, departures, session, members)
            await made.reported()
            yield made


async def test_a_reset_and_then_a_refusal_are_reported_with_their_ages(ann: Reporting) -> None:
    ann.see(DialOutcome.RESET, established=True)
    ann.clock.advance_ms(30)
    ann.see(DialOutcome.RESET)  # a port that is just being closed
    ann.clock.advance_ms(20)
    ann.see(DialOutcome.REFUSED)
    record = await ann.reported()
    assert record is not None
    assert record.session == BOB.session
    assert record.reset_ago_ms - record.refused_ago_ms == 50
    assert ann.departures.looks_dead(BOB)


@pytest.mark.parametrize(
    "seen",
    [
        [(DialOutcome.REFUSED, False, 0)],
        [(DialOutcome.RESET, True, 0)],
        [(DialOutcome.RESET, False, 0), (DialOutcome.REFUSED, False, 0)],
        [(DialOutcome.RESET, True, 0), (DialOutcome.REFUSED, False, WINDOW_MS + 1)],
        [(DialOutcome.RESET, True, 0), (DialOutcome.TIMED_OUT, False, 0), (DialOutcome.REFUSED, False, 0)],
        [(DialOutcome.RESET, True, 0), (DialOutcome.TIMED_OUT, False, 0)],
        [(DialOutcome.TIMED_OUT, True, 0), (DialOutcome.REFUSED, False, 0)],
        [(DialOutcome.RESET, True, 0), (DialOutcome.UNREACHABLE, False, 0)],
        [(DialOutcome.RESET, True, 0), (DialOutcome.TLS, False, 0)],
        [(DialOutcome.CLOSED, True, 0), (DialOutcome.REFUSED, False, 0)],
        [(DialOutcome.RESET, True, 0), (DialOutcome.REJECTED, False, 0)],
    ],
)
async def test_nothing_else_is_reported(ann: Reporting, seen: list[tuple[DialOutcome, bool, int]]) -> None:
    for outcome, established, after_ms in seen:
        ann.clock.advance_ms(after_ms)
        ann.see(outcome, established=established)
    assert await ann.reported() is None
    assert not ann.departures.looks_dead(BOB)


async def test_an_agent_that_is_reached_again_is_not_suspected_any_more(ann: Reporting) -> None:
    ann.see(DialOutcome.RESET, established=True)
    ann.see(DialOutcome.REFUSED)
    assert await ann.reported() is not None
    ann.reporter.connected(STREAM)
    assert await ann.reported() is None
    assert not ann.departures.looks_dead(BOB)


async def test_an_agent_that_nobody_ends_is_listed_again_though_its_port_goes_on_refusing(ann: Reporting) -> None:
    ann.store.reachable = False  # the report is not made, and nobody else saw anything
    ann.see(DialOutcome.RESET, established=True)
    ann.see(DialOutcome.REFUSED)
    await ann.clock.run_for_ms(1, step_ms=1)
    version = ann.departures.version
    assert ann.departures.looks_dead(BOB)
    for _ in range(12):
        await ann.clock.run_for_ms(WINDOW_MS, step_ms=WINDOW_MS)
        ann.see(DialOutcome.REFUSED)
    assert not ann.departures.looks_dead(BOB)
    assert ann.departures.version != version, "what was cached is made anew"


async def test_a_reset_before_a_connection_that_worked_does_not_count(ann: Reporting) -> None:
    ann.see(DialOutcome.RESET, established=True)
    ann.reporter.connected(STREAM)
    ann.see(DialOutcome.REFUSED)
    assert await ann.reported() is None


async def test_a_report_is_removed_after_a_while(ann: Reporting) -> None:
    ann.see(DialOutcome.RESET, established=True)
    ann.see(DialOutcome.REFUSED)
    assert await ann.reported() is not None
    await ann.clock.run_for_ms(15 * WINDOW_MS, step_ms=500)
    assert await ann.reported() is None


async def test_who_is_no_member_any_more_is_not_reported(ann: Reporting) -> None:
    ann.members.clear()
    ann.see(DialOutcome.RESET, established=True)
    ann.see(DialOutcome.REFUSED)
    assert await ann.reported() is None


async def test_a_store_that_is_away_gets_no_report_later(ann: Reporting) -> None:
    ann.store.reachable = False
    ann.see(DialOutcome.RESET, established=True)
    ann.see(DialOutcome.REFUSED)
    await ann.clock.run_for_ms(100, step_ms=50)
    ann.store.reachable = True
    await ann.clock.run_for_ms(3_000)
    assert await ann.reported() is None


async def test_a_report_whose_answer_was_lost_is_withdrawn_as_well(ann: Reporting) -> None:
    ann.store.lose_answer_to("suspect/bob")
    ann.see(DialOutcome.RESET, established=True)
    ann.see(DialOutcome.REFUSED)
    assert await ann.reported() is not None
    ann.reporter.connected(STREAM)
    await async_until(lambda: not ann.reporter._reached)
    assert await ann.reported() is None


def cluster_of(held: dict[str, str], **topics: dict[str, object]) -> Cluster:
    """A view in which these resources have these holders, and the topics these settings."""

    def mirror(items: dict[str, object]) -> Mirror[object]:
        made: Mirror[object] = Mirror("", lambda entry: entry, Notify())
        made.items = items
        return made

    holders = {
        resource: Held(resource=resource, holder=holder, session="s", epoch=1, version=1)
        for resource, holder in held.items()
    }
    made = {
        topic_key(name): Topic(id=name, name=name, partitions=1, created_at_ms=0, overrides=overrides)
        for name, overrides in topics.items()
    }
    empty: Any = mirror({})
    replicas = ReplicaMirrors(empty, empty, empty, empty)
    return Cluster(mirror({**made}), mirror({**holders}), empty, empty, empty, replicas)  # type: ignore[arg-type]


ORDERS, AUDIT = placed_resource("orders", 0), placed_resource("audit", 0)
SHARD = placed_resource(kind_workload(GROUP_SHARD), 3)
UNCLEAN = {"durability": "local", "unclean_takeover": True}


@pytest.mark.parametrize(
    ("held", "topics", "movable"),
    [
        ({}, {}, False),
        ({ORDERS: "bob"}, {"orders": {}}, False),
        ({ORDERS: "bob"}, {"orders": {"durability": "object"}}, True),
        ({ORDERS: "bob", SHARD: "bob"}, {"orders": {}}, True),
        ({ORDERS: "bob", SHARD: "ann"}, {"orders": {}}, False),
        ({ORDERS: "bob", AUDIT: "bob", SHARD: "bob"}, {"orders": {"durability": "object"}, "audit": UNCLEAN}, False),
        ({ORDERS: "bob", AUDIT: "ann"}, {"orders": {"durability": "object"}, "audit": UNCLEAN}, True),
        ({ORDERS: "bob"}, {}, False),
    ],
)
def test_only_what_can_move_makes_an_early_end_worth_it(
    held: dict[str, str], topics: dict[str, dict[str, object]], movable: bool
) -> None:
    assert may_move_early("bob", cluster_of(held, **topics)) == movable
