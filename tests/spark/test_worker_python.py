"""A plain SparkSession finds `format("holdfast")`, also in an interpreter that is called by its path and not activated."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.support.broker import Broker
from tests.support.installed_python import environment_without_python, install_python
from tests.support.spark_topics import numbered, send

from _holdfast_pyspark import wants_driver_python

ANSWER_TIMEOUT_S = 200  # a busy machine is no defect
PLAIN_JOB = """
import os
import sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
rows = spark.read.format("holdfast").option("bootstrap", sys.argv[1]).option("topics", sys.argv[2]).load()
print("ANSWER", rows.count(), flush=True)
print("LEFT", os.environ.get("PYSPARK_PYTHON"), flush=True)
"""
START_WITHOUT_JVM = """
import os
import sys
from pyspark import SparkContext

assert "holdfast" not in sys.modules
SparkContext._ensure_initialized = lambda *args, **kwargs: print("DURING", os.environ.get("PYSPARK_PYTHON"))
SparkContext._do_init = lambda *args, **kwargs: None
SparkContext(sys.argv[1])
print("AFTER", os.environ.get("PYSPARK_PYTHON"))
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install_python(tmp_path_factory.mktemp("installed") / "env")


def run_plain_job(python: Path, broker: Broker, topic: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, "-c", PLAIN_JOB, broker.bootstrap, topic],
        env={**environment_without_python(), **more},
        capture_output=True,
        text=True,
        timeout=ANSWER_TIMEOUT_S,
    )


@pytest.mark.parametrize(("master", "workers_are_the_drivers"), [("local[2]", True), ("spark://host:7077", False)])
def test_while_a_local_context_starts_its_workers_python_is_the_drivers(
    master: str, workers_are_the_drivers: bool, python: Path
) -> None:
    argv = [str(python), "-c", START_WITHOUT_JVM, master]
    done = subprocess.run(argv, env=environment_without_python(), capture_output=True, text=True, timeout=60)
    during = python if workers_are_the_drivers else None
    assert done.stdout.splitlines() == [f"DURING {during}", "AFTER None"], done.stderr[-3_000:]


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(400)
def test_an_installed_holdfast_is_found_without_activation_or_import(python: Path, broker: Broker) -> None:
    topic = broker.create_topic("plain")
    send(broker, topic, numbered(100))
    done = run_plain_job(python, broker, topic)
    assert done.stdout.splitlines() == ["ANSWER 100", "LEFT None"], done.stderr[-3_000:]


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(400)
def test_the_hook_can_be_turned_off(python: Path, broker: Broker) -> None:
    """Then it is as it was before: Spark asks another Python, which has no Holdfast, or no PySpark."""
    topic = broker.create_topic("off")
    assert "ANSWER" not in run_plain_job(python, broker, topic, HOLDFAST_NO_PYSPARK_HOOK="1").stdout


@pytest.mark.parametrize(
    ("master", "environment", "wanted"),
    [
        ("local[2]", {}, True),
        ("", {}, True),
        ("local-cluster[2,1,512]", {}, True),
        ("local[2]", {"SPARK_HOME": "/opt/spark"}, True),
        ("", {"SPARK_HOME": "/opt/spark"}, False),
        ("", {"SPARK_CONF_DIR": "/etc/spark"}, False),
        ("spark://host:7077", {}, False),
        ("yarn", {}, False),
        ("k8s://https://host", {}, False),
        ("", {"MASTER": "yarn"}, False),
        ("", {"PYSPARK_SUBMIT_ARGS": "--master yarn pyspark-shell"}, False),
        ("", {"PYSPARK_SUBMIT_ARGS": "--master=local[4] pyspark-shell"}, True),
        ("", {"PYSPARK_SUBMIT_ARGS": "--conf spark.master=yarn pyspark-shell"}, False),
        ("", {"PYSPARK_SUBMIT_ARGS": "--properties-file /x pyspark-shell"}, False),
        ("local", {"PYSPARK_PYTHON": "/usr/bin/python3"}, False),
        ("local", {"PYSPARK_GATEWAY_PORT": "1"}, False),
        ("local", {"HOLDFAST_NO_PYSPARK_HOOK": "1"}, False),
    ],
)
def test_only_local_sessions_that_nobody_set_get_the_drivers_python(
    master: str, environment: Mapping[str, str], wanted: bool
) -> None:
    assert wants_driver_python(master, environment) is wanted
