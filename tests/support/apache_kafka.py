"""Apache Kafka from its jars: a broker to compare with, and its tools as clients of any Kafka address.

A broker is one process of KRaft, controller and broker together, on two ports of loopback with a folder of its own; `kafka_cluster`
starts several that are one cluster.
Jars come through `mvn` once and are kept; without java or mvn, or offline, everything here raises UnavailableError.
"""

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.maven import fetch_jars

from holdfast.testing.server_process import ServerProcess, free_port
from holdfast.vocabulary.errors import UnavailableError

VERSION: Final = "4.3.1"
ARTIFACTS: Final = (
    f"org.apache.kafka:kafka_2.13:{VERSION}",
    f"org.apache.kafka:kafka-clients:{VERSION}",
    f"org.apache.kafka:kafka-tools:{VERSION}",
    "org.slf4j:slf4j-simple:1.7.36",
)
CLUSTER_ID: Final = "aG9sZGZhc3QtdGVzdGluZw"  # 16 bytes in base 64
STOP_TIMEOUT_S: Final = 20

# As Apache's own start script sets them; the heap too.
BROKER_JVM: Final = (
    "-Xms1g",
    "-Xmx1g",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)
# A tool runs for a second or two: a small heap, and a compiler that is soon done.
TOOL_JVM: Final = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

TOOLS: Final = {
    "ConfigCommand": "kafka.admin.ConfigCommand",
    "ConsoleConsumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "ConsumerGroupCommand": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "ReassignPartitionsCommand": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "StorageTool": "kafka.tools.StorageTool",
}  # every other short name is one of org.apache.kafka.tools

_METADATA: Final = bytes.fromhex("0000000e 0003 0001 00000001 ffff 00000000")  # version 1, of no topic


@dataclass(frozen=True)
class ToolRun:
    """How a Java program ended, and what it said."""

    exit_code: int
    stdout: str
    stderr: str


def kafka_classpath() -> str:
    """Everything of Apache Kafka, for `java -cp` and `javac -cp`."""
    return os.pathsep.join(str(jar) for jar in fetch_jars(f"kafka-{VERSION}", ARTIFACTS))


def java_argv(main_class: str, *args: str, jvm: Sequence[str] = TOOL_JVM, log_level: str = "error") -> list[str]:
    """The command line of a class on Kafka's class path, or of a `.java` file; it logs to stderr."""
    java = shutil.which("java")
    if java is None:
        raise UnavailableError("java", "there is no program java")
    logging = f"-Dorg.slf4j.simpleLogger.defaultLogLevel={log_level}"
    return [java, *jvm, logging, "-cp", kafka_classpath(), main_class, *args]


def kafka_tool(
    main_class: str, *args: str, stdin: str = "", jvm: Sequence[str] = TOOL_JVM, timeout_s: float = 60
) -> ToolRun:
    """Run one of Kafka's tools to its end: `kafka_tool("TopicCommand", "--bootstrap-server", address, "--list")`.

    A class of your own, with its dots, works too. Raises UnavailableError where Java or the jars are missing, and
    subprocess.TimeoutExpired, the tool killed, where it does not end.
    """
    if "." not in main_class:
        main_class = TOOLS.get(main_class, f"org.apache.kafka.tools.{main_class}")
    argv = java_argv(main_class, *args, jvm=jvm)
    done = subprocess.run(argv, input=stdin, capture_output=True, text=True, timeout=timeout_s)
    return ToolRun(done.returncode, done.stdout, done.stderr)


class ApacheKafka(ServerProcess):
    """One broker. `config` is added to server.properties, as in `{"log.flush.interval.messages": "1"}`."""

    name = "kafka"

    def __init__(self, directory: Path, *, config: Mapping[str, str] | None = None, node: int = 1) -> None:
        super().__init__(directory)
        self.node = node
        self.cluster = [self]
        self._controller_port = free_port()
        self._config = dict(config or {})

    @property
    def bootstrap(self) -> str:
        """The address for clients."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The broker's process."""
        assert self._process is not None
        return self._process.pid

    def argv(self) -> list[str]:
        return java_argv("kafka.Kafka", str(self._properties), jvm=BROKER_JVM)

    def prepare(self) -> None:
        """Write the settings and format the folder."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self._properties.write_text("".join(f"{key}={value}\n" for key, value in self._settings().items()))
        done = kafka_tool("StorageTool", "format", "--ignore-formatted", "-t", CLUSTER_ID, "-c", str(self._properties))
        if done.exit_code != 0:
            raise UnavailableError(self.name, f"its folder cannot be formatted: {(done.stdout + done.stderr)[-2000:]}")

    def ready(self) -> bool:
        """Whether it names a broker: while it starts it names none."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
                connection.sendall(_METADATA)
                with connection.makefile("rb") as answers:
                    answer = answers.read(12)  # size, correlation id, number of brokers
        except OSError:
            return False
        return len(answer) == 12 and int.from_bytes(answer[8:], "big") > 0

    def stop(self) -> None:
        """SIGTERM, which it takes its time to obey; SIGKILL if it takes too long."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.kill()
            self._process = None

    @property
    def _properties(self) -> Path:
        return self.directory / "server.properties"

    def _settings(self) -> dict[str, str]:
        controller = f"127.0.0.1:{self._controller_port}"
        voters = [f"{each.node}@127.0.0.1:{each._controller_port}" for each in self.cluster]
        return {
            "process.roles": "broker,controller",
            "node.id": str(self.node),
            "controller.quorum.voters": ",".join(voters),
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "log.dirs": str(self.data),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "share.coordinator.state.topic.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
            **self._config,
        }


@contextmanager
def kafka_cluster(
    directory: Path, *, brokers: int = 3, config: Mapping[str, str] | None = None
) -> Iterator[list[ApacheKafka]]:
    """Several brokers of one cluster, each a controller, too."""
    servers = [ApacheKafka(directory / f"kafka-{node}", node=node, config=config) for node in range(1, brokers + 1)]
    with ExitStack() as running:
        for server in servers:
            server.cluster = servers
            server.start_timeout_ms *= brokers  # they start together, on the cores of one
            server.prepare()
            running.callback(server.kill)
        with ThreadPoolExecutor(brokers) as starting:  # one alone has no majority of controllers, and names no broker
            list(starting.map(ApacheKafka.start, servers))
        yield servers
