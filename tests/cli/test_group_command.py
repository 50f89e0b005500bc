"""`holdfast group`: who is in a group, how far it is, and moving it while nobody is in it."""

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.support.broker import Broker
from tests.support.command_line import Run, Start, produce_json
from tests.support.waiting import until

T0_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def topic(broker: Broker) -> str:
    """Two partitions: ten records in 0, twenty in 1, a second apart. To be read only."""
    return fill(broker)


def fill(broker: Broker) -> str:
    name = broker.create_topic("grouped", partitions=2)
    places = [(partition, i) for partition in (0, 1) for i in range(10 + 10 * partition)]
    produce_json(broker, name, ({"value": f"{i}", "partition": p, "timestamp": T0_MS + i * 1000} for p, i in places))
    return name


@pytest.fixture
def group(kafka: Run, broker: Broker, topic: str) -> str:
    """A group that is at the end of `topic`."""
    return at_end(kafka, broker, topic)


def at_end(kafka: Run, broker: Broker, topic: str) -> str:
    name = broker.unique("readers")
    done = kafka("group", "reset", name, "--topic", topic, "--to", "end", "--execute")
    assert done.code == 0, done.err
    return name


@contextmanager
def member(kafka: Run, start: Start, group: str, topic: str) -> Iterator["subprocess.Popen[bytes]"]:
    reading = start("consume", topic, "--group", group, "--follow")
    try:

        def joined() -> bool:
            found = kafka("group", "describe", group, "--json")
            return found.code == 0 and any(each["partitions"] for each in found.rows[0]["members"])

        until(joined, what="it has partitions")
        yield reading
    finally:
        reading.send_signal(signal.SIGINT)
        reading.communicate(timeout=30)


def committed(kafka: Run, group: str) -> list[object]:
    return [row["committed"] for row in kafka("group", "describe", group, "--json").rows[0]["partitions"]]


def test_groups_are_listed_by_state(kafka: Run, start: Start, topic: str, group: str) -> None:
    def listed(*argv: str) -> dict[str, str]:
        done = kafka("group", "list", "--json", *argv)
        assert done.code == 0, done.err
        return {row["group"]: row["state"] for row in done.rows}

    assert listed()[group] == "empty"
    assert group in kafka("group", "list").text
    assert group not in listed("--state", "stable")
    with member(kafka, start, group, topic):
        until(lambda: listed().get(group) == "stable", what="it is stable")
        assert group in listed("--state", "stable", "--state", "preparing")
        assert group not in listed("--state", "empty")


def test_a_description_has_members_partitions_and_lag(kafka: Run, start: Start, broker: Broker) -> None:
    topic = fill(broker)
    group = at_end(kafka, broker, topic)
    kafka("produce", topic, "--partition", "0", stdin=b"a\nb\nc\n")
    with member(kafka, start, group, topic):
        (shown,) = kafka("group", "describe", group, "--json").rows
        assert shown["state"] == "stable"
        (reader,) = shown["members"]
        assert sorted(reader["partitions"]) == [f"{topic}-0", f"{topic}-1"]
        assert reader["client_id"] == "holdfast"
        assert [(row["partition"], row["committed"], row["end"], row["lag"]) for row in shown["partitions"]] == [
            (0, 10, 13, 3),
            (1, 20, 20, 0),
        ]
        assert {row["member"] for row in shown["partitions"]} == {reader["member"]}
        assert shown["lag"] == 3
    text = kafka("group", "describe", group).text
    assert f"{group} is empty, total lag 3" in text
    assert f"members of {group}: none" in text


@pytest.mark.parametrize(
    ("argv", "offsets"),
    [
        (["--to", "earliest"], [0, 0]),
        (["--to", "latest"], [10, 20]),
        (["--to", "5"], [5, 5]),
        (["--to", "15"], [10, 15]),  # the nearer end
        (["--to", f"@{T0_MS + 8000}"], [8, 8]),
        (["--to", "2023-11-14T22:13:35Z"], [10, 15]),
        (["--to", "-1h"], [10, 20]),
        (["--shift", "-3"], [7, 17]),
        (["--shift", "+3"], [10, 20]),
        (["--shift", "-15"], [0, 5]),
        (["--to", "2", "--partition", "1"], [10, 2]),
    ],
)
def test_a_reset_says_what_it_would_do_and_does_it_when_told(
    kafka: Run, topic: str, group: str, argv: list[str], offsets: list[int]
) -> None:
    command = ("group", "reset", group, "--topic", topic, *argv)
    plan = kafka(*command, "--json")
    assert plan.code == 0, plan.err
    before = {0: 10, 1: 20}
    assert all(row["done"] is False and row["committed"] == before[row["partition"]] for row in plan.rows)
    assert [row["to"] for row in plan.rows] == [offsets[row["partition"]] for row in plan.rows]
    assert [row["change"] for row in plan.rows] == [row["to"] - row["committed"] for row in plan.rows]
    assert committed(kafka, group) == [10, 20]
    assert "Nothing was changed" in kafka(*command).text
    done = kafka(*command, "--execute")
    assert "Done." in done.text, done.err
    assert committed(kafka, group) == offsets


def test_a_group_reads_again_from_where_it_was_moved(kafka: Run, topic: str, group: str) -> None:
    assert kafka("group", "reset", group, "--topic", topic, "--to", "8", "--execute").code == 0
    rows = kafka("consume", topic, "--group", group, "--json").rows
    assert sorted((row["partition"], row["offset"]) for row in rows) == [
        *((0, offset) for offset in range(8, 10)),
        *((1, offset) for offset in range(8, 20)),
    ]


def test_a_group_with_members_is_neither_moved_nor_deleted(kafka: Run, start: Start, topic: str, group: str) -> None:
    with member(kafka, start, group, topic):
        assert kafka("group", "reset", group, "--topic", topic, "--to", "0").code == 0  # only says what it would do
        moved = kafka("group", "reset", group, "--topic", topic, "--to", "0", "--execute")
        assert moved.code == 2
        assert f"group {group} has 1 active member (holdfast at " in moved.err
        assert "stop them first" in moved.err
        deleted = kafka("group", "delete", group)
        assert deleted.code == 2
        assert f"group {group} has active members: stop them first" in deleted.err
        assert committed(kafka, group) == [10, 20]


def test_a_group_can_be_made_by_a_reset(kafka: Run, broker: Broker, topic: str) -> None:
    name = broker.unique("made")
    assert kafka("group", "reset", name, "--topic", topic, "--to", "4", "--execute").code == 0
    assert committed(kafka, name) == [4, 4]


def test_a_deleted_group_is_gone_and_each_has_its_own_outcome(kafka: Run, broker: Broker, group: str) -> None:
    done = kafka("group", "delete", "no-such-group", group)
    assert done.code == 2
    assert done.text == f"{group} deleted\n"
    assert f"group no-such-group does not exist at {broker.bootstrap}" in done.err
    gone = kafka("group", "describe", group)
    assert gone.code == 2
    assert gone.err == f"holdfast: group {group} does not exist at {broker.bootstrap}\n"


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--to", "soon"], "a duration such as -1h"),
        (["--shift", "far"], "an integer such as +10 or -10"),
        (["--to", "0", "--partition", "9"], "-9 does not exist"),
        (["--to", "0", "--topic", "no-such-topic"], "topic no-such-topic does not exist"),
    ],
)
def test_a_wrong_reset_says_what_is_wrong(kafka: Run, topic: str, group: str, argv: list[str], says: str) -> None:
    done = kafka("group", "reset", group, "--topic", topic, *argv, "--execute")
    assert done.code == 2
    assert says in done.err
    assert committed(kafka, group) == [10, 20]


def test_a_shift_needs_a_place_to_shift_from(kafka: Run, broker: Broker, topic: str) -> None:
    done = kafka("group", "reset", broker.unique("fresh"), "--topic", topic, "--shift", "-1")
    assert done.code == 2
    assert "has no committed offset there" in done.err
