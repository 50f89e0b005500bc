"""Apache Kafka's own command line tools, run in one JVM: console, topics, settings, groups, offsets, perf."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.apache_kafka import ToolRun, kafka_tool
from tests.support.broker import Broker
from tests.support.clients.java import runner
from tests.support.librdkafka_client import producer
from tests.support.waiting import until

from holdfast.vocabulary.errors import UnavailableError

Tool = Callable[..., str]


@pytest.fixture(scope="session")
def tools() -> Iterator[runner.Tools]:
    try:
        started = runner.Tools()
    except UnavailableError as missing:
        pytest.skip(str(missing))
    yield started
    started.close()


@pytest.fixture
def tool(broker: Broker, tools: runner.Tools) -> Tool:
    """Runs a tool against the broker and returns what it printed; `fails` where it should end with an error."""

    def run(name: str, *args: str, stdin: str = "", fails: bool = False) -> str:
        return judged(name, tools.run(name, "--bootstrap-server", broker.bootstrap, *args, stdin=stdin), fails=fails)

    return run


def judged(name: str, done: ToolRun, *, fails: bool = False) -> str:
    assert (done.exit_code != 0) is fails, f"{name} ended with {done.exit_code}: {done.stdout}{done.stderr}"
    return done.stdout + done.stderr if fails else done.stdout


def fill(broker: Broker, topic: str, count: int, *, partition: int = 0) -> None:
    client = producer(broker)
    for number in range(count):
        client.produce(topic, b"%d" % number, partition=partition, timestamp=1_700_000_000_000 + number)
    assert client.flush(30) == 0


def test_the_console_producer_and_consumer_carry_keys_headers_and_nulls(broker: Broker, tool: Tool) -> None:
    topic = broker.create_topic("console", 1)
    sent = "a:1,b:2\tkey\tvalue\na:3\tNONE\tno key\na:4\tgone\tNONE\n"
    parsing = ["parse.key=true", "parse.headers=true", "null.marker=NONE"]
    tool("ConsoleProducer", "--topic", topic, *reader_properties(parsing), stdin=sent)
    shown = ["print.key", "print.headers", "print.partition", "print.offset", "print.timestamp"]
    settings = [f"{name}=true" for name in shown] + ["null.literal=NONE"]
    read = tool(
        "ConsoleConsumer", "--topic", topic, "--from-beginning", "--max-messages", "3", *formatter_properties(settings)
    )
    lines = [re.sub(r"CreateTime:\d{13}", "CreateTime:now", line) for line in read.splitlines()]
    assert lines == [
        "CreateTime:now\tPartition:0\tOffset:0\ta:1,b:2\tkey\tvalue",
        "CreateTime:now\tPartition:0\tOffset:1\ta:3\tNONE\tno key",
        "CreateTime:now\tPartition:0\tOffset:2\ta:4\tgone\tNONE",
    ]


@pytest.mark.long  # in one JVM, the same is above
def test_the_console_pair_runs_as_processes_of_their_own(broker: Broker) -> None:
    topic = broker.create_topic("console", 1)
    at = ["--bootstrap-server", broker.bootstrap, "--topic", topic]
    try:
        judged("ConsoleProducer", kafka_tool("ConsoleProducer", *at, stdin="one\ntwo\n"))
    except UnavailableError as missing:
        pytest.skip(str(missing))
    read = kafka_tool("ConsoleConsumer", *at, "--from-beginning", "--max-messages", "2")
    assert judged("ConsoleConsumer", read).split() == ["one", "two"]


def reader_properties(settings: list[str]) -> list[str]:
    return [word for each in settings for word in ("--reader-property", each)]


def formatter_properties(settings: list[str]) -> list[str]:
    return [word for each in settings for word in ("--formatter-property", each)]


def test_the_console_consumer_reads_one_partition_from_an_offset_and_a_group_goes_on(
    broker: Broker, tool: Tool
) -> None:
    topic = broker.create_topic("console", 2)
    fill(broker, topic, 10, partition=1)
    chosen = tool("ConsoleConsumer", "--topic", topic, "--partition", "1", "--offset", "7", "--max-messages", "3")
    assert chosen.split() == ["7", "8", "9"]
    group = broker.unique("console")
    reading = ["ConsoleConsumer", "--topic", topic, "--group", group, "--from-beginning", "--max-messages"]
    assert tool(*reading, "4").split() == ["0", "1", "2", "3"]
    assert tool(*reading, "6").split() == ["4", "5", "6", "7", "8", "9"]


# Every compression of the Java producer is in test_java.py.
@pytest.mark.parametrize(
    "compression", ["zstd", *(pytest.param(each, marks=pytest.mark.long) for each in ("gzip", "snappy", "lz4"))]
)
def test_the_console_producer_compresses(broker: Broker, tool: Tool, compression: str) -> None:
    topic = broker.create_topic("console", 1)
    lines = "".join(f"line {number}\n" for number in range(200))
    tool("ConsoleProducer", "--topic", topic, "--compression-codec", compression, stdin=lines)
    assert tool("ConsoleConsumer", "--topic", topic, "--from-beginning", "--max-messages", "200") == lines


def test_topics_are_created_listed_described_and_deleted(broker: Broker, tool: Tool) -> None:
    topic = broker.unique("tools")
    tool("TopicCommand", "--create", "--topic", topic, "--partitions", "3", "--config", "retention.ms=3600000")
    assert topic in tool("TopicCommand", "--list").split()
    described = tool("TopicCommand", "--describe", "--topic", topic)
    assert "PartitionCount: 3" in described
    assert "retention.ms=3600000" in described
    assert len(re.findall(r"Partition: \d+\s+Leader: \d+", described)) == 3
    again = tool("TopicCommand", "--create", "--topic", topic, fails=True)
    assert "already exists" in again
    tool("TopicCommand", "--create", "--topic", topic, "--if-not-exists")
    tool("TopicCommand", "--delete", "--topic", topic)
    until(lambda: topic not in broker.admin.list_topics(timeout=10).topics, what="the topic is gone")


def test_settings_of_a_topic_are_altered_and_described(broker: Broker, tool: Tool) -> None:
    topic = broker.create_topic("tools")
    entity = ["--entity-type", "topics", "--entity-name", topic]
    tool("ConfigCommand", *entity, "--alter", "--add-config", "retention.ms=7200000,cleanup.policy=[compact,delete]")
    described = tool("ConfigCommand", *entity, "--describe")
    assert "retention.ms=7200000" in described
    assert "cleanup.policy=compact,delete" in described
    tool("ConfigCommand", *entity, "--alter", "--delete-config", "retention.ms")
    assert "retention.ms" not in tool("ConfigCommand", *entity, "--describe")
    assert "max.message.bytes" in tool("ConfigCommand", *entity, "--describe", "--all")


def test_a_group_is_listed_described_reset_and_deleted(broker: Broker, tool: Tool) -> None:
    topic = broker.create_topic("tools", 1)
    fill(broker, topic, 10)
    group = broker.unique("tools")
    tool("ConsoleConsumer", "--topic", topic, "--group", group, "--from-beginning", "--max-messages", "4")
    assert group in tool("ConsumerGroupCommand", "--list").split()
    assert offsets(tool("ConsumerGroupCommand", "--describe", "--group", group), topic) == ("4", "10", "6")
    assert "Empty" in tool("ConsumerGroupCommand", "--describe", "--group", group, "--state")
    reset = ["ConsumerGroupCommand", "--reset-offsets", "--group", group, "--topic", topic, "--execute"]
    tool(*reset, "--to-earliest")
    assert offsets(tool("ConsumerGroupCommand", "--describe", "--group", group), topic) == ("0", "10", "10")
    tool(*reset, "--to-datetime", "2023-11-14T22:13:20.007+00:00")  # the time of the eighth record
    assert offsets(tool("ConsumerGroupCommand", "--describe", "--group", group), topic) == ("7", "10", "3")
    tool("ConsumerGroupCommand", "--delete", "--group", group)
    assert group not in tool("ConsumerGroupCommand", "--list").split()


def offsets(described: str, topic: str) -> tuple[str, str, str]:
    """Committed offset, end and lag of the only partition."""
    (line,) = [line.split() for line in described.splitlines() if topic in line]
    return line[3], line[4], line[5]


def test_offsets_are_listed_by_time(broker: Broker, tool: Tool) -> None:
    topic = broker.create_topic("tools", 2)
    fill(broker, topic, 10, partition=1)
    for asked, expected in [("latest", 10), ("earliest", 0), ("max-timestamp", 9), ("1700000000004", 4)]:
        found = tool("GetOffsetShell", "--topic", topic, "--time", asked).split()
        assert f"{topic}:1:{expected}" in found


def test_records_before_an_offset_are_deleted(broker: Broker, tool: Tool, tmp_path: Path) -> None:
    topic = broker.create_topic("tools", 1)
    fill(broker, topic, 10)
    plan = tmp_path / "delete.json"
    plan.write_text(json.dumps({"partitions": [{"topic": topic, "partition": 0, "offset": 6}], "version": 1}))
    assert "low_watermark: 6" in tool("DeleteRecordsCommand", "--offset-json-file", str(plan))
    left = tool("ConsoleConsumer", "--topic", topic, "--from-beginning", "--max-messages", "4")
    assert left.split() == ["6", "7", "8", "9"]


def test_the_folders_of_a_broker_are_described(broker: Broker, tool: Tool) -> None:
    topic = broker.create_topic("tools", 1)
    fill(broker, topic, 10)
    told = tool("LogDirsCommand", "--describe", "--topic-list", topic).splitlines()
    described = json.loads(next(line for line in told if line.startswith("{")))
    partitions = [each for node in described["brokers"] for folder in node["logDirs"] for each in folder["partitions"]]
    assert [each["partition"] for each in partitions] == [f"{topic}-0"]
    assert partitions[0]["size"] > 0


def test_the_versions_of_a_broker_are_listed(tool: Tool) -> None:
    told = tool("BrokerApiVersionsCommand")
    for api in ("Produce(0)", "Fetch(1)", "ListOffsets(2)", "Metadata(3)", "JoinGroup(11)", "InitProducerId(22)"):
        assert f"{api}: " in told
        assert f"{api}: UNSUPPORTED" not in told


def test_the_perf_tools_write_and_read(broker: Broker, tool: Tool) -> None:
    topic = broker.create_topic("perf", 3)
    written = tool(
        *["ProducerPerformance", "--topic", topic, "--num-records", "50000", "--record-size", "100"],
        *["--throughput", "-1", "--command-property", "linger.ms=5", "--command-property", "compression.type=lz4"],
    )
    assert "50000 records sent" in written
    read = tool("ConsumerPerformance", "--topic", topic, "--num-records", "50000", "--group", broker.unique("perf"))
    header, figures = [line.split(", ") for line in read.splitlines()][-2:]
    assert dict(zip(header, figures, strict=True))["data.consumed.in.nMsg"] == "50000"
