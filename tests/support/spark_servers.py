"""Engines of Spark's own distribution as processes on loopback: a standalone master with workers, a Connect server."""

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.support.spark_session import ROOT, SETTINGS

from holdfast.spark.java import AUTO, find_java
from holdfast.testing.server_process import ServerProcess, free_port

JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


class SparkProcess(ServerProcess):
    """A class of the distribution, run by `spark-class`; ready when its log contains a text."""

    name = "spark"
    start_timeout_ms = 120_000  # a JVM on a busy machine

    def __init__(
        self, directory: Path, name: str, ready_text: str, *argv: str, extra: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(directory)
        self.name = name
        self._ready_text, self._argv, self._extra = ready_text, argv, dict(extra or {})

    def argv(self) -> list[str]:
        import pyspark

        program = Path(pyspark.__file__).parent / "bin" / "spark-class"
        variables = {**spark_environment(self.directory), **self._extra}
        return ["env", *(f"{name}={value}" for name, value in variables.items()), str(program), *self._argv]

    @property
    def log(self) -> str:
        path = self.directory / f"{self.name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def ready(self) -> bool:
        return re.search(self._ready_text, self.log) is not None


def spark_environment(folder: Path) -> dict[str, str]:
    java = find_java(AUTO, environment=os.environ)  # noqa: TID251 (a test starts processes as an operator would)
    return {
        "JAVA_HOME": str(java.home),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_WORKER_DIR": str(folder / "work"),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": JVM,
    }


@contextmanager
def standalone(folder: Path, *, workers: int = 2, extra: Mapping[str, str] | None = None) -> Iterator[str]:
    """A standalone cluster with so many workers of one core, which have these `extra` variables; its `spark://` address."""
    port = free_port()
    address = f"spark://127.0.0.1:{port}"
    with ExitStack() as started:
        master = ("org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(port))
        started.enter_context(
            SparkProcess(folder, "master", "I have been elected leader", *master, "--webui-port", "0").running()
        )
        for number in range(workers):
            flags = ("--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--webui-port", "0", address)
            worker = SparkProcess(
                folder / f"worker-{number}",
                "worker",
                "Successfully registered with master",
                "org.apache.spark.deploy.worker.Worker",
                *flags,
                extra=extra,
            )
            started.enter_context(worker.running())
        yield address


@contextmanager
def connect_server(folder: Path) -> Iterator[str]:
    """A Spark Connect server on `local[2]`; its `sc://` address."""
    port = free_port()
    conf = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.driver.extraJavaOptions": JVM,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        **SETTINGS.conf,
    }
    memory = {"SPARK_DAEMON_MEMORY": "1g"}  # to Spark's launcher this server is a daemon, although it is a driver
    argv = ["org.apache.spark.deploy.SparkSubmit", "--master", "local[2]", "--name", "connect"]
    argv += [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
    argv += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    with SparkProcess(folder, "connect", "Spark Connect server started", *argv, extra=memory).running():
        yield f"sc://127.0.0.1:{port}"
