"""`holdfast produce`: every line becomes a record or an error, and the exit code says which."""

import io
import json
import os
import pty
import re
import signal
import subprocess
from collections import Counter
from contextlib import nullcontext
from pathlib import Path

import pytest
from tests.support.broker import Broker
from tests.support.command_line import Run, Start
from tests.support.waiting import until


def consumed(kafka: Run, topic: str, *argv: str) -> list[dict[str, object]]:
    done = kafka("consume", topic, "--json", *argv)
    assert done.code == 0, done.err
    return done.rows


def test_each_line_is_a_record(kafka: Run, broker: Broker) -> None:
    topic = broker.create_topic("lines")
    done = kafka("produce", topic, stdin="one\n\nzwölf\nlast without a newline".encode())
    assert (done.code, done.out) == (0, b"")
    assert done.err.startswith("4 records acknowledged in ")
    assert [row["value"] for row in consumed(kafka, topic)] == ["one", "", "zwölf", "last without a newline"]


def test_keys_nulls_headers_and_a_partition(kafka: Run, broker: Broker) -> None:
    topic = broker.create_topic("keys", partitions=3)
    options = (
        "--key-separator",
        ":",
        "--null-marker",
        "NULL",
        "--header",
        "a=1",
        "--header",
        "b=x=y",
        "--partition",
        "2",
    )
    assert kafka("produce", topic, *options, stdin=b"k:v\nk:NULL\nNULL:v\n").code == 0
    rows = consumed(kafka, topic)
    assert [(row["key"], row["value"]) for row in rows] == [("k", "v"), ("k", None), (None, "v")]
    assert all(row["headers"] == [["a", "1"], ["b", "x=y"]] and row["partition"] == 2 for row in rows)


def test_keys_choose_the_partitions_that_javas_client_chooses(kafka: Run, broker: Broker) -> None:
    topic = broker.create_topic("murmur", partitions=4)
    kafka("produce", topic, "--key-separator", ":", stdin=b"21:a\nfoobar:b\na-little-bit-long-string:c\n")
    # murmur2 of these keys is published with Java's client: -973932308, -790332482, -985981536
    expected = {"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536}
    assert {row["key"]: row["partition"] for row in consumed(kafka, topic)} == {
        key: (hashed & 0x7FFFFFFF) % 4 for key, hashed in expected.items()
    }


def test_json_lines_say_everything(kafka: Run, broker: Broker) -> None:
    topic = broker.create_topic("json", partitions=2)
    line = {
        "key_base64": "/wA=",
        "value": None,
        "headers": [["a", "1"], ["b", None], ["c", {"base64": "/w=="}]],
        "partition": 1,
        "timestamp": 1_700_000_000_000,
    }
    assert kafka("produce", topic, "--json-lines", stdin=json.dumps(line).encode()).code == 0
    assert consumed(kafka, topic) == [
        {"topic": topic, "offset": 0, "timestamp_type": "create", **line},
    ]


def test_what_consume_prints_can_be_produced_again(kafka: Run, broker: Broker) -> None:
    topic, copy = broker.create_topic("original", partitions=3), broker.create_topic("copy", partitions=3)
    kafka("produce", topic, "--key-separator", ":", stdin=b"".join(b"%d:v%d\n" % (i, i) for i in range(50)))
    printed = kafka("consume", topic, "--json")
    assert kafka("produce", copy, "--json-lines", stdin=printed.out).code == 0

    def content(name: str) -> set[tuple[object, ...]]:
        fields = ("key", "value", "partition", "timestamp", "offset")
        return {tuple(row[field] for field in fields) for row in consumed(kafka, name)}

    assert content(copy) == content(topic)
    assert len(content(topic)) == 50


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_compression_arrives(kafka: Run, broker: Broker, compression: str) -> None:
    topic = broker.create_topic("compressed")
    lines = b"the same line\n" * 200
    assert kafka("produce", topic, "--compression", compression, stdin=lines).code == 0
    assert kafka("consume", topic).out == lines


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_fewer_acks_are_possible(kafka: Run, broker: Broker, acks: str) -> None:
    topic = broker.create_topic("acks")
    assert kafka("produce", topic, "--acks", acks, stdin=b"a\nb\n").code == 0
    until(lambda: len(consumed(kafka, topic)) == 2, what="both records are there")


def test_a_file_is_read_up_to_a_count(kafka: Run, broker: Broker, tmp_path: Path) -> None:
    topic = broker.create_topic("file")
    (tmp_path / "lines").write_bytes(b"a\nb\nc\n")
    done = kafka("produce", topic, "--file", str(tmp_path / "lines"), "--count", "2", "--json")
    assert done.code == 0
    (report,) = done.rows
    assert (report["acknowledged"], report["failed"], report["error"]) == (2, 0, None)
    assert kafka("consume", topic).out == b"a\nb\n"


def test_a_line_that_is_no_record_ends_it_and_what_came_before_is_sent(kafka: Run, broker: Broker) -> None:
    topic = broker.create_topic("wrong")
    done = kafka("produce", topic, "--key-separator", ":", stdin=b"a:1\nb:2\nno key\nc:3\n")
    assert done.code == 2
    assert "invalid line 3 'no key'" in done.err
    assert "2 records acknowledged" in done.err
    assert [row["key"] for row in consumed(kafka, topic)] == ["a", "b"]


@pytest.mark.parametrize("field", ["partition", "timestamp"])
def test_a_number_out_of_range_ends_it_and_what_came_before_is_sent(kafka: Run, broker: Broker, field: str) -> None:
    topic = broker.create_topic("range")
    lines = b'{"value":"a"}\n{"value":"b"}\n{"%s":99999999999999999999}\n{"value":"d"}\n' % field.encode()
    done = kafka("produce", topic, "--json-lines", stdin=lines)
    assert done.code == 2
    assert "invalid line 3" in done.err
    assert "2 records acknowledged" in done.err
    assert kafka("consume", topic).out == b"a\nb\n"


def test_records_are_sent_also_if_reading_fails(kafka: Run, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    class FailingFile(io.BytesIO):
        def readline(self, size: int | None = -1, /) -> bytes:
            if line := super().readline(size):
                return line
            raise OSError("the disk is broken")

    topic = broker.create_topic("failing")
    monkeypatch.setattr("holdfast.cli.produce._input", lambda _: nullcontext(FailingFile(b"a\nb\n")))
    with pytest.raises(OSError, match="disk"):
        kafka("produce", topic)
    assert kafka("consume", topic).out == b"a\nb\n"


def test_a_record_that_is_too_large_is_reported_and_the_others_arrive(kafka: Run, broker: Broker) -> None:
    topic = broker.create_topic("large", config={"max.message.bytes": "10000"})
    done = kafka("produce", topic, stdin=b"small\n" + b"x" * 50_000 + b"\nsmall too\n")
    assert done.code == 2
    assert f"1 not acknowledged: topic {topic} was refused: a record is larger" in done.err
    assert "2 records acknowledged" in done.err
    assert kafka("consume", topic).out == b"small\nsmall too\n"


def test_a_record_for_a_partition_that_does_not_exist_is_reported_and_the_others_arrive(
    kafka: Run, broker: Broker
) -> None:
    topic = broker.create_topic("beyond", partitions=2)
    lines = b'{"value":"a","partition":0}\n{"value":"b","partition":9}\n{"value":"c","partition":1}\n'
    done = kafka("produce", topic, "--json-lines", stdin=lines)
    assert done.code == 2
    assert f"1 not acknowledged: topic {topic} has no such partition" in done.err
    assert "2 records acknowledged" in done.err
    assert sorted(kafka("consume", topic).text.split()) == ["a", "c"]


@pytest.fixture(scope="module")
def refusing(broker: Broker) -> str:
    """A topic to which nothing is ever written."""
    return broker.create_topic("refused")


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--partition", "9"], "-9 does not exist at 127.0.0.1"),
        (["--partition", "x"], "--partition"),
        (["--header", "novalue"], "KEY=VALUE"),
        (["--rate", "-1"], "--rate"),
        (["--file", "/nowhere/at/all"], "No such file"),
        (["--key-separator", ""], "--key-separator"),
    ],
)
def test_a_wrong_call_says_what_is_wrong(kafka: Run, refusing: str, argv: list[str], says: str) -> None:
    done = kafka("produce", refusing, *argv, stdin=b"x\n")
    assert done.code == 2
    assert says in done.err
    assert "Traceback" not in done.err


def test_a_rate_is_kept(start: Start, kafka: Run, broker: Broker) -> None:
    topic = broker.create_topic("rate")
    done = kafka("produce", topic, "--rate", "50", "--json", stdin=b"x\n" * 26)
    assert done.rows[0]["took_s"] >= 0.5


def test_ctrl_c_stops_reading_and_still_sends_what_was_read(start: Start, kafka: Run, broker: Broker) -> None:
    topic = broker.create_topic("interrupted")
    sending = start("produce", topic)
    assert sending.stdin is not None
    sending.stdin.write(b"one\ntwo\n")
    sending.stdin.flush()
    until(lambda: len(consumed(kafka, topic)) == 2, what="both lines arrived while the input stays open")
    sending.send_signal(signal.SIGINT)
    _, err = sending.communicate(timeout=30)
    assert sending.returncode == 130, err
    assert err.startswith(b"2 records acknowledged")


def test_a_broker_that_does_not_answer_gets_nothing(own_broker: Broker, run: Run) -> None:
    topic = own_broker.create_topic("silent")
    own_broker.stop()
    try:
        done = run("produce", topic, "--bootstrap", own_broker.bootstrap, "--timeout-s", "1", stdin=b"x\n")
        assert done.code == 3
        assert f"Kafka at {own_broker.bootstrap} is unavailable" in done.err
    finally:
        own_broker.cont()


def test_records_that_nobody_acknowledged_are_counted(own_broker: Broker, start: Start) -> None:
    topic = own_broker.create_topic("frozen")
    sending = start("produce", topic, "--bootstrap", own_broker.bootstrap, "--delivery-timeout-s", "8")
    assert sending.stdin is not None
    sending.stdin.write(b"first\n")
    sending.stdin.flush()
    until(lambda: _latest(own_broker, topic) == 1, what="the first record arrived")
    own_broker.stop()
    try:
        _, err = sending.communicate(b"second\nthird\n", timeout=40)
    finally:
        own_broker.cont()
    assert sending.returncode == 5, err
    # The first one's acknowledgement may have been frozen too.
    counted = re.search(
        rb"(\d) not acknowledged: the outcome of sending to topic [^\n]*\n(\d) records? acknowledged", err
    )
    assert counted is not None, err
    assert (int(counted[1]), int(counted[2])) in [(2, 1), (3, 0)]


def _latest(broker: Broker, topic: str) -> int:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

    place = TopicPartition(topic, 0)
    found = broker.admin.list_offsets({place: OffsetSpec.latest()})[place].result(20)  # type: ignore[no-untyped-call]
    return int(found.offset)


def test_a_long_input_has_a_progress_bar_on_a_terminal(start: Start, broker: Broker, tmp_path: Path) -> None:
    topic = broker.create_topic("progress")
    (tmp_path / "lines").write_bytes(b"line\n" * 2_600)
    terminal, shown = pty.openpty()
    sending = start("produce", topic, "--file", str(tmp_path / "lines"), "--rate", "1500", stderr=shown)
    os.close(shown)
    seen = b""
    try:
        while chunk := os.read(terminal, 4_096):
            seen += chunk
    except OSError:  # how Linux says that the other end of a terminal is closed
        pass
    finally:
        os.close(terminal)
    assert sending.wait(30) == 0
    assert "━".encode() in seen
    assert b"2600 records acknowledged" in seen


def test_ten_thousand_lines_through_a_pipe_arrive_once_each(start: Start, kafka: Run, broker: Broker) -> None:
    topic = broker.create_topic("many", partitions=4)
    lines = b"".join(b"%d\n" % number for number in range(10_000))
    sending = start("produce", topic, stderr=subprocess.PIPE)
    _, err = sending.communicate(lines, timeout=60)
    assert sending.returncode == 0, err
    counted = Counter(kafka("consume", topic).out.splitlines())
    assert len(counted) == 10_000
    assert set(counted.values()) == {1}


def test_a_broker_that_crashes_between_loses_and_repeats_nothing(own_broker: Broker, start: Start) -> None:
    topic, address = own_broker.create_topic("crash"), ("--bootstrap", own_broker.bootstrap)
    reading = start("consume", topic, "--follow", "--count", "300", *address)
    sending = start("produce", topic, "--rate", "150", *address)
    assert sending.stdin is not None
    sending.stdin.write(b"".join(b"%d\n" % number for number in range(300)))
    sending.stdin.close()
    assert reading.stdout is not None
    assert reading.stdout.readline() == b"0\n"  # without a broker it would not even begin
    until(lambda: _latest(own_broker, topic) > 50, what="some records arrived")
    own_broker.restart()
    assert sending.wait(60) == 0
    assert reading.stdout.read().split() == [b"%d" % number for number in range(1, 300)]
    assert reading.wait(30) == 0
