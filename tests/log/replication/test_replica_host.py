"""The replicas of an agent on real WAL files: answers after the fsync, in order, whatever happens to another partition."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from tests.support.partitions import FullDisk
from tests.support.replication.in_process import InProcessCluster, InProcessNetwork, hosted, in_process_agent
from tests.support.replication.logs import P, announce, append, at, base, entry, facts, seal, start
from tests.support.waiting import async_until
from tests.support.wal import SMALL, crash_copy, flip, opened

from holdfast.log.replication.messages import Ack, Answer, Reject, Request, Sealed, WrongWal
from holdfast.log.replication.network import ReplicaNetwork
from holdfast.log.replication.positions import NOWHERE, PartitionKey
from holdfast.log.replication.replica import Replica
from holdfast.log.replication.replica_host import ReplicaHost
from holdfast.log.replication.settings import ReplicaSettings
from holdfast.log.wal.files import live_files
from holdfast.vocabulary.clock import RealClock

Q = (P[0], 4)
HISTORY = (start(1, 0), entry(1, 0), entry(1, 1), entry(1, 2))
OURS, THEIRS = "w1", "w2"


def to(partition: PartitionKey, message: Request) -> Request:
    return msgspec.structs.replace(message, partition=partition)


class Asked:
    """Messages to a host and what became of them, in the order of the answers."""

    def __init__(self, host: ReplicaHost, sender: str = THEIRS) -> None:
        self.host, self.sender = host, sender
        self.answers: list[Answer | None] = []

    def tell(self, message: Request) -> None:
        before = len(self.answers)
        self.host.handle(message, self.sender, self.answers.append)
        assert len(self.answers) == before, "answered from within"

    async def ask(self, message: Request) -> Answer | None:
        count = len(self.answers)
        self.tell(message)
        await async_until(lambda: len(self.answers) > count)
        return self.answers[-1]


def replica_of(host: ReplicaHost, partition: PartitionKey = P) -> Replica:
    hosted_replica = host.get(partition)
    assert hosted_replica is not None
    assert hosted_replica.replica is not None
    return hosted_replica.replica


async def test_messages_of_a_partition_are_answered_in_order_after_the_fsync(tmp_path: Path) -> None:
    async with hosted(tmp_path / "wal", OURS) as host:
        asked = Asked(host)
        for message in (append(1, NOWHERE, *HISTORY), append(2, at(1, 3), start(2, 3)), append(1, at(1, 3)), seal(3)):
            asked.tell(message)
        await async_until(lambda: len(asked.answers) == 4)
        assert [facts(each)[0] for each in asked.answers] == [Ack, Ack, Reject, Sealed]
        assert host.counters.messages == 4
        crashed = crash_copy(tmp_path / "wal", tmp_path / "crashed")
    async with hosted(crashed, OURS) as host:
        assert len(host) == 1
        assert (replica_of(host).promised, replica_of(host).log.position) == (3, at(2, 3))
        assert facts(await Asked(host).ask(append(2, at(2, 3))))[0] is Reject


async def test_a_group_commit_carries_many_partitions(tmp_path: Path) -> None:
    async with hosted(tmp_path / "wal", OURS) as host:
        asked = Asked(host)
        for number in range(50):
            asked.tell(to((P[0], number), append(1, NOWHERE, *HISTORY)))
        await async_until(lambda: len(asked.answers) == 50)
        assert host.wal.stats.groups < 25


async def test_a_full_disk_answers_none_and_the_replica_is_what_is_on_it(tmp_path: Path) -> None:
    disk = FullDisk()
    async with hosted(tmp_path / "wal", OURS, disk=disk) as host:
        asked = Asked(host)
        await asked.ask(append(1, NOWHERE, *HISTORY))
        used = host.budget.used_bytes
        disk.full = True
        asked.tell(append(2, at(1, 1), start(2, 1), entry(2, 1, data=bytes(500))))
        asked.tell(append(2, at(2, 2), entry(2, 2)))
        await async_until(lambda: len(asked.answers) == 3)
        assert asked.answers[1:] == [None, None]
        assert (replica_of(host).promised, replica_of(host).log.position) == (1, at(1, 3))
        assert host.budget.used_bytes == used
        disk.full = False
        assert facts(await asked.ask(append(2, at(1, 3), start(2, 3)))) == (Ack, 2, at(2, 3))


async def test_a_message_that_no_leader_sends_is_refused_alone(tmp_path: Path) -> None:
    async with hosted(tmp_path / "wal", OURS) as host:
        asked = Asked(host)
        assert await asked.ask(append(1, NOWHERE, start(1, 0), entry(1, 7))) is None  # a hole
        assert await asked.ask(append(0, NOWHERE, entry(0, 0))) is None  # no epoch
        assert await asked.ask(append(1, NOWHERE, start(1, 0), entry(1, 0, data=bytes(SMALL.file_bytes)))) is None
        assert host.counters.refused == {"invalid": 3}
        assert facts(await asked.ask(append(1, NOWHERE, *HISTORY))) == (Ack, 1, at(1, 3))


async def test_an_announcement_for_a_partition_that_is_not_here_opens_nothing(tmp_path: Path) -> None:
    async with hosted(tmp_path / "wal", OURS) as host:
        assert await Asked(host).ask(announce(1, 3)) is None
        assert len(host) == 0


async def test_a_seal_for_another_wal_is_not_obeyed(tmp_path: Path) -> None:
    async with hosted(tmp_path / "wal", OURS) as host:
        assert facts(await Asked(host).ask(seal(4, "w9"))) == (WrongWal, 4, OURS)
        assert replica_of(host).promised == 0


async def test_a_replica_that_cannot_be_read_affects_no_other(tmp_path: Path) -> None:
    async with hosted(tmp_path / "wal", OURS) as host:
        asked = Asked(host)
        await asked.ask(append(1, NOWHERE, start(1, 0), entry(1, 0, data=b"x" * 200)))
        await asked.ask(to(Q, append(1, NOWHERE, *HISTORY)))
    async with opened(tmp_path / "wal") as wal, AsyncExitStack() as stack:
        for _, path in live_files(tmp_path / "wal"):  # a sector that goes bad after the WAL was opened
            if (place := path.read_bytes().find(b"x" * 200)) >= 0:
                flip(path, place)
        host = await stack.enter_async_context(ReplicaHost.open(wal, OURS, clock=RealClock()))
        assert await Asked(host).ask(append(2, NOWHERE)) is None
        broken = host.get(P)
        assert broken is not None
        assert "unreadable" in broken.failure
        assert host.counters.refused == {"corrupt": 1}
        assert isinstance(await Asked(host).ask(to(Q, append(1, at(1, 3)))), Ack)


async def test_space_is_released_when_a_new_base_is_durable(tmp_path: Path) -> None:
    async with hosted(tmp_path / "wal", OURS) as host:
        asked = Asked(host)
        await asked.ask(append(1, NOWHERE, *HISTORY))
        used = host.budget.used_bytes
        assert used == replica_of(host).log.size_bytes > 0
        assert await asked.ask(announce(1, hw=3, published=at(1, 3))) is None
        await async_until(lambda: P not in host.wal.unreleased())
        assert host.budget.used_bytes == 0
        assert replica_of(host).hw == 3


SCARCE = ReplicaSettings(entries_bytes_max=1_024, entries_wait_ms=60_000)


async def test_entries_beyond_the_budget_wait_and_what_is_published_makes_room(tmp_path: Path) -> None:
    async with hosted(tmp_path / "wal", OURS, settings=SCARCE) as host:
        asked, other = Asked(host), Asked(host)
        await asked.ask(append(1, NOWHERE, start(1, 0), entry(1, 0, data=bytes(900))))
        other.tell(to(Q, append(1, NOWHERE, start(1, 0), entry(1, 0, data=bytes(900)))))
        assert facts(await asked.ask(append(1, at(1, 1)))) == (Ack, 1, at(1, 1))  # without entries nothing waits
        assert other.answers == []
        assert host.budget.used_bytes == 900
        asked.tell(append(1, at(1, 1), entry(1, 1, data=bytes(600)), hw=1, published=at(1, 1)))
        await async_until(lambda: len(asked.answers) + len(other.answers) >= 3)
        assert host.budget.used_bytes <= SCARCE.entries_bytes_max


async def test_own_entries_do_not_wait_for_memory_and_count_when_another_leads(tmp_path: Path) -> None:
    async with hosted(tmp_path / "wal", OURS, settings=SCARCE) as host:
        ours = Asked(host, OURS)
        await ours.ask(append(1, NOWHERE, start(1, 0), *(entry(1, each, data=bytes(900)) for each in range(3))))
        assert host.budget.used_bytes == 0
        await Asked(host).ask(append(2, at(1, 3), start(2, 3)))
        assert host.budget.used_bytes == 2_700


async def test_entries_that_waited_too_long_are_left_unanswered(tmp_path: Path) -> None:
    settings = replace(SCARCE, entries_wait_ms=1)
    async with hosted(tmp_path / "wal", OURS, settings=settings) as host:
        await Asked(host).ask(append(1, NOWHERE, start(1, 0), entry(1, 0, data=bytes(900))))
        assert await Asked(host).ask(append(1, at(1, 1), entry(1, 1, data=bytes(900)))) is None
        assert host.counters.refused == {"no memory": 1}


async def test_what_waits_when_the_host_is_closed_is_not_answered(tmp_path: Path) -> None:
    async with hosted(tmp_path / "wal", OURS, settings=SCARCE) as host:
        asked = Asked(host)
        await asked.ask(append(1, NOWHERE, start(1, 0), entry(1, 0, data=bytes(900))))
        asked.tell(append(1, at(1, 1), entry(1, 1, data=bytes(900))))
    await async_until(lambda: len(asked.answers) == 2)
    assert asked.answers[1] is None
    asked.tell(seal(3))
    await async_until(lambda: asked.answers[2:] == [None])


async def test_a_deleted_topic_leaves_nothing(tmp_path: Path) -> None:
    async with hosted(tmp_path / "wal", OURS) as host:
        await Asked(host).ask(append(1, NOWHERE, *HISTORY))
        host.forget(P)
        assert (len(host), host.budget.used_bytes, host.wal.unreleased()) == (0, 0, {})


async def test_the_leader_of_the_promised_epoch_is_known(tmp_path: Path) -> None:
    async with hosted(tmp_path / "wal", OURS) as host:
        await Asked(host, "w2").ask(append(1, NOWHERE, *HISTORY))
        mine = host.get(P)
        assert mine is not None
        assert mine.leader == "w2"
        await Asked(host, "w3").ask(seal(2))
        assert mine.leader == ""  # a takeover leads nothing yet
        await Asked(host, "w3").ask(append(2, at(1, 3), start(2, 3)))
        await Asked(host, "w2").ask(append(1, at(1, 3)))
        assert mine.leader == "w3"


async def test_a_replica_is_as_far_behind_as_its_leader_last_said(tmp_path: Path) -> None:
    async with hosted(tmp_path / "wal", OURS) as host:
        await Asked(host, "w2").ask(append(1, NOWHERE, *HISTORY))
        mine = host.get(P)
        assert mine is not None
        assert mine.lag == 0
        await Asked(host, "w2").ask(append(1, at(1, 3), hw=10))
        assert mine.lag == 7
        await Asked(host, "w3").ask(append(2, at(1, 3), start(2, 3), hw=3))
        assert mine.lag == 0


# ── the network of tests ──


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[InProcessCluster]:
    made = InProcessCluster()
    async with AsyncExitStack() as stack:
        for each in ("w1", "w2", "w3"):
            await stack.enter_async_context(in_process_agent(made, tmp_path / each, each))
        yield made


class Recorded:
    def __init__(self, network: InProcessNetwork) -> None:
        self.events: list[str] = []
        self.stop = network.listen(self)

    def connected(self, wal_id: str) -> None:
        self.events.append(f"+{wal_id}")

    def disconnected(self, wal_id: str) -> None:
        self.events.append(f"-{wal_id}")

    def heard(self, wal_id: str) -> None:
        self.events.append(f"!{wal_id}")


async def asked_of(network: ReplicaNetwork, wal_id: str, message: Request) -> Answer | None:
    answer: asyncio.Future[Answer | None] = asyncio.get_running_loop().create_future()
    network.send(wal_id, message, answer.set_result)
    assert not answer.done(), "answered from within"
    return await answer


async def test_a_leader_reaches_all_replicas_alike_until_links_are_cut(cluster: InProcessCluster) -> None:
    ours = cluster.networks["w1"]
    recorded = Recorded(ours)
    for each in ("w1", "w2", "w3"):
        assert facts(await asked_of(ours, each, append(1, NOWHERE, *HISTORY))) == (Ack, 1, at(1, 3))
    under_way = asyncio.ensure_future(asked_of(ours, "w2", append(1, at(1, 3), entry(1, 3))))
    await asyncio.wait([under_way], timeout=0)
    cluster.cut("w1", "w2")
    assert await under_way is None
    assert not ours.is_connected("w2")
    assert ours.is_connected("w1")
    assert await asked_of(ours, "w2", append(1, at(1, 3))) is None
    cluster.heal("w2", "w1")
    assert facts(await asked_of(ours, "w2", append(1, at(1, 3))))[:2] == (Ack, 1)
    cluster.leave("w3")
    cluster.heartbeat()
    assert recorded.events == ["-w2", "+w2", "-w3", "!w1", "!w2"]
    recorded.stop()
    cluster.heartbeat()
    assert len(recorded.events) == 5


async def test_an_agent_that_comes_back_keeps_its_promise_and_its_entries(tmp_path: Path) -> None:
    cluster = InProcessCluster()
    async with in_process_agent(cluster, tmp_path / "w1", "w1") as ours:
        async with in_process_agent(cluster, tmp_path / "w2", "w2"):
            await asked_of(ours, "w2", append(1, NOWHERE, *HISTORY))
            await asked_of(ours, "w2", seal(5, "w2"))
            await asked_of(ours, "w2", base(6, at(5, 9)))
        assert await asked_of(ours, "w2", seal(7, "w2")) is None
        async with in_process_agent(cluster, tmp_path / "w2", "w2"):
            assert facts(await asked_of(ours, "w2", append(5, at(5, 9)))) == (Reject, 5, 6)
            assert facts(await asked_of(ours, "w2", append(6, at(5, 9)))) == (Ack, 6, at(5, 9))
