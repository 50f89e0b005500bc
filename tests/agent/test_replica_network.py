"""Replicas of other agents over real streams: the own one like any other, cuts, agents of a release before, agents that restart."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from tests.support.cluster import LocalCluster, Node
from tests.support.peers import QUICK, MemberTable, StreamNode, stream_node
from tests.support.replication.in_process import hosted
from tests.support.replication.logs import P, announce, append, at, entry, facts, seal, start, tail
from tests.support.waiting import async_until

from holdfast.agent.peers.handshake import VERSIONS, ProtocolVersions
from holdfast.agent.replica_network import PeerReplicaNetwork
from holdfast.log.replication.messages import Ack, Answer, Reject, Request, Sealed, TailEntries, encode
from holdfast.log.replication.network import ReplicaNetwork
from holdfast.log.replication.positions import NOWHERE
from holdfast.log.replication.replica_host import ReplicaHost
from holdfast.log.replication.settings import ReplicaSettings
from holdfast.log.wal.repair import RepairReport
from holdfast.log.wal_owners import last_wal_agent
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.tasks import background_tasks

HISTORY = (start(1, 0), entry(1, 0), entry(1, 1), entry(1, 2))
OLD = ProtocolVersions(1, 1)


class Member:
    """An agent with streams and replicas, and what its listener was told."""

    def __init__(self, node: StreamNode, host: ReplicaHost) -> None:
        self.node, self.host = node, host
        self.network = PeerReplicaNetwork(host, node.peers, clock=RealClock())
        self.wal_id = host.wal_id
        self.events: list[str] = []
        self.stop_listening = self.network.listen(self)

    def connected(self, wal_id: str) -> None:
        self.events.append(f"+{wal_id}")

    def disconnected(self, wal_id: str) -> None:
        self.events.append(f"-{wal_id}")

    def heard(self, wal_id: str) -> None:
        self.events.append(f"!{wal_id}")

    async def reaches(self, other: str) -> None:
        await async_until(lambda: self.network.is_connected(f"wal-{other}"))


@asynccontextmanager
async def member(
    table: MemberTable,
    directory: Path,
    name: str,
    *,
    versions: ProtocolVersions = VERSIONS,
    settings: ReplicaSettings | None = None,
) -> AsyncIterator[Member]:
    async with (
        hosted(directory / name, f"wal-{name}", settings=settings) as host,
        stream_node(table, name, versions=versions) as node,
    ):
        made = Member(node, host)
        async with background_tasks(made.network.run()):
            yield made


async def ask(network: ReplicaNetwork, wal_id: str, message: Request) -> Answer | None:
    answer: asyncio.Future[Answer | None] = asyncio.get_running_loop().create_future()
    network.send(wal_id, message, answer.set_result)
    assert not answer.done(), "answered from within"
    return await answer


@pytest.fixture
def table() -> MemberTable:
    return MemberTable()


async def test_three_agents_keep_the_same_entries(table: MemberTable, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        ann, bob, cid = [
            await stack.enter_async_context(member(table, tmp_path, name)) for name in ("ann", "bob", "cid")
        ]
        await ann.reaches("bob")
        await ann.reaches("cid")
        assert ann.network.wal_id == "wal-ann"
        for each in (ann, bob, cid):
            assert facts(await ask(ann.network, each.wal_id, append(1, NOWHERE, *HISTORY))) == (Ack, 1, at(1, 3))
        assert await ask(ann.network, bob.wal_id, announce(1, hw=3)) is None
        for each in (bob, cid):
            hosted_replica = each.host.get(P)
            assert hosted_replica is not None
            assert hosted_replica.replica is not None
            assert b"".join(hosted_replica.replica.log.entries[-1].payload) == b"1:2"
            assert hosted_replica.leader == "wal-ann"
        await bob.reaches("cid")
        assert isinstance(await ask(bob.network, cid.wal_id, seal(2, cid.wal_id)), Sealed)
        fetched = await ask(bob.network, cid.wal_id, tail(2, at(1, 0)))
        assert isinstance(fetched, TailEntries)
        assert [b"".join(each.payload) for each in fetched.entries] == [b"1:0", b"1:1", b"1:2"]
        assert facts(await ask(ann.network, cid.wal_id, append(1, at(1, 3)))) == (Reject, 1, 2)


async def test_an_agent_that_cannot_be_reached_answers_none(table: MemberTable, tmp_path: Path) -> None:
    async with member(table, tmp_path, "ann") as ann:
        assert not ann.network.is_connected("wal-bob")
        assert await ask(ann.network, "wal-bob", seal(1, "wal-bob")) is None
        async with member(table, tmp_path, "bob"):
            await ann.reaches("bob")
            await async_until(lambda: "!wal-bob" in ann.events)
        table.remove("bob")
        await async_until(lambda: "-wal-bob" in ann.events)
        assert await ask(ann.network, "wal-bob", seal(1, "wal-bob")) is None
        assert [each for each in ann.events if each[0] != "!"] == ["+wal-bob", "-wal-bob"]
        await async_until(lambda: "!wal-ann" in ann.events)
        ann.stop_listening()


async def test_messages_under_way_when_a_connection_ends_are_answered_none(table: MemberTable, tmp_path: Path) -> None:
    scarce = ReplicaSettings(entries_bytes_max=1_024, entries_wait_ms=600_000)
    async with member(table, tmp_path, "ann") as ann, member(table, tmp_path, "bob", settings=scarce) as bob:
        await ann.reaches("bob")
        full = append(1, NOWHERE, start(1, 0), entry(1, 0, data=bytes(1_000)))
        assert isinstance(await ask(ann.network, "wal-bob", full), Ack)
        waits = asyncio.ensure_future(ask(ann.network, "wal-bob", append(1, at(1, 1), entry(1, 1, data=bytes(500)))))
        await async_until(lambda: bob.host.counters.waits > 1)
        bob.node.peers.server.close_streams("test")
        assert await waits is None
        await ann.reaches("bob")


async def test_an_agent_of_a_release_without_replication_is_sent_nothing_and_keeps_its_stream(
    table: MemberTable, tmp_path: Path
) -> None:
    async with member(table, tmp_path, "ann") as ann, stream_node(table, "old", versions=OLD) as old:
        stream = await ann.node.stream_to("old")
        assert stream.version == 1
        assert not ann.network.is_connected("wal-old")
        assert await ask(ann.network, "wal-old", seal(1, "wal-old")) is None
        assert old.received == []
        back = await old.stream_to("ann")
        assert back.version == 1
        assert ann.events == [] or set(ann.events) == {"!wal-ann"}
        assert stream.connected


async def test_a_malformed_message_is_refused_alone(table: MemberTable, tmp_path: Path) -> None:
    async with member(table, tmp_path, "ann") as ann, member(table, tmp_path, "bob") as bob:
        stream = await ann.node.stream_to("bob")
        answers: list[bytes | None] = []
        wrong = (
            b"",
            b"\x01",
            b"\xff" * 60,
            encode(append(1, NOWHERE, *HISTORY))[:-1],
            encode(Ack(partition=P, epoch=1, matched=NOWHERE)),
        )
        for payload in wrong:
            stream.send(b"k", [payload], lambda answer: answers.append(None if answer is None else bytes(answer)))
        assert isinstance(await ask(ann.network, "wal-bob", append(1, NOWHERE, *HISTORY)), Ack)
        await async_until(lambda: len(answers) == len(wrong))
        assert set(answers) == {b""}
        assert bob.host.counters.refused == {"malformed": len(wrong)}
        assert stream.counters.connects == 1


async def test_entries_do_not_keep_the_frame_they_came_in(table: MemberTable, tmp_path: Path) -> None:
    async with member(table, tmp_path, "ann") as ann, member(table, tmp_path, "bob") as bob:
        await ann.reaches("bob")
        large = msgspec.structs.replace(
            append(1, NOWHERE, start(1, 0), entry(1, 0, data=bytes(20_000))), partition=(P[0], 9)
        )
        answers: list[Answer | None] = []
        ann.network.send("wal-bob", large, answers.append)  # both in one frame
        ann.network.send("wal-bob", append(1, NOWHERE, *HISTORY), answers.append)
        await async_until(lambda: len(answers) == 2)
        kept = bob.host.get(P)
        assert kept is not None
        assert kept.replica is not None
        [payload] = kept.replica.log.entries[1].payload
        assert isinstance(payload, memoryview)
        assert memoryview(payload.obj).nbytes < 1_000


async def test_a_leader_is_heard_as_long_as_its_agent_is_connected(table: MemberTable, tmp_path: Path) -> None:
    async with member(table, tmp_path, "ann") as ann, member(table, tmp_path, "bob") as bob:
        await ann.reaches("bob")
        await ask(ann.network, "wal-bob", append(1, NOWHERE, *HISTORY))
        mine = bob.host.get(P)
        assert mine is not None
        written = mine.written_at_ms
        assert written > 0
        await async_until(lambda: (bob.host.leader_heard_at_ms(mine) or 0) > written)


# ── whole agents ──


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    made = LocalCluster(tmp_path)
    made.streams = True
    yield made
    await made.end()


async def reached(node: Node, other: Node) -> None:
    await async_until(lambda: node.agent.replica_network.is_connected(other.agent.replicas.wal_id))


async def test_an_agent_that_was_killed_keeps_promise_and_entries(cluster: LocalCluster) -> None:
    quick = replace(QUICK, silent_ms=60_000)
    ann, bob = await cluster.node("ann", peers=quick), await cluster.node("bob", peers=quick)
    await reached(ann, bob)
    network, wal_id = ann.agent.replica_network, bob.agent.replicas.wal_id
    assert isinstance(await ask(network, wal_id, append(1, NOWHERE, *HISTORY)), Ack)
    assert isinstance(await ask(network, wal_id, seal(4, wal_id)), Sealed)
    await bob.drop()
    assert await ask(network, wal_id, seal(5, wal_id)) is None
    bob = await cluster.node("bob", peers=quick)
    assert bob.agent.replicas.wal_id == wal_id
    await reached(ann, bob)
    assert facts(await ask(network, wal_id, append(3, at(1, 3)))) == (Reject, 3, 4)
    sealed = await ask(network, wal_id, seal(6, wal_id))
    assert isinstance(sealed, Sealed)
    assert (sealed.base, sealed.position) == (NOWHERE, at(1, 3))


async def test_an_agent_without_streams_has_its_own_replica(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path)
    try:
        ann = await cluster.node("ann")
        network = ann.agent.replica_network
        assert network.is_connected(network.wal_id)
        assert isinstance(await ask(network, network.wal_id, append(1, NOWHERE, *HISTORY)), Ack)
        assert await ask(network, "elsewhere", append(1, NOWHERE)) is None
    finally:
        await cluster.end()


async def test_a_replica_outlives_the_session_of_its_agent(cluster: LocalCluster) -> None:
    ann, bob = await cluster.node("ann", peers=QUICK), await cluster.node("bob", peers=QUICK)
    await reached(ann, bob)
    network, wal_id = ann.agent.replica_network, bob.agent.replicas.wal_id
    await ask(network, wal_id, append(1, NOWHERE, *HISTORY))
    session = bob.agent.sessions.session
    assert session is not None
    session.deadline_ms = 0
    await cluster.store.close_session(session.id)
    await async_until(lambda: not network.is_connected(wal_id))
    assert facts(await ask(bob.agent.replica_network, wal_id, append(1, at(1, 3)))) == (Ack, 1, at(1, 3))
    await reached(ann, bob)
    assert facts(await ask(network, wal_id, append(1, at(1, 3)))) == (Ack, 1, at(1, 3))


async def test_an_agent_with_a_repaired_wal_is_another_replica_under_the_same_name(
    cluster: LocalCluster,
) -> None:
    ann = await cluster.node("ann", peers=QUICK)
    before = ann.agent.replicas.wal_id
    await ask(ann.agent.replica_network, before, append(1, NOWHERE, *HISTORY))
    await ann.drop()
    report = RepairReport(number=2, at_ms=1, damaged_file="1.wal", damaged_position=0, found="damage")
    (cluster.directory / "ann" / "repair-2.json").write_bytes(msgspec.json.encode(report))
    ann, bob = await cluster.node("ann", peers=QUICK), await cluster.node("bob", peers=QUICK)
    repaired = ann.agent.replicas.wal_id
    assert repaired == f"{before}.2"
    await async_until(lambda: bob.agent.replica_network.is_connected(repaired))
    assert not bob.agent.replica_network.is_connected(before)
    sealed = await ask(bob.agent.replica_network, repaired, seal(9, repaired))
    assert isinstance(sealed, Sealed)
    assert sealed.position == NOWHERE  # what is left of the replica before may lack what it acknowledged
    assert await last_wal_agent(cluster.store, repaired) == "ann"
