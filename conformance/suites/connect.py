"""Kafka Connect in distributed mode: two workers, their three internal topics, and the file connectors."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from conformance import topics
from conformance.connect_worker import ConnectWorker
from conformance.java import KAFKA, LOGGING, classpath
from conformance.model import Case, Workplace
from conformance.scenarios import Step, played

ARTIFACTS: Final = (
    f"org.apache.kafka:connect-runtime:{KAFKA}",
    f"org.apache.kafka:connect-file:{KAFKA}",
    f"org.apache.kafka:connect-json:{KAFKA}",
    LOGGING,
)
_FILE: Final = "org.apache.kafka.connect.file.FileStream"
_PLAIN: Final = {
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
}


class Connect:
    """Sources, sinks, REST, rebalances, crashes of workers and of the server."""

    name = "connect"
    title = "Kafka Connect"
    about = (
        "Two workers in distributed mode with the file connectors; replication factors of 1 and shorter intervals, "
        "otherwise defaults."
    )
    server_options: Sequence[str] = ()
    lists_cases = True

    def prepare(self, cache: Path) -> str:
        classpath(cache, f"connect-{KAFKA}", ARTIFACTS)
        return KAFKA

    def run(self, cache: Path, at: Workplace) -> Iterator[Case]:
        jars = classpath(cache, f"connect-{KAFKA}", ARTIFACTS)
        scenario = _Scenario(jars, at)
        try:
            yield from played(scenario.steps())
        finally:
            scenario.close()


class _Scenario:
    def __init__(self, jars: str, at: Workplace) -> None:
        self._at, self._broker, self._folder = at, at.broker, at.scratch
        self._workers = [ConnectWorker(jars, at.broker.bootstrap, at.scratch, at.log) for _ in range(2)]
        once = {"exactly.once.source.support": "enabled"}
        self._once = ConnectWorker(jars, at.broker.bootstrap, at.scratch, at.log, group="once", more=once)
        self._lines: list[bytes] = []

    def close(self) -> None:
        for worker in (*self._workers, self._once):
            worker.kill()

    def steps(self) -> Sequence[Step]:
        return [
            self.a_worker_starts_and_makes_its_internal_topics_compacted,
            self.a_source_connector_writes_a_topic,
            self.a_sink_connector_reads_it,
            self.offsets_of_a_source_are_shown,
            self.a_second_worker_joins_and_gets_work,
            self.a_killed_workers_connectors_move_to_the_other,
            self.a_restarted_worker_goes_on_without_repeating_a_line,
            self.connectors_go_on_after_the_server_crashed,
            self.a_connector_is_paused_and_resumed,
            self.offsets_of_a_stopped_connector_are_reset,
            self.a_connector_is_deleted,
            self.a_source_is_exactly_once,
        ]

    @property
    def _first(self) -> ConnectWorker:
        return self._workers[0]

    def _append(self, name: str, count: int = 100) -> None:
        new = [b"%s-%d" % (name.encode(), number) for number in range(count)]
        self._lines += new
        with (self._folder / "source.txt").open("ab") as file:
            file.write(b"".join(line + b"\n" for line in new))

    def _topic_has_all(self) -> list[bytes]:
        found = topics.read_until(self._broker.bootstrap, "lines", self._lines)
        return [each.value or b"" for each in found]

    def _file_has_all(self) -> None:
        sink = self._folder / "sink.txt"
        topics.until(
            lambda: set(self._lines) <= set(sink.read_bytes().splitlines()),
            what="the sink wrote every line", within_s=topics.WAIT_S,
        )  # fmt: skip

    def a_worker_starts_and_makes_its_internal_topics_compacted(self) -> None:
        self._first.start()
        for store in ("config", "offset", "status"):
            found = topics.config_of(self._broker.bootstrap, f"connect-{store}")
            assert found["cleanup.policy"] == "compact", found["cleanup.policy"]

    def a_source_connector_writes_a_topic(self) -> None:
        self._append("first")
        source = {"connector.class": f"{_FILE}SourceConnector", "file": self._folder / "source.txt", "topic": "lines"}
        self._first.put_connector("source", {name: str(value) for name, value in {**source, **_PLAIN}.items()})
        self._topic_has_all()

    def a_sink_connector_reads_it(self) -> None:
        sink = {"connector.class": f"{_FILE}SinkConnector", "file": self._folder / "sink.txt", "topics": "lines"}
        self._first.put_connector("sink", {name: str(value) for name, value in {**sink, **_PLAIN}.items()})
        self._file_has_all()

    def offsets_of_a_source_are_shown(self) -> None:
        size = (self._folder / "source.txt").stat().st_size

        def shown() -> bool:
            offsets = self._first.request("GET", "/connectors/source/offsets")["offsets"]
            return [each["offset"]["position"] for each in offsets] == [size]

        topics.until(shown, what="the source's offset is the end of the file", within_s=topics.WAIT_S)

    def a_second_worker_joins_and_gets_work(self) -> None:
        self._workers[1].start()
        topics.until(
            lambda: len(self._owners()) == 2, what=lambda: f"two workers work: {self._owners()}", within_s=topics.WAIT_S
        )
        self._append("two-workers")
        self._topic_has_all()
        self._file_has_all()

    def _owners(self) -> set[str]:
        """The workers that run a connector or a task."""
        found = set()
        for name in ("source", "sink"):
            try:
                status = self._first.status(name)
            except (OSError, AssertionError):
                return set()
            found |= {each["worker_id"] for each in (status["connector"], *status["tasks"])}
        return found

    def a_killed_workers_connectors_move_to_the_other(self) -> None:
        self._workers[1].kill()
        self._append("one-worker-less")
        topics.until(lambda: len(self._owners()) == 1, what="one worker has everything", within_s=topics.WAIT_S)
        for name in ("source", "sink"):
            self._first.await_running(name)
        self._topic_has_all()
        self._file_has_all()

    def a_restarted_worker_goes_on_without_repeating_a_line(self) -> None:
        before = len(self._topic_has_all())
        self._first.kill()
        self._append("restarted")
        self._first.start()
        assert len(self._topic_has_all()) == before + 100
        self._file_has_all()

    def connectors_go_on_after_the_server_crashed(self) -> None:
        self._broker.kill()
        self._append("crashed")
        self._broker.start()
        self._topic_has_all()
        self._file_has_all()

    def a_connector_is_paused_and_resumed(self) -> None:
        self._first.request("PUT", "/connectors/source/pause")
        topics.until(
            lambda: {task["state"] for task in self._first.status("source")["tasks"]} == {"PAUSED"},
            within_s=topics.WAIT_S,
        )
        self._append("paused")
        self._first.request("PUT", "/connectors/source/resume")
        self._topic_has_all()

    def offsets_of_a_stopped_connector_are_reset(self) -> None:
        before = len(self._topic_has_all())
        self._first.request("PUT", "/connectors/source/stop")
        topics.until(lambda: self._first.status("source")["connector"]["state"] == "STOPPED", within_s=topics.WAIT_S)
        self._first.request("DELETE", "/connectors/source/offsets")
        assert self._first.request("GET", "/connectors/source/offsets") == {"offsets": []}
        self._first.request("PUT", "/connectors/source/resume")
        self._append("reset")
        topics.until(
            lambda: len(self._topic_has_all()) >= before + len(self._lines),
            what="all is read again",
            within_s=topics.WAIT_S,
        )

    def a_connector_is_deleted(self) -> None:
        for name in ("source", "sink"):
            self._first.request("DELETE", f"/connectors/{name}")
        topics.until(lambda: self._first.request("GET", "/connectors") == [], within_s=topics.WAIT_S)

    def a_source_is_exactly_once(self) -> None:
        for worker in self._workers:
            worker.kill()
        self._once.start()
        source = {"connector.class": f"{_FILE}SourceConnector", "file": self._folder / "source.txt", "topic": "once"}
        self._once.put_connector("source", {name: str(value) for name, value in {**source, **_PLAIN}.items()})
        topics.read_until(self._broker.bootstrap, "once", self._lines)
