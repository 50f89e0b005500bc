"""`holdfast agents`, `partitions`, `leases`, `transfer`, `drain` and `rebalance` on two real servers."""

from pathlib import Path

from tests.support.command_line import Run
from tests.support.server_process import BROKER_ONLY, ServeProcess, create_topic, produce, read, started
from tests.support.waiting import until


def test_a_cluster_is_listed_and_moved_about(run: Run, tmp_path: Path) -> None:
    store = ("--store", f"sqlite:///{tmp_path}/store.db")
    shared = (*BROKER_ONLY, *store, "--objects", f"file://{tmp_path}/objects")
    ann, bob = (ServeProcess(tmp_path / name, *shared, "--agent-id", name, "--zone", "z1") for name in ("ann", "bob"))
    with started(ann, bob):
        create_topic(ann.kafka, "orders", 4)

        def leaders() -> dict[int, str]:
            return {row["partition"]: row["leader"] for row in run("partitions", "orders", *store, "--json").rows}

        until(lambda: sorted(leaders().values()) == ["ann", "ann", "bob", "bob"], what="both lead their share")
        for number in range(4):
            produce(ann.kafka, "orders", "a", "b", partition=number)
        rows = run("partitions", "orders", *store, "--json").rows
        assert [(row["high_watermark"], row["state"]) for row in rows] == [(2, "ok")] * 4
        assert all(row["in_sync"] == row["replicas"] == [row["leader"]] for row in rows)
        shown = run("partitions", "orders", *store).text
        assert max(map(len, shown.splitlines())) <= 80
        assert "watermark" in shown
        listed = {row["id"]: row for row in run("agents", *store, "--json").rows}
        assert {name: (row["live"], row["zone"], row["address"]) for name, row in listed.items()} == {
            "ann": (True, "z1", ann.kafka),
            "bob": (True, "z1", bob.kafka),
        }
        assert "ann" in run("agents", *store).text
        number = next(number for number, leader in leaders().items() if leader == "ann")
        moved = run("transfer", "orders", str(number), "--to", "bob", *store)
        assert moved.code == 0, moved.err
        assert f"orders-{number} is led by bob, epoch " in moved.text
        done = run("drain", "bob", *store, "--json")
        assert done.rows == [{"agent": "bob", "draining": True, "leases": 0, "tails_needed": 0}], done.err
        assert set(leaders().values()) == {"ann"}
        assert run("leases", "--agent", "bob", *store, "--json").rows == [
            row
            for row in run("leases", *store, "--json").rows
            if row["resource"] == "planner" and row["holder"] == "bob"
        ]
        refused = run("drain", "ann", *store)
        assert refused.code == 2
        assert "one of several live agents of group default" in refused.err
        assert run("drain", "bob", "--undo", *store).text == "bob gets its share again\n"
        until(lambda: set(leaders().values()) == {"ann", "bob"}, what="bob leads some again")
        assert run("rebalance", *store, "--json").rows == [{"withdrawn": 1, "misplaced": 0}]
        for each in range(4):
            assert read(bob.kafka, "orders", 2, partition=each) == ["a", "b"]


def test_what_does_not_exist_is_named(run: Run, tmp_path: Path) -> None:
    store = ("--store", f"sqlite:///{tmp_path}/store.db")
    refused = run("agents", *store)
    assert refused.code == 2
    assert "must be an existing database" in refused.err
    assert run("store", "check", store[1]).code == 0
    assert run("agents", *store).text == "agents: none\n"
    assert run("agents", *store, "--json").rows == []
    refused = run("partitions", "nothing", *store)
    assert (refused.code, refused.err) == (2, "holdfast: topic 'nothing' does not exist\n")
    refused = run("transfer", "nothing", "x", "--to", "ann", *store)
    assert refused.code == 2
    assert "invalid PARTITION 'x'" in refused.err


def test_replicas_are_listed_raised_and_lowered(run: Run, tmp_path: Path) -> None:
    store = ("--store", f"sqlite:///{tmp_path}/store.db")
    shared = (
        *BROKER_ONLY,
        *store,
        "--objects",
        f"file://{tmp_path}/objects",
        "--set",
        "kafka.replication_factor=refuse",
    )
    ann, bob = (ServeProcess(tmp_path / name, *shared, "--agent-id", name) for name in ("ann", "bob"))
    with started(ann, bob):
        bootstrap = ("--bootstrap", ann.kafka)
        until(lambda: len(run("agents", *store, "--json").rows) == 2, what="both are there")
        made = run("topic", "create", "orders", "--partitions", "2", "--replication-factor", "2", *bootstrap)
        assert made.code == 0, made.err

        def listed() -> list[tuple[set[str], set[str], str]]:
            rows = run("partitions", "orders", *store, "--json").rows
            return [({*row["replicas"]}, {*row["in_sync"]}, row["state"]) for row in rows]

        both = {"ann", "bob"}
        until(lambda: listed() == [(both, both, "ok")] * 2, what=lambda: f"both keep both: {listed()}")
        agents = {row["id"]: (row["replicas"], row["in_sync"]) for row in run("agents", *store, "--json").rows}
        assert agents == {"ann": (2, 2), "bob": (2, 2)}
        assert "replicas" in run("agents", *store).text
        produce(ann.kafka, "orders", "a", "b")
        refused = run("topic", "alter", "orders", "--replication-factor", "3", *bootstrap)
        assert refused.code == 2
        assert "only 2 broker(s) are registered" in refused.err
        lowered = run("topic", "alter", "orders", "--replication-factor", "1", *bootstrap)
        assert (lowered.code, lowered.text) == (0, "orders has a replication factor of 1\n"), lowered.err
        until(
            lambda: [len(replicas) for replicas, *_ in listed()] == [1, 1], what=lambda: f"one keeps each: {listed()}"
        )
        raised = run("topic", "alter", "orders", "--replication-factor", "2", *bootstrap, "--json")
        assert raised.rows == [{"name": "orders", "replication_factor": 2}], raised.err
        until(lambda: listed() == [(both, both, "ok")] * 2, what=lambda: f"both keep both again: {listed()}")
        assert read(bob.kafka, "orders", 2) == ["a", "b"]
