"""`holdfast consume`: from where, until where, and how it ends."""

import os
import re
import signal
import subprocess
import sys

import pytest
from tests.support.broker import Broker
from tests.support.command_line import Run, Start, produce_json
from tests.support.waiting import until

T0_MS = 1_700_000_000_000


def fill(broker: Broker) -> str:
    """A topic of one partition with the values 0 to 9, a second apart."""
    topic = broker.create_topic("numbers")
    records = ({"key": f"k{i}", "value": f"{i}", "timestamp": T0_MS + i * 1000} for i in range(10))
    produce_json(broker, topic, records)
    return topic


@pytest.fixture(scope="module")
def numbers(broker: Broker) -> str:
    """Such a topic, to be read only."""
    return fill(broker)


@pytest.fixture
def growing(broker: Broker) -> str:
    """Such a topic, to which the test may write."""
    return fill(broker)


@pytest.mark.parametrize(
    ("argv", "values"),
    [
        ([], "0123456789"),
        (["--from", "beginning"], "0123456789"),
        (["--from", "7"], "789"),
        (["--from", "99"], ""),
        (["--from", "end", "--until", "end"], ""),
        (["--until", "3"], "012"),
        (["--from", "2", "--until", "5"], "234"),
        (["--from", f"@{T0_MS + 4000}"], "456789"),
        (["--from", "2023-11-14T22:13:25.500Z"], "6789"),
        (["--from", "2023-11-14T22:13:21Z", "--until", "2023-11-14T22:13:23Z"], "12"),
        (["--from", "-1h"], ""),
        (["--from", "-9999w"], "0123456789"),
        (["--count", "4"], "0123"),
        (["--count", "0"], ""),
        (["--from", "8", "--count", "5"], "89"),
        (["--tail", "3"], "789"),
        (["--tail", "30"], "0123456789"),
        (["--tail", "3", "--count", "2"], "78"),
        (["--partition", "0", "--from", "9"], "9"),
    ],
)
def test_it_prints_what_was_asked_for_and_stops(kafka: Run, numbers: str, argv: list[str], values: str) -> None:
    done = kafka("consume", numbers, *argv)
    assert done.code == 0, done.err
    assert "".join(done.text.split()) == values


def test_keys_headers_formats_and_bytes(kafka: Run, numbers: str) -> None:
    one = ("consume", numbers, "--count", "1")
    assert kafka(*one, "--keys").text == "k0\t0\n"
    assert kafka(*one, "--keys", "--headers", "--key-separator", "|").text == "|k0|0\n"
    assert kafka(*one, "--format", "%t %p %o %k %v %T").text == f"{numbers} 0 0 k0 0 {T0_MS}\n"
    assert kafka(*one, "--raw").text == "0\n"
    assert kafka(*one, "--json").rows[0]["timestamp"] == T0_MS


def test_binary_values_cannot_harm_a_terminal(kafka: Run, broker: Broker) -> None:
    topic = broker.create_topic("binary")
    kafka("produce", topic, stdin=b"\x1b[2J\xff\x00\n")
    assert kafka("consume", topic).text == "\\x1b[2J\\xff\\x00\n"
    assert kafka("consume", topic, "--json").rows[0]["value_base64"] == "G1sySv8A"
    assert kafka("consume", topic, "--raw").out == b"\x1b[2J\xff\x00\n"


def test_several_topics_and_partitions_are_read_to_their_ends(kafka: Run, broker: Broker) -> None:
    first, second = broker.create_topic("first", partitions=3), broker.create_topic("second", partitions=2)
    for topic, word in ((first, "f"), (second, "s")):
        produce_json(broker, topic, ({"key": f"{i}", "value": f"{word}{i}"} for i in range(30)))
    rows = kafka("consume", first, second, "--json").rows
    assert sorted(str(row["value"]) for row in rows) == sorted(f"{word}{i}" for word in "fs" for i in range(30))
    for place in {(row["topic"], row["partition"]) for row in rows}:
        offsets = [row["offset"] for row in rows if (row["topic"], row["partition"]) == place]
        assert offsets == sorted(offsets)
    only = kafka("consume", first, "--partition", "0", "--partition", "2", "--json").rows
    assert {row["partition"] for row in only} == {0, 2}


def test_the_last_records_of_several_partitions_are_the_latest(kafka: Run, broker: Broker) -> None:
    topic = broker.create_topic("latest", partitions=3)
    lines = "".join(f'{{"value":"{i}","partition":{i % 3},"timestamp":{T0_MS + i}}}\n' for i in range(20))
    kafka("produce", topic, "--json-lines", stdin=lines.encode())
    assert kafka("consume", topic, "--tail", "5").text.split() == ["15", "16", "17", "18", "19"]


def test_an_empty_topic_ends_at_once(kafka: Run, broker: Broker) -> None:
    topic = broker.create_topic("empty", partitions=2)
    for argv in ([], ["--tail", "5"], ["--from", "-1h"], ["--json"]):
        done = kafka("consume", topic, *argv)
        assert (done.code, done.out, done.err) == (0, b"", "")


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--from", "yesterday"], "a duration such as -1h"),
        (["--commit"], "--commit needs --group"),
        (["--group", "g", "--tail", "1"], "--group does not go with --partition, --until or --tail"),
        (["--group", "g", "--from", "-1h"], "holdfast group reset"),
        (["--tail", "1", "--from", "end"], "--tail does not go with --from or --until"),
        (["--follow", "--until", "5"], "--until does not go with --follow"),
        (["--json", "--keys"], "do not go with --json"),
        (["--format", "%z"], "placeholders"),
        (["--partition", "7"], "-7 does not exist at 127.0.0.1"),
        (["--count", "many"], "--count"),
        (["--tail", "0"], "--tail"),
    ],
)
def test_a_wrong_call_says_what_is_wrong(kafka: Run, numbers: str, argv: list[str], says: str) -> None:
    done = kafka("consume", numbers, *argv)
    assert done.code == 2
    assert says in done.err


def test_a_topic_that_does_not_exist_is_named_and_not_made(kafka: Run, broker: Broker) -> None:
    for more in ([], ["--group", "g"]):
        done = kafka("consume", "not-there", *more)
        assert done.code == 2
        assert f"topic not-there does not exist at {broker.bootstrap}" in done.err
    assert "not-there" not in [row["name"] for row in kafka("topic", "list", "--json").rows]


@pytest.mark.parametrize("argv", [["--from", "end"], ["--tail", "1", "-f"]])
def test_following_prints_what_comes_until_ctrl_c(kafka: Run, start: Start, growing: str, argv: list[str]) -> None:
    reading = start("consume", growing, *argv, "--json")
    assert reading.stdout is not None
    if argv[0] == "--tail":
        assert b'"value":"9"' in reading.stdout.readline()
    # From the end means from where the end is when it starts: send until one is seen.
    os.set_blocking(reading.stdout.fileno(), False)

    def seen() -> bytes | None:
        kafka("produce", growing, stdin=b"later\n")
        assert reading.stdout is not None
        return reading.stdout.read()

    until(lambda: b"later" in (seen() or b""), what="the new record is printed at once")
    reading.send_signal(signal.SIGINT)
    _, err = reading.communicate(timeout=30)
    assert (reading.returncode, err) == (130, b"")


def test_following_ends_after_the_count(kafka: Run, numbers: str) -> None:
    assert kafka("consume", numbers, "--from", "8", "--follow", "--count", "2").text == "8\n9\n"


def test_a_group_goes_on_where_it_committed(kafka: Run, broker: Broker, numbers: str) -> None:
    group = ("--group", broker.unique("readers"))
    assert kafka("consume", numbers, *group, "--count", "4").text == "0\n1\n2\n3\n"  # nothing committed
    assert kafka("consume", numbers, *group, "--count", "4", "--commit").text == "0\n1\n2\n3\n"
    assert kafka("consume", numbers, *group, "--commit").text == "4\n5\n6\n7\n8\n9\n"
    assert kafka("consume", numbers, *group, "--commit").text == ""


def test_a_new_group_may_start_at_the_end(kafka: Run, start: Start, broker: Broker, growing: str) -> None:
    group = broker.unique("late")
    reading = start("consume", growing, "--group", group, "--from", "end", "--commit", "--count", "1")

    def joined() -> bool:
        found = kafka("group", "describe", group, "--json")
        return found.code == 0 and any(member["partitions"] for member in found.rows[0]["members"])

    until(joined, what="it has its partition")

    def sent() -> bool:
        kafka("produce", growing, stdin=b"new\n")
        return reading.poll() is not None

    until(sent, what="it has read one record")
    out, err = reading.communicate(timeout=30)
    assert (reading.returncode, out) == (0, b"new\n"), err


def test_ctrl_c_commits_what_was_printed_and_leaves_the_group(
    kafka: Run, start: Start, broker: Broker, numbers: str
) -> None:
    group = broker.unique("leaving")
    reading = start("consume", numbers, "--group", group, "--commit", "--follow")
    assert reading.stdout is not None
    assert [reading.stdout.readline() for _ in range(10)] == [b"%d\n" % i for i in range(10)]
    reading.send_signal(signal.SIGINT)
    _, err = reading.communicate(timeout=30)
    assert (reading.returncode, err) == (130, b"")
    (shown,) = kafka("group", "describe", group, "--json").rows
    assert shown["members"] == []  # at once: it said goodbye
    assert [row["committed"] for row in shown["partitions"]] == [10]


def test_two_members_of_a_group_share_the_partitions(kafka: Run, start: Start, broker: Broker) -> None:
    topic, group = broker.create_topic("shared", partitions=4), broker.unique("sharing")
    both = [start("consume", topic, "--group", group, "--commit", "--follow", "--format", "%p") for _ in range(2)]

    def shared() -> bool:
        found = kafka("group", "describe", group, "--json")
        return found.code == 0 and [len(member["partitions"]) for member in found.rows[0]["members"]] == [2, 2]

    until(shared, what="each has two partitions")
    lines = "".join(f'{{"value":"{i}","partition":{i % 4}}}\n' for i in range(40))
    kafka("produce", topic, "--json-lines", stdin=lines.encode())
    until(lambda: kafka("group", "describe", group, "--json").rows[0]["partitions"][0]["lag"] == 0, what="all is read")
    until(lambda: _lag(kafka, group) == 0, what="all is committed")
    printed = []
    for reading in both:
        reading.send_signal(signal.SIGTERM)
        out, err = reading.communicate(timeout=30)
        assert (reading.returncode, err) == (143, b"")
        printed.append(out.split())
    assert [len(set(partitions)) for partitions in printed] == [2, 2]
    assert sorted(printed[0] + printed[1]) == sorted([b"0", b"1", b"2", b"3"] * 10)


def _lag(kafka: Run, group: str) -> int | None:
    rows = kafka("group", "describe", group, "--json").rows[0]["partitions"]
    return None if len(rows) < 4 or any(row["lag"] is None for row in rows) else sum(row["lag"] for row in rows)


def test_a_closed_pipe_ends_it_quietly(kafka: Run, broker: Broker) -> None:
    topic = broker.create_topic("piped")
    kafka("produce", topic, stdin=b"a long line to fill the pipe with\n" * 20_000)
    for more in ("", "--follow"):
        command = f"{sys.executable} -m holdfast consume {topic} {more} --bootstrap {broker.bootstrap}; echo $? >&2"
        done = subprocess.run(["sh", "-c", f"({command}) | head -2"], capture_output=True, text=True, timeout=60)
        assert done.stdout == "a long line to fill the pipe with\n" * 2
        assert done.stderr == "0\n"


def test_a_reader_that_left_ends_even_a_reading_that_waits(start: Start, numbers: str) -> None:
    reading = start("consume", numbers, "--tail", "1", "--follow")
    assert reading.stdout is not None
    assert reading.stdout.readline() == b"9\n"
    reading.stdout.close()
    assert reading.wait(30) == 0
    assert reading.stderr is not None
    assert reading.stderr.read() == b""


def test_a_broker_that_goes_away_ends_a_reading_that_does_not_follow(own_broker: Broker, run: Run) -> None:
    topic = own_broker.create_topic("gone")
    address = ("--bootstrap", own_broker.bootstrap)
    run("produce", topic, *address, stdin=b"x\n")
    own_broker.stop()
    try:
        done = run("consume", topic, *address, "--timeout-s", "1")
    finally:
        own_broker.cont()
    assert done.code == 3
    assert re.search(rf"Kafka at {own_broker.bootstrap} is unavailable: no answer within 1 s", done.err)
