"""`holdfast topic` as a person or a script uses it, on a real broker."""

import os
import pty
import socket
import subprocess
import sys

import pytest
from confluent_kafka import KafkaError
from tests.support.broker import Broker
from tests.support.command_line import Run, Start

from holdfast.cli.output import exit_code
from holdfast.client.addresses import Bootstrap
from holdfast.client.kafka_errors import to_holdfast_error
from holdfast.vocabulary.clock import RealClock

ADDRESS = Bootstrap(servers="kafka.example:9092")


def test_a_topic_is_created_listed_described_and_deleted(kafka: Run, broker: Broker) -> None:
    name = broker.unique("orders")
    created = kafka("topic", "create", name, "--partitions", "3", "--config", "retention.ms=7200000")
    assert (created.code, created.text) == (0, f"{name} created with 3 partitions\n"), created.err
    listed = kafka("topic", "list", "--json")
    assert [row["partitions"] for row in listed.rows if row["name"] == name] == [3]
    assert name in kafka("topic", "list").text
    kafka("produce", name, "--partition", "1", stdin=b"a\nb\n")
    (shown,) = kafka("topic", "describe", name, "--json").rows
    assert shown["config"] == {"retention.ms": "7200000"}
    rows = shown["partitions"]
    assert [row["partition"] for row in rows] == [0, 1, 2]
    assert [(row["earliest"], row["latest"], row["records"]) for row in rows] == [(0, 0, 0), (0, 2, 2), (0, 0, 0)]
    assert {row["leader_address"] for row in rows} == {broker.bootstrap}
    assert all(row["epoch"] is not None for row in rows)
    table = kafka("topic", "describe", name).text
    assert "2 records; set on this topic: retention.ms=7200000" in table
    assert kafka("topic", "delete", name, "--yes").text == f"{name} deleted\n"
    assert name not in [row["name"] for row in kafka("topic", "list", "--json").rows]


def test_partitions_are_added_and_never_removed(kafka: Run, broker: Broker) -> None:
    name = broker.create_topic("grown")
    assert kafka("topic", "alter", name, "--partitions", "3").text == f"{name} has 3 partitions\n"
    (shown,) = kafka("topic", "describe", name, "--json").rows
    assert [row["partition"] for row in shown["partitions"]] == [0, 1, 2]
    assert kafka("topic", "alter", name, "--partitions", "4", "--json").rows == [{"name": name, "partitions": 4}]
    for count, says in (("4", "already has 4"), ("2", "would not be an increase")):
        refused = kafka("topic", "alter", name, "--partitions", count)
        assert refused.code == 2
        assert says in refused.err


def test_creating_what_exists_is_refused_unless_it_may(kafka: Run, broker: Broker) -> None:
    name = broker.create_topic("twice")
    again = kafka("topic", "create", name, "--partitions", "1")
    assert again.code == 2
    assert again.err == f"holdfast: topic {name} exists already at {broker.bootstrap}\n"
    assert kafka("topic", "create", name, "--partitions", "1", "--if-not-exists").text == f"{name} exists already\n"


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["create", "sp ace", "--partitions", "1"], "topic sp ace has a name that is not allowed"),
        (["create", "fine", "--partitions", "0"], "--partitions"),
        (["create", "fine", "--partitions", "1", "--config", "retention.ms=soon"], "retention.ms"),
        (["create", "fine", "--partitions", "1", "--config", "no.such.setting=1"], "no.such.setting"),
        (["create", "fine", "--partitions", "1", "--config", "novalue"], "KEY=VALUE"),
        (["describe", "missing-topic"], "topic missing-topic does not exist at 127.0.0.1"),
        (["config", "missing-topic"], "topic missing-topic does not exist at 127.0.0.1"),
        (["alter", "missing-topic", "--partitions", "3"], "topic missing-topic does not exist at 127.0.0.1"),
        (["alter", "fine", "--partitions", "0"], "--partitions"),
        (["alter", "fine"], "nothing to change: give --partitions or --replication-factor"),
        (["alter", "fine", "--replication-factor", "0"], "--replication-factor"),
        (["alter", "fine", "--partitions", "100001"], "--partitions"),
        (["create", "fine", "--partitions", "100001"], "--partitions"),
        (["delete", "missing-topic", "--yes"], "topic missing-topic does not exist at 127.0.0.1"),
        (["list", "--bootstrap", "127.0.0.1:notaport"], "host:port"),
        (["list", "--timeout-s", "0"], "--timeout-s"),
        (["list", "-X", "no.such.property=1"], "no.such.property"),
    ],
)
def test_a_wrong_call_says_what_is_wrong(kafka: Run, argv: list[str], says: str) -> None:
    done = kafka("topic", *argv)
    assert done.code == 2
    assert says in done.err
    assert "Traceback" not in done.err


def test_settings_are_shown_changed_and_taken_back(kafka: Run, broker: Broker) -> None:
    name = broker.create_topic("settings")

    def shown() -> dict[str, dict[str, object]]:
        return {str(row["name"]): row for row in kafka("topic", "config", name, "--json").rows}

    before = shown()
    assert before["cleanup.policy"]["value"] == "delete"
    assert before["cleanup.policy"]["source"] == "default"
    changed = kafka(
        "topic", "config", name, "--set", "cleanup.policy=compact", "--set", "retention.ms=5000000", "--json"
    )
    assert {row["name"]: row["value"] for row in changed.rows} == {
        "cleanup.policy": "compact",
        "retention.ms": "5000000",
    }, changed.err
    assert shown()["cleanup.policy"] | {"default": "delete"} == {
        "name": "cleanup.policy",
        "value": "compact",
        "source": "topic",
        "default": "delete",
        "read_only": False,
    }
    back = kafka("topic", "config", name, "--unset", "cleanup.policy")
    assert "delete" in back.text
    assert shown()["cleanup.policy"]["value"] == "delete"
    assert shown()["retention.ms"]["value"] == "5000000"  # what was not named stayed
    wrong = kafka("topic", "config", name, "--set", "cleanup.policy=burn")
    assert wrong.code == 2
    assert "cleanup.policy" in wrong.err
    both = kafka("topic", "config", name, "--set", "retention.ms=1", "--unset", "retention.ms")
    assert both.code == 2


def test_deleting_without_a_terminal_needs_a_yes(kafka: Run, broker: Broker) -> None:
    name = broker.create_topic("kept")
    done = kafka("topic", "delete", name)
    assert done.code == 2
    assert "--yes" in done.err
    assert kafka("topic", "describe", name).code == 0


@pytest.mark.parametrize(("answer", "gone"), [(b"n\n", False), (b"yes\n", True)])
def test_on_a_terminal_it_asks(kafka: Run, start: Start, broker: Broker, answer: bytes, gone: bool) -> None:
    name = broker.create_topic("asked")
    terminal, given = pty.openpty()
    try:
        asked = start("topic", "delete", name, stdin=given)
        os.write(terminal, answer)
        out, err = asked.communicate(timeout=30)
    finally:
        os.close(terminal)
        os.close(given)
    assert asked.returncode == 0, err
    assert f"Delete {name} at {broker.bootstrap} with all records? [y/N]".encode() in out
    names = [row["name"] for row in kafka("topic", "list", "--json").rows]
    assert (name not in names) == gone


def test_each_topic_to_delete_has_its_own_outcome(kafka: Run, broker: Broker) -> None:
    name = broker.create_topic("deleted")
    done = kafka("topic", "delete", "not-there", name, "--yes")
    assert done.code == 2
    assert done.text == f"{name} deleted\n"
    assert "topic not-there does not exist" in done.err


def test_an_address_where_nothing_listens_fails_at_once_and_says_how_to_start_a_server(run: Run) -> None:
    clock = RealClock()
    began_ms = clock.boot_ms()
    done = run("topic", "list", "--bootstrap", "127.0.0.1:1", "--timeout-s", "60")
    assert done.code == 3
    assert "Kafka at 127.0.0.1:1 is unavailable: connection refused; start a server with `holdfast serve`" in done.err
    assert clock.boot_ms() - began_ms < 60_000, "not the whole timeout"


def test_a_listener_that_never_answers_is_named_too(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        done = run("topic", "create", "orders", "--partitions", "1", "--bootstrap", address, "--timeout-s", "1")
    assert done.code == 3
    assert f"Kafka at {address} is unavailable: no answer within 1 s" in done.err


@pytest.mark.parametrize(
    ("code", "exits", "says"),
    [
        (KafkaError._TRANSPORT, 3, "kafka.example:9092 is unavailable"),
        (KafkaError.COORDINATOR_NOT_AVAILABLE, 3, "kafka.example:9092 is unavailable"),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, 2, "thing x does not exist at kafka.example:9092"),
        (KafkaError.NON_EMPTY_GROUP, 2, "thing x has active members: stop them first"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, 2, "TOPIC_AUTHORIZATION_FAILED"),
        (KafkaError._MSG_TIMED_OUT, 5, "the outcome of sending to thing x is unknown"),
        (KafkaError.ILLEGAL_GENERATION, 6, "membership in thing x has ended"),
        (KafkaError.INVALID_MSG, 4, "thing x is corrupt"),
    ],
)
def test_what_a_broker_reports_becomes_a_sentence_and_a_code(code: int, exits: int, says: str) -> None:
    error = to_holdfast_error(KafkaError(code), "thing", "x", ADDRESS)
    assert exit_code(error) == exits
    assert says in str(error)


def test_a_change_without_an_answer_is_of_unknown_outcome(own_broker: Broker, run: Run) -> None:
    from holdfast.client.librdkafka import KafkaClient

    connection = KafkaClient(Bootstrap(servers=own_broker.bootstrap, timeout_s=1))
    own_broker.stop()
    try:
        from holdfast.client.admin.topics import delete_topics

        error = delete_topics(connection, ["orders"])["orders"]
    finally:
        own_broker.cont()
    assert error is not None
    assert exit_code(error) == 5
    assert "the outcome of deleting topic orders is unknown" in str(error)


def test_help_and_other_commands_do_not_pay_for_the_client() -> None:
    asks = "import sys; from holdfast.cli.main import build_parser; build_parser(); sys.exit('confluent_kafka' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", asks], timeout=30).returncode == 0


@pytest.mark.parametrize(
    "command",
    [
        ["topic", "create"],
        ["topic", "list"],
        ["topic", "describe"],
        ["topic", "delete"],
        ["topic", "config"],
        ["produce"],
        ["consume"],
        ["group", "list"],
        ["group", "describe"],
        ["group", "reset"],
        ["group", "delete"],
    ],
)
def test_each_commands_help_has_examples(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    from holdfast.cli.main import main

    with pytest.raises(SystemExit) as ended:
        main([*command, "--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert f"examples:\n  {'' if command == ['produce'] else 'holdfast ' + ' '.join(command)}" in text
    assert "--bootstrap" in text
