"""`holdfast wal set-aside`: records that were left out are shown, appended once, or dropped."""

import asyncio
from pathlib import Path

import pytest
from tests.support.broker import Broker
from tests.support.command_line import Run
from tests.support.failpoints import FailpointError
from tests.support.librdkafka_client import read_all, send_values, values

from holdfast.client.brokers import BrokerClient
from holdfast.log.batches import Record, RecordBatchLimits, encode, split_batches
from holdfast.log.wal.set_aside import list_tails, tail_name, write_tail
from holdfast.vocabulary import failpoints

UNKNOWN = "ab" * 16


def set_aside(directory: Path, topic_id: str, *batches: list[str], start: int = 7, topic: str = "orders") -> str:
    """A tail with these batches of one producer, from offset `start` on."""
    body, at = b"", start
    for batch in batches:
        records = [Record(at + n, 1_000 + n, b"k", value.encode()) for n, value in enumerate(batch)]
        body += encode(records, base_offset=at, producer_id=3, producer_epoch=1, base_sequence=at, leader_epoch=2)
        at += len(batch)
    name = tail_name(topic_id, 0, start)
    write_tail(
        directory,
        split_batches(body, limits=RecordBatchLimits(), stored=True),
        name=name, topic_id=topic_id, topic=topic, partition=0, wal="w", reason="a takeover", now_ms=5,
    )  # fmt: skip
    return name


def id_of(broker: Broker, topic: str) -> str:
    async def find() -> str:
        client = BrokerClient(broker.bootstrap)
        try:
            return (await client.topic(topic)).id
        finally:
            await client.close()

    return asyncio.run(find())


def test_tails_are_listed_and_shown(tmp_path: Path, run: Run) -> None:
    assert run("wal", "set-aside", "list", str(tmp_path), "--json").rows == []
    name = set_aside(tmp_path, UNKNOWN, ["a", "b"], ["c"])
    (row,) = run("wal", "set-aside", "list", str(tmp_path), "--json").rows
    assert (row["name"], row["topic"], row["first_offset"], row["end_offset"], row["records"]) == (
        name,
        "orders",
        7,
        10,
        3,
    )
    assert name in run("wal", "set-aside", "list", str(tmp_path)).text
    tail, *shown = run("wal", "set-aside", "show", str(tmp_path), name[:8], "--json", "--limit", "2").rows
    assert tail["reason"] == "a takeover"
    assert [(each["offset"], each["key"], each["value"]) for each in shown] == [(7, "k", "a"), (8, "k", "b")]
    assert "the first 3 of 3 records" in run("wal", "set-aside", "show", str(tmp_path), name).text


def test_dropping_needs_a_yes_and_leaves_the_report(tmp_path: Path, run: Run) -> None:
    name = set_aside(tmp_path, UNKNOWN, ["a"])
    refused = run("wal", "set-aside", "drop", str(tmp_path), name)
    assert (refused.code, "--yes" in refused.err) == (2, True)
    assert run("wal", "set-aside", "drop", str(tmp_path), name, "--yes", "--json").rows[0]["state"] == "dropped"
    assert run("wal", "set-aside", "drop", str(tmp_path), name, "--yes").code == 0
    assert run("wal", "set-aside", "list", str(tmp_path), "--json").rows == []
    assert len(run("wal", "set-aside", "list", str(tmp_path), "--all", "--json").rows) == 1
    assert list(tmp_path.rglob("*.batches")) == []


def test_a_name_that_is_none_or_several_is_refused(tmp_path: Path, run: Run) -> None:
    set_aside(tmp_path, UNKNOWN, ["a"])
    set_aside(tmp_path, UNKNOWN, ["a"], start=100)
    for name in ("nothing", UNKNOWN[:4]):
        refused = run("wal", "set-aside", "show", str(tmp_path), name)
        assert (refused.code, "one of" in refused.err) == (2, True)
    assert run("wal", "set-aside", "list", str(tmp_path / "missing")).code == 2


def test_a_tail_is_appended_at_the_end_and_once(broker: Broker, tmp_path: Path, run: Run) -> None:
    topic = broker.create_topic("aside")
    send_values(broker, topic, [b"before"])
    name = set_aside(tmp_path, id_of(broker, topic), ["a", "b"], ["c"], topic=topic)
    argv = ("wal", "set-aside", "append", str(tmp_path), name, "--bootstrap", broker.bootstrap)
    done = run(*argv)
    assert done.code == 0, done.err
    assert "3 records appended" in done.text
    assert run(*argv, "--json").rows[0]["state"] == "appended"
    found = read_all(broker, topic)
    assert [(each.offset, each.value) for each in found] == [(0, b"before"), (1, b"a"), (2, b"b"), (3, b"c")]
    assert (found[1].key, found[1].timestamp_ms, found[2].timestamp_ms) == (b"k", 1_000, 1_001)


@pytest.mark.parametrize(
    ("label", "hit"),
    [
        ("set-aside.planned", 1),
        ("set-aside.batch-appended", 1),
        ("set-aside.batch-appended", 3),
        ("set-aside.settled", 1),
    ],
)
def test_killed_at_a_step_and_run_again_it_appends_each_record_once(
    broker: Broker, tmp_path: Path, run: Run, label: str, hit: int
) -> None:
    topic = broker.create_topic("aside")
    name = set_aside(tmp_path, id_of(broker, topic), ["a", "b"], ["c"], ["d"], topic=topic)
    argv = ("wal", "set-aside", "append", str(tmp_path), name, "--bootstrap", broker.bootstrap)
    passed: list[str] = []

    def die(reached: str) -> None:
        passed.append(reached)
        if passed.count(label) == hit:
            raise FailpointError(label)

    with failpoints.installed(die), pytest.raises(FailpointError):
        run(*argv)
    send_values(broker, topic, [b"meanwhile"])
    assert run(*argv).code == 0
    assert sorted(values(read_all(broker, topic))) == [b"a", b"b", b"c", b"d", b"meanwhile"]
    assert [tail.state for tail in list_tails(tmp_path)] == ["appended"]


def test_compacted_and_unknown_topics_and_dropped_tails_are_refused(broker: Broker, tmp_path: Path, run: Run) -> None:
    append = ("wal", "set-aside", "append", str(tmp_path))
    bootstrap = ("--bootstrap", broker.bootstrap)
    compacted = broker.create_topic("aside", 1, {"cleanup.policy": "compact"})
    refused = run(*append, set_aside(tmp_path, id_of(broker, compacted), ["a"], topic=compacted), *bootstrap)
    assert (refused.code, "replace a newer one" in refused.err) == (2, True)
    unknown = set_aside(tmp_path, UNKNOWN, ["a"])
    refused = run(*append, unknown, *bootstrap)
    assert (refused.code, "was deleted" in refused.err) == (2, True)
    topic = broker.create_topic("aside")
    dropped = set_aside(tmp_path, id_of(broker, topic), ["a"], topic=topic)
    run("wal", "set-aside", "drop", str(tmp_path), dropped, "--yes")
    refused = run(*append, dropped, *bootstrap)
    assert (refused.code, "it is settled" in refused.err) == (2, True)
    assert read_all(broker, topic) == []
