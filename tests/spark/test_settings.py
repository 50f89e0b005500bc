"""Settings: what is refused, which properties Spark gets, and that no secret is shown or given as an argument."""

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.spark.settings import SparkSettings, properties, sql_properties
from holdfast.spark.spark_session import to_java_properties
from holdfast.vocabulary.errors import InvalidError

SCRATCH = Path("/scratch")


@pytest.mark.parametrize(
    "given",
    [
        {"master": "local[0]"},
        {"master": "http://host:7077"},
        {"master": ""},
        {"remote": "http://host:15002"},
        {"driver_memory": "much"},
        {"java": "openjdk"},
        {"conf": {"sql.shuffle.partitions": "1"}},
    ],
)
def test_wrong_settings_are_refused(given: dict[str, str]) -> None:
    with pytest.raises(InvalidError):
        SparkSettings(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "master",
    ["local", "local[4]", "local[*]", "local[*, 3]", "spark://a:7077,b:7077", "yarn", "k8s://https://host:6443"],
)
def test_every_kind_of_master_is_accepted(master: str) -> None:
    assert properties(SparkSettings(master=master), scratch=SCRATCH)["spark.master"] == master


def test_only_a_local_engine_is_bound_to_loopback() -> None:
    local = properties(SparkSettings(), scratch=SCRATCH)
    assert local["spark.driver.bindAddress"] == "127.0.0.1"
    assert "-XX:+UseSerialGC" in local["spark.driver.extraJavaOptions"]
    cluster = properties(SparkSettings(master="spark://host:7077"), scratch=SCRATCH)
    assert "spark.driver.bindAddress" not in cluster
    assert "-XX:+UseSerialGC" not in cluster["spark.driver.extraJavaOptions"]


def test_executors_with_a_python_of_their_own_do_not_get_the_drivers_source() -> None:
    ours = properties(SparkSettings(master="spark://host:7077"), scratch=SCRATCH)
    assert ours["spark.pyspark.python"] == sys.executable
    assert "spark.archives" not in ours
    settings = SparkSettings(master="yarn", executor_python="./env/bin/python", archives="env.tar.gz#env")
    theirs = properties(settings, scratch=SCRATCH)
    assert (theirs["spark.pyspark.python"], theirs["spark.archives"]) == ("./env/bin/python", "env.tar.gz#env")
    assert "spark.executorEnv.PYTHONPATH" not in theirs


def test_the_operators_conf_overrides_ours() -> None:
    conf = {
        "spark.ui.enabled": "true",
        "spark.sql.session.timeZone": "Europe/Berlin",
        "spark.driver.extraJavaOptions": "-Dmine=1",
        "spark.hadoop.x": "y",
    }
    found = properties(SparkSettings(conf=conf), scratch=SCRATCH)
    assert (found["spark.ui.enabled"], found["spark.hadoop.x"]) == ("true", "y")
    assert found["spark.sql.session.timeZone"] == "Europe/Berlin"
    assert found["spark.driver.extraJavaOptions"].endswith("-Dmine=1")
    assert "log4j2" in found["spark.driver.extraJavaOptions"]
    remote = sql_properties(SparkSettings(remote="sc://host:15002", conf=conf))
    assert remote["spark.sql.session.timeZone"] == "Europe/Berlin"
    assert "spark.ui.enabled" not in remote


def test_secrets_are_not_shown_and_settings_are_pickled() -> None:
    settings = SparkSettings(conf={"spark.hadoop.secret": "hunter2"}, remote="sc://host:1/;token=hunter2")
    assert "hunter2" not in repr(settings)
    assert pickle.loads(pickle.dumps(settings)) == settings
    with pytest.raises(InvalidError) as refused:
        SparkSettings(remote="x://host/;token=hunter2")
    assert "hunter2" not in str(refused.value)


def test_properties_are_written_as_java_reads_them() -> None:
    assert to_java_properties({"spark.a": " x=1:2\\n\n#!"}) == "spark.a=\\ x\\=1\\:2\\\\n\\n\\#\\!\n"


def test_without_pyspark_the_extra_is_named() -> None:
    code = (
        "import sys; sys.modules['pyspark'] = None\n"
        "from holdfast.spark.spark_session import session\n"
        "from holdfast.vocabulary.errors import UnavailableError\n"
        "try: session()\n"
        "except UnavailableError as missing: print(missing)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install '.[spark]'" in done.stdout


def test_a_required_java_that_is_missing_is_named(tmp_path: Path) -> None:
    """In a process of its own: here a session may run already."""
    code = (
        "from holdfast.spark.spark_session import session\n"
        "from holdfast.spark.settings import SparkSettings\n"
        "from holdfast.vocabulary.errors import UnavailableError\n"
        "try: session(SparkSettings(java='system'))\n"
        "except UnavailableError as missing: print(missing)\n"
    )
    bare = {"PATH": str(tmp_path), "HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=bare)
    assert "Java 17 or newer is unavailable: JAVA_HOME is not set and there is no java on the PATH" in done.stdout
