"""Apache Kafka from its jars: it starts, answers its own tools, and stops; jars are fetched once."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.support import maven
from tests.support.apache_kafka import ApacheKafka, java_argv, kafka_tool

from holdfast.vocabulary.errors import UnavailableError

PRETENDING_MVN = """#!/bin/sh
for each in "$@"; do case "$each" in -DoutputDirectory=*) out="${each#*=}";; esac; done
echo run >> "$(dirname "$0")/runs"
[ -e "$(dirname "$0")/offline" ] && echo "[ERROR] no way to the repository" && exit 1
mkdir -p "$out" && touch "$out/one.jar"
"""


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    broker = ApacheKafka(tmp_path_factory.mktemp("kafka"), config={"num.partitions": "3"})
    try:
        java_argv("kafka.Kafka")
    except UnavailableError as missing:
        pytest.skip(f"Apache Kafka cannot be had: {missing}")
    with broker.running():
        yield broker


@pytest.fixture
def mvn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an mvn that makes one jar of nothing and counts its runs."""
    program = tmp_path / "bin" / "mvn"
    program.parent.mkdir()
    program.write_text(PRETENDING_MVN)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    monkeypatch.setattr(maven, "_failed", {})
    return program.parent


@pytest.mark.long
@pytest.mark.timeout(600)  # the first run on a machine fetches the jars
def test_what_its_console_producer_writes_its_console_consumer_reads(kafka: ApacheKafka) -> None:
    wrote = kafka_tool(
        "ConsoleProducer", "--bootstrap-server", kafka.bootstrap, "--topic", "greetings", stdin="hello\nworld\n"
    )
    assert wrote.exit_code == 0, wrote.stderr
    read = kafka_tool(
        "ConsoleConsumer", "--bootstrap-server", kafka.bootstrap, "--topic", "greetings",
        "--from-beginning", "--max-messages", "2", "--timeout-ms", "20000",
    )  # fmt: skip
    assert sorted(read.stdout.split()) == ["hello", "world"], read.stderr
    described = kafka_tool("TopicCommand", "--bootstrap-server", kafka.bootstrap, "--describe", "--topic", "greetings")
    assert "PartitionCount: 3" in described.stdout


@pytest.mark.long  # a JVM of its own; tests/clients/test_java_tools.py and tests/pipeline/driver/test_external_kafka.py run these
def test_a_tool_with_invalid_arguments_fails_with_its_message(kafka: ApacheKafka) -> None:
    done = kafka_tool("TopicCommand", "--bootstrap-server", kafka.bootstrap, "--describe", "--topic", "nowhere")
    assert done.exit_code != 0
    assert "nowhere" in done.stdout + done.stderr


def test_jars_are_fetched_once_however_many_ask_at_once(mvn: Path, tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as askers:
        asked = [askers.submit(maven.fetch_jars, "some", ["a:b:1"], cache=tmp_path) for _ in range(4)]
    assert [each.result() for each in asked] == [[tmp_path / "some" / "one.jar"]] * 4
    assert (mvn / "runs").read_text() == "run\n"


def test_jars_of_other_artifacts_under_the_same_name_are_fetched_again(mvn: Path, tmp_path: Path) -> None:
    maven.fetch_jars("some", ["a:b:1"], cache=tmp_path)
    maven.fetch_jars("some", ["a:b:2"], cache=tmp_path)
    assert (mvn / "runs").read_text() == "run\nrun\n"


def test_offline_the_reason_is_reported_and_cached(mvn: Path, tmp_path: Path) -> None:
    (mvn / "offline").touch()
    for _ in range(2):
        with pytest.raises(UnavailableError, match="no way to the repository"):
            maven.fetch_jars("some", ["a:b:1"], cache=tmp_path)
    assert (mvn / "runs").read_text() == "run\n"
    assert not (tmp_path / "some").exists()


def test_without_mvn_the_reason_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(maven, "_failed", {})
    with pytest.raises(UnavailableError, match="no program mvn"):
        maven.fetch_jars("some", ["a:b:1"], cache=tmp_path)
