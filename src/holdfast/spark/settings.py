"""Where Spark runs and how it is tuned: settings, and the Spark properties that follow from them.

The one rule: the operator's `conf` overrides everything here.
"""

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final

from holdfast.spark.java import AUTO, CHOICES
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.settings import check_one_of

LOCAL: Final = "local[*]"
LOOPBACK: Final = "127.0.0.1"
_MASTER_URL: Final = re.compile(
    r"local(\[(\*|[1-9]\d*)(,\s*\d+)?\])?|local-cluster\[.+\]|spark://[^/\s]+:\d+(,[^/\s]+:\d+)*|yarn|k8s://\S+"
)
_REMOTE_URL: Final = re.compile(r"sc://[^/\s]+(/\S*)?|local(\[(\*|[1-9]\d*)\])?")
_MEMORY_SIZE: Final = re.compile(r"[1-9]\d*[kmgtKMGT]?")
_LOG4J_FILE: Final = Path(__file__).with_name("log4j2.properties")


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSettings:
    """Values an operator may tune. `conf` and `remote` may hold secrets, so they are never printed."""

    master: str = LOCAL
    """`local[n]`, `spark://host:port`, `yarn` or `k8s://https://host:port`; ignored when there is a `remote`."""
    remote: str = field(default="", repr=False)
    """A Spark Connect address, `sc://host:port`."""
    driver_memory: str = "1g"
    java: str = AUTO
    """`auto`: the machine's own from 17 on, else the bundled one; `system` and `bundled` allow only one of them."""
    ui: bool = False
    """Whether Spark's web UI is served, on a free port."""
    quick_start: bool = False
    """Local only: the JVM compiles with C1 alone. For short jobs; long busy ones take twice as long."""
    executor_python: str = ""
    """The executors' Python, where it is not the driver's; Holdfast must be installed in it (docs/spark.md)."""
    archives: str = ""
    """Archives that executors unpack, separated by commas: `environment.tar.gz#environment`."""
    conf: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if not _MASTER_URL.fullmatch(self.master):
            raise InvalidError("Spark master", self.master, "local[n], local[*], spark://host:port, yarn or k8s://url")
        if self.remote and not _REMOTE_URL.fullmatch(self.remote):
            raise InvalidError("Spark remote", self.remote.partition(";")[0], "sc://host:port")
        if not _MEMORY_SIZE.fullmatch(self.driver_memory):
            raise InvalidError("driver memory", self.driver_memory, "a number with k, m, g or t, as in 1g")
        check_one_of("Java for Spark", self.java, CHOICES)
        for name in self.conf:
            if not name.startswith("spark."):
                raise InvalidError("Spark property", name, "a name that begins with spark.")
        object.__setattr__(self, "conf", MappingProxyType(dict(self.conf)))

    def __reduce__(self) -> tuple[object, ...]:
        values = {name: getattr(self, name) for name in self.__slots__}
        return _unpickle, ({**values, "conf": dict(self.conf)},)

    @property
    def worker_python(self) -> str:
        """The Python that Spark runs."""
        return self.executor_python or sys.executable

    @property
    def local(self) -> bool:
        """Whether driver and executors are one process on this machine."""
        return not self.remote and is_local_master(self.master)


def is_local_master(master: str) -> bool:
    """Whether a master runs all tasks in the driver's process."""
    return master.startswith("local") and not master.startswith("local-cluster")


def _unpickle(values: dict[str, object]) -> SparkSettings:
    return SparkSettings(**values)  # type: ignore[arg-type]


# Spark writes options of sources into plans, and plans into errors, logs and its UI. By default it hides those named like secrets.
HIDDEN_OPTIONS: Final = {"spark.sql.redaction.options.regex": "(?i)url|^(store|objects)$"}


def sql_properties(settings: SparkSettings) -> dict[str, str]:
    """Properties that can be set on any session, also a remote one."""
    tuned = {
        "spark.sql.session.timeZone": "UTC",
        **HIDDEN_OPTIONS,
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # A Python task pays per batch; a batch is also what one task holds in memory at a time.
        "spark.sql.execution.arrow.maxRecordsPerBatch": "32768",
        "spark.sql.execution.arrow.maxBytesPerBatch": str(16 * 1024 * 1024),
    }
    return {**tuned, **{name: value for name, value in settings.conf.items() if name.startswith("spark.sql.")}}


def properties(settings: SparkSettings, *, scratch: Path) -> dict[str, str]:
    """All properties of a driver in this process. `scratch` takes the files that Spark would leave in the current folder."""
    tuned = {
        "spark.master": settings.master,
        "spark.driver.memory": settings.driver_memory,
        "spark.submit.deployMode": "client",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.ui.enabled": str(settings.ui).lower(),
        "spark.ui.port": "0",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.warehouse.dir": (scratch / "warehouse").as_uri(),
        "spark.driver.extraJavaOptions": _java_options(settings, scratch),
        "spark.pyspark.python": settings.worker_python,
        "spark.pyspark.driver.python": sys.executable,
    }
    if settings.local:
        tuned |= {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
    if settings.archives:
        tuned["spark.archives"] = settings.archives
    # Another Python has a Holdfast of its own: it must not get the driver's, which may be of another version.
    if settings.worker_python == sys.executable and (source := _source_dir()):
        tuned["spark.executorEnv.PYTHONPATH"] = source
    return {**tuned, **sql_properties(settings), **_merge_java_options(settings.conf, tuned)}


def _merge_java_options(conf: Mapping[str, str], tuned: Mapping[str, str]) -> dict[str, str]:
    """`conf`, with Java options appended to ours: the last of two contradicting ones wins."""
    name = "spark.driver.extraJavaOptions"
    return {**conf, **({name: f"{tuned[name]} {conf[name]}"} if name in conf else {})}


def _java_options(settings: SparkSettings, scratch: Path) -> str:
    options = [f"-Dlog4j2.configurationFile={_LOG4J_FILE.as_uri()}", f'"-Dderby.system.home={scratch / "derby"}"']
    if settings.local:
        options.append("-XX:+UseSerialGC")
        if settings.quick_start:
            options.append("-XX:TieredStopAtLevel=1")
    return " ".join(options)


def _source_dir() -> str:
    """The folder this package is imported from, unless it is installed: executors need it on their path."""
    folder = Path(__file__).resolve().parents[2]
    return "" if folder.name in ("site-packages", "dist-packages") else str(folder)
