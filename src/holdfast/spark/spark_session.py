"""One Spark session per process, started as the settings say.

The one rule: `session` never hands out a session of another engine than was asked for. It does not decide where work
runs and knows nothing of topics.
"""

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.spark.java import find_java
from holdfast.spark.settings import LOOPBACK, SparkSettings, properties, sql_properties
from holdfast.spark.spark_home import unzipped_spark_home
from holdfast.vocabulary.errors import InvalidError, UnavailableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def session(settings: SparkSettings | None = None, *, app_name: str = "holdfast") -> "SparkSession":
    """The session of this process; started if there is none. `session().stop()` ends it.

    Raises UnavailableError where PySpark or Java is missing, InvalidError where a session with another engine is running.
    """
    settings = settings if settings is not None else SparkSettings()
    require_pyspark()
    return _connect_session(settings) if settings.remote else _driver_session(settings, app_name)


def require_pyspark() -> None:
    """Say what to install where PySpark, or what it needs, is missing."""
    try:
        import pandas  # type: ignore[import-untyped]  # noqa: F401
        import pyarrow  # noqa: F401
        import pyspark.sql  # noqa: F401
    except ModuleNotFoundError as missing:
        raise UnavailableError(
            "Spark", f"there is no module {missing.name}; install it with pip install 'holdfast[spark]'"
        ) from missing


def _connect_session(settings: SparkSettings) -> "SparkSession":
    from pyspark.sql import SparkSession

    try:
        import grpc  # noqa: F401
        from pyspark.sql.connect.session import SparkSession as _  # noqa: F401
    except ImportError as missing:
        raise UnavailableError(
            "Spark Connect", f"{missing}; install it with pip install 'holdfast[spark]'"
        ) from missing
    running = _running_master()
    if running is not None:
        raise InvalidError("Spark remote", "another engine", f"master {running}, whose session runs in this process")
    connected = SparkSession.builder.remote(settings.remote).getOrCreate()
    for name, value in sql_properties(settings).items():
        connected.conf.set(name, value)
    return connected


def _driver_session(settings: SparkSettings, app_name: str) -> "SparkSession":
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    running = _running_master()
    if running is not None and running != settings.master:
        raise InvalidError("Spark master", settings.master, f"{running}, whose session runs in this process")
    if running is not None:
        return SparkSession.builder.getOrCreate()
    scratch = Path(tempfile.mkdtemp(prefix="holdfast-spark-"))
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    given = {**properties(settings, scratch=scratch), "spark.app.name": app_name}
    with _patched_environ(_launch_environment(settings, given, scratch)):
        if SparkContext._gateway is None:
            return SparkSession.builder.getOrCreate()
        return SparkSession.builder.config(
            map={**given}
        ).getOrCreate()  # the JVM of an earlier session: it reads no file


def _running_master() -> str | None:
    from pyspark import SparkContext

    running = SparkContext._active_spark_context
    return running.master if running is not None else None


def _launch_environment(settings: SparkSettings, given: Mapping[str, str], scratch: Path) -> dict[str, str]:
    """What Spark's launcher is told. Settings go by a private file: an argument is for every user of the machine to see."""
    file = scratch / "spark.properties"
    file.touch(mode=0o600)
    file.write_text(to_java_properties(given), encoding="utf-8")
    environment = os.environ  # noqa: TID251 (JAVA_HOME, SPARK_HOME and PATH are not ours)
    java = find_java(settings.java, environment=environment)
    told = {
        "JAVA_HOME": str(java.home),
        "PYSPARK_PYTHON": settings.executor_python,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": f"--properties-file {file} pyspark-shell",
    }
    if settings.local:
        told |= {"SPARK_LOCAL_IP": LOOPBACK, "SPARK_LOCAL_DIRS": str(scratch / "local")}
        if settings.executor_python == sys.executable and (home := unzipped_spark_home(environment)) is not None:
            told["SPARK_HOME"] = str(home)
    return told


@contextmanager
def _patched_environ(told: Mapping[str, str]) -> Iterator[None]:
    """Set these variables for the body: the launcher takes them from nowhere else, and no later child shall have them."""
    environment = os.environ  # noqa: TID251 (written for a child, and put back)
    before = {name: environment.get(name) for name in told}
    environment.update(told)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                environment.pop(name, None)
            else:
                environment[name] = value


def to_java_properties(values: Mapping[str, str]) -> str:
    """`values` in the format of a Java properties file."""
    return "".join(f"{_escape_property(name)}={_escape_property(value)}\n" for name, value in values.items())


def _escape_property(text: str) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    text = text.replace("=", "\\=").replace(":", "\\:").replace("#", "\\#").replace("!", "\\!")
    return "\\" + text if text.startswith(" ") else text
