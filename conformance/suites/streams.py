"""Kafka Streams: topologies with stores, repartitioning, joins and several instances, in `java/StreamsScenarios.java`."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from conformance.java import KAFKA, LOGGING, classpath, compiled, java, reported
from conformance.model import Case, Workplace

ARTIFACTS: Final = (f"org.apache.kafka:kafka-streams:{KAFKA}", LOGGING)
TIMEOUT_S: Final = 1800


class Streams:
    """One JVM; each scenario is an application of its own."""

    name = "streams"
    title = "Kafka Streams"
    about = (
        "Applications with its default settings, committing every 200 ms; what each asserts is in `conformance/java`."
    )
    server_options: Sequence[str] = ()
    lists_cases = True

    def prepare(self, cache: Path) -> str:
        self._jars(cache)
        return KAFKA

    def _jars(self, cache: Path) -> str:
        return compiled(cache, "StreamsScenarios", classpath(cache, f"streams-{KAFKA}", ARTIFACTS))

    def run(self, cache: Path, at: Workplace) -> Iterator[Case]:
        argv = java(self._jars(cache), "StreamsScenarios", at.broker.bootstrap, heap="1g")
        yield from reported(argv, log=at.log, cwd=at.scratch, timeout_s=TIMEOUT_S)
