"""One Spark session per process, started with the given settings.

The one rule: `session` never returns a session of another engine than the settings name. It knows nothing of topics.
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
from holdfast.vocabulary.installation import install_hint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def session(
    settings: SparkSettings | None = None, *, app_name: str = "holdfast", environment: Mapping[str, str] | None = None
) -> "SparkSession":
    """The Spark session of this process; started if there is none. `session().stop()` stops it.

    `environment` is where JAVA_HOME, SPARK_HOME and PATH are looked up; by default the process's own. `UnavailableError` where
    PySpark or Java is missing, `InvalidError` where this process runs a session with another engine.
    """
    settings = settings if settings is not None else SparkSettings()
    require_pyspark()
    if settings.remote:
        return _connect_session(settings)
    if environment is None:
        environment = os.environ  # noqa: TID251 (these variables are Java's and Spark's; this is their door)
    return _driver_session(settings, app_name, environment)


def require_pyspark() -> None:
    """`UnavailableError` with what to install where PySpark, or what it needs, is missing."""
    try:
        import pandas  # type: ignore[import-untyped]  # noqa: F401
        import pyarrow  # noqa: F401
        import pyspark.sql  # noqa: F401
    except ModuleNotFoundError as missing:
        raise UnavailableError("Spark", f"{missing.name} is not installed: {install_hint('spark')}") from missing


def _connect_session(settings: SparkSettings) -> "SparkSession":
    from pyspark.sql import SparkSession

    try:
        import grpc  # noqa: F401
        from pyspark.sql.connect.session import SparkSession as _  # noqa: F401
    except ImportError as missing:
        raise UnavailableError("Spark Connect", f"{missing}: {install_hint('spark')}") from missing
    running = _running_master()
    if running is not None:
        raise InvalidError(
            "Spark remote",
            settings.remote.partition(";")[0],
            f"absent: this process already runs a session on {running}",
        )
    connected = SparkSession.builder.remote(settings.remote).getOrCreate()
    for name, value in sql_properties(settings).items():
        connected.conf.set(name, value)
    return connected


def _driver_session(settings: SparkSettings, app_name: str, environment: Mapping[str, str]) -> "SparkSession":
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    running = _running_master()
    if running is not None and running != settings.master:
        raise InvalidError("Spark master", settings.master, f"{running}: this process already runs a session on it")
    if running is not None:
        return SparkSession.builder.getOrCreate()
    scratch = Path(tempfile.mkdtemp(prefix="holdfast-spark-"))
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    conf = {**properties(settings, scratch=scratch), "spark.app.name": app_name}
    with _patched_environ(_launch_variables(settings, conf, scratch, environment)):
        if SparkContext._gateway is None:
            return SparkSession.builder.getOrCreate()
        # The JVM of an earlier session is still running: it does not read the properties file again.
        return SparkSession.builder.config(map={**conf}).getOrCreate()


def _running_master() -> str | None:
    from pyspark import SparkContext

    running = SparkContext._active_spark_context
    return running.master if running is not None else None


def _launch_variables(
    settings: SparkSettings, conf: Mapping[str, str], scratch: Path, environment: Mapping[str, str]
) -> dict[str, str]:
    """Environment variables for Spark's launcher. Properties go by a private file: arguments are visible to every user."""
    file = scratch / "spark.properties"
    file.touch(mode=0o600)
    file.write_text(to_java_properties(conf), encoding="utf-8")
    java = find_java(settings.java, environment=environment)
    variables = {
        "JAVA_HOME": str(java.home),
        "PYSPARK_PYTHON": settings.worker_python,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": f"--properties-file {file} pyspark-shell",
    }
    if settings.local:
        variables |= {"SPARK_LOCAL_IP": LOOPBACK, "SPARK_LOCAL_DIRS": str(scratch / "local")}
        if settings.worker_python == sys.executable and (home := unzipped_spark_home(environment)) is not None:
            variables["SPARK_HOME"] = str(home)
    return variables


@contextmanager
def _patched_environ(variables: Mapping[str, str]) -> Iterator[None]:
    """Set these variables for the body: Spark's launcher inherits them, and no later child process must."""
    environment = os.environ  # noqa: TID251 (written for a child process, and restored)
    before = {name: environment.get(name) for name in variables}
    environment.update(variables)
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
