"""Agents with a store: they register where they take streams, connect, and let go with their sessions."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.cluster import LocalCluster, Node
from tests.support.peers import Answers, RecordedEvents, key
from tests.support.waiting import async_until

from holdfast.agent.peers.inbound_stream import ReceivedMessages
from holdfast.agent.peers.observations import DialOutcome
from holdfast.agent.peers.peers import Peers
from holdfast.agent.peers.stream import PeerStream
from holdfast.contracts.store import Entry
from holdfast.kernel.keys import member_key
from holdfast.kernel.membership import read_member
from holdfast.vocabulary.types import Member


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    made = LocalCluster(tmp_path)
    made.streams = True
    yield made
    await made.end()


def peers_of(node: Node) -> Peers:
    assert node.agent.peers is not None
    return node.agent.peers


async def connected(node: Node, to: Node) -> PeerStream:
    wal_id = to.agent.wal_id
    await async_until(lambda: (found := peers_of(node).to(wal_id)) is not None and found.connected)
    stream = peers_of(node).to(wal_id)
    assert stream is not None
    return stream


async def test_agents_find_each_other_in_the_store_and_talk(cluster: LocalCluster) -> None:
    ann, bob = await cluster.node("ann"), await cluster.node("bob")
    await async_until(lambda: ann.agent.member is not None and bob.agent.member is not None)
    stored = await cluster.store.get(member_key("agent", "bob"))
    assert stored is not None
    registered = read_member(stored)
    assert registered.peer_address == peers_of(bob).address
    assert registered.wal_id == bob.agent.wal_id
    assert registered.process

    def take(received: ReceivedMessages) -> None:
        received.answer(0, f"hello {received.peer.agent}".encode())

    peers_of(bob).on_messages = take
    stream, answers = await connected(ann, bob), Answers()
    stream.send(key(0), [b"x"], answers)
    await async_until(lambda: answers.got == [b"hello ann"])


async def test_an_agent_that_loses_its_session_closes_its_streams_and_connects_again_with_the_next(
    cluster: LocalCluster,
) -> None:
    ann, bob = await cluster.node("ann"), await cluster.node("bob")
    events = RecordedEvents()
    peers_of(ann).listeners.append(events)
    await connected(ann, bob)
    before = bob.agent.member
    session = bob.agent.sessions.session
    assert session is not None
    assert before is not None
    session.deadline_ms = 0
    await cluster.store.close_session(session.id)
    await async_until(lambda: (now := bob.agent.member) is not None and now.session != before.session)
    after = bob.agent.member
    assert after is not None
    assert after.process == before.process, "the same process with another session"
    await connected(ann, bob)
    assert DialOutcome.REFUSED not in events.outcomes()
    assert DialOutcome.RESET not in events.outcomes()


async def test_an_agent_that_stops_is_connected_to_no_more(cluster: LocalCluster) -> None:
    ann, bob = await cluster.node("ann"), await cluster.node("bob")
    await connected(ann, bob)
    await bob.stop()
    await async_until(lambda: not list(peers_of(ann).streams))


async def test_an_agent_without_streams_is_a_member_as_before(cluster: LocalCluster) -> None:
    ann = await cluster.node("ann")
    cluster.streams = False
    old = await cluster.node("old")
    await async_until(lambda: old.agent.member is not None)
    await async_until(lambda: len(ann.agent.cluster.members) == 2)
    assert old.agent.peers is None
    assert not list(peers_of(ann).streams)


def test_a_member_of_an_earlier_release_is_read_and_so_is_one_of_a_later() -> None:
    earlier = {"id": "ann", "session": "s", "address": "h:1", "zone": "a", "group": "g", "node": 3, "started_at_ms": 5}
    expected = Member(id="ann", session="s", address="h:1", zone="a", group="g", node=3, started_at_ms=5)
    assert read_member(Entry("k", json.dumps(earlier).encode(), 1)) == expected
    later = {**earlier, "peer_address": "h:2", "wal_id": "w", "process": "p", "shape": "round"}
    assert read_member(Entry("k", json.dumps(later).encode(), 1)).peer_address == "h:2"
