"""Several `holdfast serve` processes on one store: one leader per partition, whoever is asked, whoever dies."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from tests.support.server_process import (
    BROKER_ONLY,
    SHORT_SESSIONS,
    ServeProcess,
    create_topic,
    leaders,
    produce,
    read,
    started,
)
from tests.support.waiting import WAIT_S, until

from holdfast.testing.harness import StoreHarness

PARTITIONS = 6


def together(directory: Path, store: str, *names: str, options: tuple[str, ...] = SHORT_SESSIONS) -> list[ServeProcess]:
    """Nodes with a data directory each, on one store and one folder of objects."""
    shared = ("--store", store, "--objects", f"file://{directory}/objects", *options)
    return [ServeProcess(directory / name, *BROKER_ONLY, "--agent-id", name, *shared) for name in names]


def number(node: ServeProcess) -> int:
    """The node number it printed."""
    return int(node.out.partition(", node ")[2].partition(" ")[0])


def led_by_both(bootstrap: str, topic: str, numbers: set[int]) -> Callable[[], bool]:
    return lambda: set(leaders(bootstrap, topic).values()) == numbers


@pytest.mark.parametrize("engine", [pytest.param("sqlite", marks=pytest.mark.long), "postgres"])
async def test_two_processes_share_a_store_and_never_a_partition(harness: StoreHarness, tmp_path: Path) -> None:
    def steps() -> None:
        ann, bob = together(tmp_path, harness.url, "ann", "bob")
        with started(ann, bob):
            numbers = {number(ann), number(bob)}
            assert len(numbers) == 2
            create_topic(ann.kafka, "orders", PARTITIONS)
            until(led_by_both(ann.kafka, "orders", numbers), what="both lead some")
            for n in range(PARTITIONS):
                produce(ann.kafka, "orders", f"{n}-a", f"{n}-b", partition=n)
                produce(bob.kafka, "orders", f"{n}-c", partition=n)
            until(lambda: leaders(ann.kafka, "orders") == leaders(bob.kafka, "orders"), what="both say the same")
            led = leaders(ann.kafka, "orders")
            for n in range(PARTITIONS):
                assert read(bob.kafka, "orders", 3, partition=n) == [f"{n}-a", f"{n}-b", f"{n}-c"]
            # Bob dies. What only his WAL holds is offline until he is back; what Ann leads goes on (SAFETY 9).
            bobs = number(bob)
            bob.kill()
            for n in (n for n, leader in led.items() if leader != bobs):
                produce(ann.kafka, "orders", f"{n}-d", partition=n)
            orphans = {n for n, leader in led.items() if leader == bobs}
            until(lambda: bobs not in leaders(ann.kafka, "orders").values(), what="bob's leases have run out")
            for n in orphans:
                with pytest.raises(AssertionError):
                    produce(ann.kafka, "orders", "lost?", partition=n, **{"message.timeout.ms": 1_500})
            bob.start()
            assert number(bob) == bobs
            until(lambda: -1 not in leaders(ann.kafka, "orders").values(), what="every partition has a leader again")
            for n, leader in led.items():
                more = [f"{n}-d"] if leader != bobs else []
                assert read(ann.kafka, "orders", 3 + len(more), partition=n) == [
                    f"{n}-a",
                    f"{n}-b",
                    f"{n}-c",
                    *more,
                ]
            # Ann leaves politely: everything is Bob's, at once and complete.
            assert ann.terminate() == 0
            until(lambda: set(leaders(bob.kafka, "orders").values()) == {bobs}, what="bob leads everything")
            handed_over, closing = ann.log.index("has handed over"), ann.log.index("closing the gateways")
            assert handed_over < closing, "clients are served until others lead"
            for n in range(PARTITIONS):
                assert produce(bob.kafka, "orders", f"{n}-e", partition=n) == [4 if led[n] != bobs else 3]

    await asyncio.to_thread(steps)


@pytest.mark.parametrize(  # memory does not outlive a kill; that SQLite does is in test_serve.py
    "engine", ["postgres", "etcd", "redis", pytest.param("sqlite", marks=pytest.mark.long)]
)
async def test_it_serves_on_every_engine_and_survives_a_kill(harness: StoreHarness, tmp_path: Path) -> None:
    def steps() -> None:
        (ann,) = together(tmp_path, harness.url, "ann", options=())
        with started(ann):
            assert produce(ann.kafka, "orders", "a", "b") == [0, 1]
            ann.kill()
            ann.start()
            assert read(ann.kafka, "orders", 2) == ["a", "b"]
            assert produce(ann.kafka, "orders", "c") == [2]
            assert ann.terminate() == 0

    await asyncio.to_thread(steps)


def test_a_process_that_slept_does_not_write_what_another_leads_now(tmp_path: Path) -> None:
    ann, bob = together(tmp_path, f"sqlite:///{tmp_path}/store.db", "ann", "bob")
    with started(ann, bob):
        create_topic(ann.kafka, "orders", PARTITIONS)
        anns, bobs = number(ann), number(bob)
        until(led_by_both(ann.kafka, "orders", {anns, bobs}), what="both lead some")
        mine = min(n for n, leader in leaders(ann.kafka, "orders").items() if leader == bobs)
        answers: list[int | None] = []
        late = Producer(
            {"bootstrap.servers": f"{ann.kafka},{bob.kafka}", "enable.idempotence": True, "log_level": 0}
            | {"linger.ms": 0, "socket.timeout.ms": 10_000}
        )
        late.list_topics("orders")
        # Bob falls asleep; a record is on its way to him. He holds nothing that is unpublished, so Ann takes over.
        bob.freeze()
        try:
            late.produce(
                "orders", b"sent to bob", partition=mine, on_delivery=lambda _, sent: answers.append(sent.offset())
            )
            late.poll(0.2)
            until(lambda: leaders(ann.kafka, "orders")[mine] == anns, what="ann leads bob's partition")
            produce(ann.kafka, "orders", "sent to ann", partition=mine)
        finally:
            bob.thaw()
        assert late.flush(WAIT_S) == 0
        found = read(ann.kafka, "orders", 2, partition=mine)
        assert sorted(found) == ["sent to ann", "sent to bob"]
        assert answers == [found.index("sent to bob")]


def test_a_node_without_an_agent_is_a_way_in_and_never_a_leader(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/store.db"
    ann, door = together(tmp_path, store, "ann", "door")
    door._env["DISABLE_EMBEDDED_AGENT"] = "1"
    door.options = door.options[2:]  # a flag for its roles would win
    with started(door):  # nobody leads anything yet, and it says so
        assert "(door)" in door.out
        with started(ann):
            create_topic(door.kafka, "orders", 3)
            until(lambda: set(leaders(door.kafka, "orders").values()) == {number(ann)}, what="ann leads all")
            assert number(door) != number(ann)
            for n in range(3):
                produce(door.kafka, "orders", f"{n}", partition=n)
                assert read(door.kafka, "orders", 1, partition=n) == [f"{n}"]
            member = Consumer(
                {
                    "bootstrap.servers": door.kafka,
                    "group.id": "readers",
                    "auto.offset.reset": "earliest",
                    "log_level": 0,
                }
            )
            try:
                member.subscribe(["orders"])
                got: set[bytes | None] = set()

                def all_read() -> bool:
                    message = member.poll(0.2)
                    if message is not None and message.error() is None:
                        got.add(message.value())
                    return got == {b"0", b"1", b"2"}

                until(all_read, what="the group reads everything")
                member.commit(asynchronous=False)
            finally:
                member.close()
            assert door.terminate() == 0
            assert ann.terminate() == 0
    assert not (door.data / "wal").exists()
