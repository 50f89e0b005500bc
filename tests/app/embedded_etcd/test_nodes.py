"""Nodes with an etcd member each, as real processes: from nothing to three, through restarts and losses."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.support.certificates import certificate
from tests.support.etcd_nodes import EtcdNode, etcd_nodes, running, start_all, stop_all, survives_kills
from tests.support.failpoints import FailpointFolder
from tests.support.server_process import create_topic, produce, read
from tests.support.text_processes import ask
from tests.support.waiting import WAIT_S, async_until, until

from holdfast.app.addresses import Address
from holdfast.app.config.etcd_member import EtcdMemberSettings
from holdfast.app.embedded_etcd.peer_members import members_at
from holdfast.stores.etcd.members import MemberList
from holdfast.testing.server_process import free_port


async def members_of(node: EtcdNode) -> MemberList:
    found = await members_at(Address.parse("peer", node.peer), EtcdMemberSettings())
    assert found is not None
    return found


async def voters_of(node: EtcdNode, *names: str) -> bool:
    """Whether these are its members, and all of them vote."""
    listed = await members_of(node)
    return sorted((member.name, member.learner) for member in listed.members) == [(name, False) for name in names]


async def test_three_nodes_from_nothing_and_the_end_of_a_member_is_no_outage(tmp_path: Path) -> None:
    nodes = etcd_nodes(tmp_path, "n1", "n2", "n3", options=("--text", "127.0.0.1:0"))
    with running(*nodes):
        await async_until(lambda: voters_of(nodes[2], "n1", "n2", "n3"))  # its own list may be a moment behind
        create_topic(nodes[0].kafka, "events", 1, holdfast_durability="object")
        produce(nodes[1].kafka, "events", "before")
        nodes[0].end_member()
        produce(nodes[0].kafka, "events", "meanwhile")
        until(lambda: len(nodes[0].member_pids) == 2, what="its member was started again")
        produce(nodes[2].kafka, "events", "after")
        for node in nodes:
            assert read(node.kafka, "events", 3) == ["before", "meanwhile", "after"]
        for number in range(30):  # over the text protocol, at any node
            assert ask(nodes[number % 3], f"PUT logs {number}") == b"OK"
        assert [ask(nodes[at % 3], "GET logs") for at in range(31)] == [*(b"OK %d" % at for at in range(30)), b"EMPTY"]


@pytest.mark.long
def test_a_node_alone_keeps_everything_when_it_is_killed_and_its_member_dies_with_it(tmp_path: Path) -> None:
    (node,) = etcd_nodes(tmp_path, "alone")
    with running(node):
        create_topic(node.kafka, "events")
        produce(node.kafka, "events", "a", "b")
        node.kill()
        member = Path(f"/proc/{node.member_pids[-1]}")
        until(lambda: not member.exists(), what="the member died with its server")
        node.start()
        assert read(node.kafka, "events", 2) == ["a", "b"]
        assert node.terminate() == 0
        assert not Path(f"/proc/{node.member_pids[-1]}").exists()


@pytest.mark.long
def test_a_whole_cluster_that_is_restarted_twice_loses_nothing(tmp_path: Path) -> None:
    nodes = etcd_nodes(tmp_path, "n1", "n2", "n3")
    expected: list[str] = []
    with running(*nodes):
        create_topic(nodes[0].kafka, "events", 1)
        for turn in range(3):
            values = [f"{turn}-{n}" for n in range(20)]
            produce(nodes[turn].kafka, "events", *values)
            expected += values
            if turn < 2:
                stop_all(*nodes)
                start_all(*nodes)
            assert read(nodes[turn].kafka, "events", len(expected)) == expected


@pytest.mark.long
def test_a_whole_cluster_that_is_killed_loses_nothing(tmp_path: Path) -> None:
    if not survives_kills():
        pytest.skip("this etcd may forget entries when it is killed: put 3.5.6 or newer on PATH")
    nodes = etcd_nodes(tmp_path, "n1", "n2", "n3")
    with running(*nodes):
        create_topic(nodes[0].kafka, "events", 1)
        produce(nodes[0].kafka, "events", "a")
        for node in nodes:
            node.kill()
        start_all(*nodes)
        produce(nodes[1].kafka, "events", "b")
        assert read(nodes[2].kafka, "events", 2) == ["a", "b"]


class Producing:
    """A producer that never stops, and what was acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: list[str] = []
        self.failed: list[str] = []
        self._stop = threading.Event()
        self._bootstrap = bootstrap

    def run(self) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap, "enable.idempotence": True, "log_level": 0})
        sent = 0
        while not self._stop.is_set():
            value = f"{sent}"

            def answered(error: object, _: object, value: str = value) -> None:
                (self.acknowledged if error is None else self.failed).append(value)

            producer.produce("events", value.encode(), partition=0, on_delivery=answered)
            producer.poll(0)
            sent += 1
            self._stop.wait(0.02)
        producer.flush(WAIT_S)

    @contextmanager
    def running(self) -> Iterator["Producing"]:
        thread = threading.Thread(target=self.run)
        thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            thread.join()

    def more(self, count: int = 20) -> None:
        """Wait until further records are acknowledged."""
        enough = len(self.acknowledged) + count
        until(lambda: len(self.acknowledged) >= enough, what=lambda: f"{len(self.acknowledged)} of {enough}")


@pytest.mark.long
@pytest.mark.timeout(240)
async def test_a_node_lost_with_its_disk_is_replaced_while_a_producer_runs(tmp_path: Path) -> None:
    nodes = etcd_nodes(tmp_path, "n1", "n2", "n3")
    with running(*nodes):
        create_topic(nodes[0].kafka, "events", 1, holdfast_durability="object")
        with Producing(",".join(node.kafka for node in nodes[:2])).running() as producing:
            producing.more()
            lost = nodes[2]
            old = next(member.id for member in (await members_of(nodes[0])).members if member.name == "n3")
            lost.lose_disk()
            producing.more()
            lost.launch()
            assert lost.ended() == 2
            assert "comes back as a new member only" in lost.log
            lost.options = (*lost.options, "--replace")
            lost.start()
            producing.more()
            listed = await members_of(lost)
            assert sorted(member.name for member in listed.members) == ["n1", "n2", "n3"]
            assert old not in [member.id for member in listed.members]
        assert not producing.failed
        found = read(lost.kafka, "events", len(producing.acknowledged))
        assert found == [f"{n}" for n in range(len(found))]
        assert set(found) == set(producing.acknowledged)


@pytest.mark.long
def test_a_majority_goes_on_and_a_minority_refuses(tmp_path: Path) -> None:
    nodes = etcd_nodes(tmp_path, "n1", "n2", "n3")
    with running(*nodes):
        create_topic(nodes[0].kafka, "events", 1, holdfast_durability="object")
        produce(nodes[0].kafka, "events", "three")
        assert nodes[2].terminate() == 0
        produce(nodes[0].kafka, "events", "two")
        nodes[1].process.terminate()
        nodes[1].ended()
        until(lambda: _refused(nodes[0]), what="a node without a majority refuses")
        start_all(nodes[1], nodes[2])
        assert nodes[0].process.poll() is None, nodes[0].log
        produce(nodes[0].kafka, "events", "again")
        found = read(nodes[1].kafka, "events", 3)
        assert [value for value in found if value != "refused?"] == ["three", "two", "again"]


def _refused(node: EtcdNode) -> bool:
    try:
        produce(node.kafka, "events", "refused?", **{"message.timeout.ms": 1_500})
    except AssertionError:
        return True
    return False


@pytest.mark.long
@pytest.mark.parametrize("step", ["etcd.adding", "etcd.added", "etcd.started", "etcd.promoted"])
async def test_a_node_that_dies_anywhere_while_it_joins_goes_on_when_it_is_started_again(
    step: str, tmp_path: Path
) -> None:
    failpoints = FailpointFolder(tmp_path / "failpoints")
    first = EtcdNode(tmp_path, "n1")
    second = EtcdNode(tmp_path, "n2", env=failpoints.environment)
    second.joins = first.peer
    with running(first):
        failpoints.arm(step, "kill")
        second.launch()
        assert second.ended() == -9
        if second.member_pids:
            member = Path(f"/proc/{second.member_pids[-1]}")
            until(lambda: not member.exists(), what="its member died with it")
        with running(second):
            listed = await members_of(first)
            assert sorted((member.name, member.learner) for member in listed.members) == [("n1", False), ("n2", False)]


@pytest.mark.long
def test_a_node_that_moves_to_another_port_is_found_by_the_others(tmp_path: Path) -> None:
    nodes = etcd_nodes(tmp_path, "n1", "n2")
    with running(*nodes):
        create_topic(nodes[0].kafka, "events")
        produce(nodes[0].kafka, "events", "a")
        assert nodes[1].terminate() == 0
        moved = f"127.0.0.1:{free_port()}"
        nodes[1].options = tuple(moved if each == nodes[1].peer else each for each in nodes[1].options)
        nodes[1].start()
        until(lambda: "moved from" in nodes[1].log, what="it told the others")
        produce(nodes[1].kafka, "events", "b")
        assert read(nodes[0].kafka, "events", 2) == ["a", "b"]


@pytest.mark.long
async def test_members_prove_to_each_other_who_they_are(tmp_path: Path) -> None:
    own, key = certificate(tmp_path, "member")
    tls = {"ca": str(own), "cert": str(own), "key": str(key)}
    options = tuple(word for name, path in tls.items() for word in ("--set", f"etcd.{name}={path}"))
    nodes = etcd_nodes(tmp_path, "n1", "n2", options=options)
    with running(*nodes):
        create_topic(nodes[0].kafka, "events")
        produce(nodes[1].kafka, "events", "a")
        assert read(nodes[0].kafka, "events", 1) == ["a"]
        peer = Address.parse("peer", nodes[0].peer)
        assert await members_at(peer, EtcdMemberSettings()) is None
        known = await members_at(peer, EtcdMemberSettings(ca=str(own), cert=str(own), key=str(key)))
        assert known is not None
        assert len(known.members) == 2
