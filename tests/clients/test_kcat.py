"""kcat: produce, consume, list, query, and groups, from the command line as people use it."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.support.broker import Broker
from tests.support.librdkafka_client import consuming, read_all, send, send_values, values
from tests.support.record_shapes import COMPRESSIONS, KEEP, Shape
from tests.support.waiting import until

KCAT = shutil.which("kcat") or shutil.which("kafkacat")
pytestmark = pytest.mark.skipif(KCAT is None, reason="kcat is not installed")
TIMEOUT_S = 40
START_MS = 1_700_000_000_000


def kcat(broker: Broker, *args: str, given: bytes = b"", code: int = 0) -> bytes:
    """What kcat prints; it must end with `code`."""
    done = subprocess.run(
        [str(KCAT), "-b", broker.bootstrap, *args], input=given, capture_output=True, timeout=TIMEOUT_S
    )
    assert done.returncode == code, f"{done.returncode}: {done.stdout[-500:]!r} {done.stderr[-1_500:]!r}"
    return done.stdout if code == 0 else done.stderr


def consume(broker: Broker, topic: str, *args: str) -> bytes:
    return kcat(broker, "-C", "-q", "-t", topic, "-e", *args)


@pytest.fixture(scope="module")
def timed(broker: Broker) -> str:
    """Ten records, a second apart, in one partition."""
    topic = broker.create_topic("kcat-timed", 1, KEEP)
    send(broker, topic, [Shape(name="", value=b"%d" % n, timestamp_ms=START_MS + 1_000 * n) for n in range(10)])
    return topic


def test_the_version_is_printed() -> None:
    said = subprocess.run([str(KCAT), "-V"], capture_output=True, timeout=TIMEOUT_S, check=True).stdout
    assert re.search(rb"Version \d+\.\d+", said)


def test_lines_are_produced_and_consumed(broker: Broker) -> None:
    topic = broker.create_topic("kcat")
    kcat(broker, "-P", "-t", topic, given=b"one\ntwo\nthree\n")
    assert consume(broker, topic) == b"one\ntwo\nthree\n"


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_each_compression(broker: Broker, compression: str) -> None:
    topic = broker.create_topic("kcat")
    lines = b"".join(b"line %d of many that look alike\n" % index for index in range(500))
    kcat(broker, "-P", "-t", topic, "-z", compression, given=lines)
    assert consume(broker, topic) == lines


@pytest.mark.parametrize("acks", ["1", "all"])
def test_each_acknowledgement(broker: Broker, acks: str) -> None:
    topic = broker.create_topic("kcat")
    kcat(broker, "-P", "-t", topic, "-X", f"acks={acks}", given=b"a\nb\n")
    assert consume(broker, topic) == b"a\nb\n"


def test_an_idempotent_producer(broker: Broker) -> None:
    topic = broker.create_topic("kcat")
    lines = b"".join(b"%d\n" % index for index in range(5_000))
    kcat(broker, "-P", "-t", topic, "-X", "enable.idempotence=true", given=lines)
    assert consume(broker, topic) == lines


def test_keys_headers_and_nulls(broker: Broker) -> None:
    topic = broker.create_topic("kcat")
    kcat(broker, "-P", "-t", topic, "-K:", "-H", "trace=1", "-H", "trace=2", "-H", "empty=", given=b"k:v\n")
    kcat(broker, "-P", "-t", topic, "-K:", "-Z", given=b"gone:\n")
    first, second = read_all(broker, topic)
    assert (first.key, first.value) == (b"k", b"v")
    assert first.headers == (("trace", b"1"), ("trace", b"2"), ("empty", b""))
    assert (second.key, second.value, second.headers) == (b"gone", None, ())


def test_a_format_prints_all_fields_of_a_record(broker: Broker) -> None:
    topic = broker.create_topic("kcat", 2, KEEP)
    headers = (("a", b"1"), ("b", b"2"), ("nothing", None))
    shape = Shape(name="", key=b"key", value=b"value", headers=headers, timestamp_ms=START_MS)
    send(broker, topic, [shape], partition=1)
    said = consume(broker, topic, "-f", r"%t|%p|%o|%K|%k|%S|%s|%T|%h\n").decode()
    assert said == f"{topic}|1|0|3|key|5|value|{START_MS}|a=1,b=2,nothing=NULL\n"


def test_json_distinguishes_null_from_empty(broker: Broker) -> None:
    topic = broker.create_topic("kcat")
    send(broker, topic, [Shape(name="", key=None, value=None), Shape(name="", key=b"", value=b"")])
    found = [json.loads(line) for line in consume(broker, topic, "-J").splitlines()]
    assert [(each["key"], each["payload"]) for each in found] == [(None, None), ("", "")]
    assert [each["offset"] for each in found] == [0, 1]
    assert {each["tstype"] for each in found} == {"create"}


def test_append_time_is_shown_as_such(broker: Broker) -> None:
    topic = broker.create_topic("kcat", 1, {"message.timestamp.type": "LogAppendTime"})
    send_values(broker, topic, [b"x"])
    assert json.loads(consume(broker, topic, "-J"))["tstype"] == "logappend"


@pytest.mark.parametrize(
    ("start", "expected"),
    [("beginning", range(10)), ("end", range(0)), ("4", range(4, 10)), ("-3", range(7, 10))],
)
def test_reading_starts_at_the_given_offset(broker: Broker, timed: str, start: str, expected: range) -> None:
    assert consume(broker, timed, "-o", start) == b"".join(b"%d\n" % index for index in expected)


def test_reading_begins_and_ends_at_a_time(broker: Broker, timed: str) -> None:
    assert consume(broker, timed, "-o", f"s@{START_MS + 3_500}") == b"4\n5\n6\n7\n8\n9\n"
    said = consume(broker, timed, "-o", f"s@{START_MS + 3_500}", "-o", f"e@{START_MS + 7_000}")
    assert said == b"4\n5\n6\n"


def test_reading_stops_after_a_count(broker: Broker, timed: str) -> None:
    assert kcat(broker, "-C", "-q", "-t", timed, "-c", "3", "-o", "2") == b"2\n3\n4\n"


def test_reading_one_partition_of_several(broker: Broker) -> None:
    topic = broker.create_topic("kcat", 3)
    for partition in range(3):
        send_values(broker, topic, [b"p%d" % partition] * 2, partition=partition)
    assert consume(broker, topic, "-p", "1") == b"p1\np1\n"
    assert sorted(consume(broker, topic).split()) == [b"p0", b"p0", b"p1", b"p1", b"p2", b"p2"]


def test_metadata_is_listed(broker: Broker) -> None:
    topic = broker.create_topic("kcat", 3)
    told: dict[str, Any] = json.loads(kcat(broker, "-L", "-J", "-t", topic))
    assert [each["name"] for each in told["brokers"]] == [broker.bootstrap]
    (found,) = told["topics"]
    assert found["topic"] == topic
    assert [each["partition"] for each in found["partitions"]] == [0, 1, 2]
    node = told["brokers"][0]["id"]
    for each in found["partitions"]:
        assert each["leader"] == node
        assert each["replicas"] == each["isrs"] == [{"id": node}]
    everything = kcat(broker, "-L").decode()
    assert f'topic "{topic}" with 3 partitions' in everything


def test_metadata_of_an_unknown_topic_has_an_error(broker: Broker) -> None:
    never = broker.unique("never")
    told = json.loads(kcat(broker, "-L", "-J", "-t", never, "-X", "allow.auto.create.topics=false"))
    assert told["topics"][0]["error"] in ("Broker: Unknown topic or partition", "Broker: Leader not available")


def test_offsets_are_queried_by_time(broker: Broker, timed: str) -> None:
    for ask, offset in ((START_MS + 2_500, 3), (START_MS, 0), (-1, 10), (-2, 0)):
        assert kcat(broker, "-Q", "-t", f"{timed}:0:{ask}").decode() == f"{timed} [0] offset {offset}\n"


def test_a_message_too_large_gets_an_error(broker: Broker) -> None:
    topic = broker.create_topic("kcat", 1, {"max.message.bytes": "10000"})
    # A pause between the two, or they would share a batch and its fate.
    said = kcat(broker, "-P", "-t", topic, "-X", "batch.num.messages=1", given=b"x" * 20_000 + b"\nfits\n", code=1)
    assert b"Message size too large" in said
    assert values(read_all(broker, topic))[-1:] in ([], [b"fits"])


def test_an_unknown_topic_gets_an_error(broker: Broker) -> None:
    never = broker.unique("never")
    said = kcat(broker, "-C", "-t", never, "-e", "-X", "allow.auto.create.topics=false", code=1)
    assert b"Unknown topic or partition" in said or b"Unknown partition" in said


@contextmanager
def member(broker: Broker, group: str, topic: str) -> Iterator[subprocess.Popen[bytes]]:
    """A kcat in a group, printing `partition offset value` a line; it leaves when the body ends."""
    options = ["-X", "session.timeout.ms=6000", "-X", "auto.offset.reset=earliest", "-f", r"%p %o %s\n", "-u"]
    process = subprocess.Popen(
        [str(KCAT), "-b", broker.bootstrap, "-G", group, *options, topic],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=TIMEOUT_S)


def test_a_group_reads_on_where_it_stopped(broker: Broker) -> None:
    topic, group = broker.create_topic("kcat", 2), broker.unique("kcat")
    for turn in (b"first", b"second"):
        for partition in range(2):
            send_values(broker, topic, [turn] * 10, partition=partition)
        options = ["-X", "auto.offset.reset=earliest", "-c", "20", "-q"]
        said = kcat(broker, "-G", group, *options, topic)
        assert said.split() == [turn] * 20


def test_two_members_share_a_topic(broker: Broker) -> None:
    topic, group = broker.create_topic("kcat", 4), broker.unique("kcat")
    with member(broker, group, topic) as ann, member(broker, group, topic) as bob:

        def shared() -> bool:
            told = broker.admin.describe_consumer_groups([group])[group].result(20)
            return [len(each.assignment.topic_partitions) for each in told.members] == [2, 2]

        until(shared, what="two partitions each")
        for partition in range(4):
            send_values(broker, topic, [b"x"] * 5, partition=partition)
        partitions = []
        for process in (ann, bob):
            assert process.stdout is not None
            lines = [process.stdout.readline().split() for _ in range(10)]
            partitions.append({int(line[0]) for line in lines})
        assert partitions[0] | partitions[1] == {0, 1, 2, 3}
        assert not partitions[0] & partitions[1]


def test_what_kcat_committed_other_clients_see(broker: Broker) -> None:
    topic, group = broker.create_topic("kcat"), broker.unique("kcat")
    send_values(broker, topic, [b"x"] * 30)
    kcat(broker, "-G", group, "-X", "auto.offset.reset=earliest", "-c", "30", "-q", topic)
    send_values(broker, topic, [b"y"])
    with consuming(broker, {"group.id": group}) as client:
        client.subscribe([topic])
        message = client.poll(30)
        assert message is not None
        assert message.value() == b"y"
