"""Flink's Kafka connector, on a local cluster inside the program: `java/FlinkScenarios.java`."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from conformance.java import LOGGING, classpath, compiled, java, reported
from conformance.model import Case, Workplace

FLINK: Final = "2.2.1"
CONNECTOR: Final = "5.0.0-2.2"
ARTIFACTS: Final = (
    f"org.apache.flink:flink-connector-kafka:{CONNECTOR}",
    f"org.apache.flink:flink-connector-base:{FLINK}",
    f"org.apache.flink:flink-streaming-java:{FLINK}",
    f"org.apache.flink:flink-clients:{FLINK}",
    LOGGING,
)
TIMEOUT_S: Final = 1800
# What Flink's own start scripts open for Java 17.
_OPENED: Final = tuple(
    f"--add-opens=java.base/{package}=ALL-UNNAMED"
    for package in ("java.lang", "java.util", "java.util.concurrent", "java.net", "java.nio", "java.time")
)


class Flink:
    """One JVM; each scenario is a job of its own."""

    name = "flink"
    title = "Flink's Kafka connector"
    about = f"With Flink {FLINK} on a local cluster; what each scenario asserts is in `conformance/java`."
    server_options: Sequence[str] = ()
    lists_cases = True

    def prepare(self, cache: Path) -> str:
        self._jars(cache)
        return CONNECTOR

    def _jars(self, cache: Path) -> str:
        return compiled(cache, "FlinkScenarios", classpath(cache, f"flink-{CONNECTOR}", ARTIFACTS))

    def run(self, cache: Path, at: Workplace) -> Iterator[Case]:
        argv = java(self._jars(cache), "FlinkScenarios", at.broker.bootstrap, heap="1g", options=_OPENED)
        yield from reported(argv, log=at.log, cwd=at.scratch, timeout_s=TIMEOUT_S)
