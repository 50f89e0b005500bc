"""The suite on trial: for each planted bug the faults that expose it, played with and without the bug.

The one rule: a trial decides nothing by itself. Without the bug its verdict must be clean, with the bug it must not, so that it is
the bug that the verdict finds. All records have one partition: what comes last arrives last.
"""

import signal
from collections.abc import Callable
from dataclasses import asdict, dataclass

from tests.pipeline.kills.cluster import TOPIC, KillCluster, await_ready
from tests.pipeline.kills.plan import FAST, STREAMING, Fault
from tests.pipeline.kills.planted import FENCE, HASH, OTHER_MAPPING, PROVENANCE, TOKEN
from tests.pipeline.kills.process_tree import send
from tests.pipeline.kills.scenarios import remove
from tests.pipeline.kills.verdict import Verdict
from tests.pipeline.kills.watched import PAUSE_S, WITHIN_S, Watched, watch
from tests.pipeline.kills.writer import Writer, record
from tests.pipeline.kills.zombies import frozen
from tests.support.sink_destinations import ClickHouseDatabase, lose_parts
from tests.support.waiting import until

RECORDS = 200
TRIALS = (
    *((PROVENANCE, engine) for engine in (FAST, STREAMING)),
    (HASH, FAST),  # a streaming query computes its rows once, and stores them
    *((FENCE, engine) for engine in (FAST, STREAMING)),
    *((TOKEN, engine) for engine in (FAST, STREAMING)),
)


class Trial:
    """A topic of one partition, and pipelines of one engine that read it into one table."""

    def __init__(self, cluster: KillCluster, engine: str) -> None:
        self.cluster, self.engine = cluster, engine
        self._prefix = "pipeline" if engine == FAST else "stream"
        self.topic = cluster.broker.create_topic("trial", 1, TOPIC)
        self.table = self.topic.replace("-", "_")
        self.writer = Writer(cluster.broker.bootstrap, self.topic, per_s=0, poisoned_share=0, seed=1)
        self._sent = 0
        self.pipelines: list[Watched] = []

    def step(self, name: str) -> str:
        """A failpoint of its engine."""
        return f"{self._prefix}.{name}"

    def start(self) -> Watched:
        """One more pipeline. It runs then: how long a Spark driver takes to start is no part of a trial."""
        self.pipelines.append(watch(self.cluster, self.topic, self.table, engine=self.engine))
        await_ready(self.cluster, self.pipelines[-1].path)
        return self.pipelines[-1]

    def send(self) -> None:
        """Some more records."""
        first, self._sent = self._sent, self._sent + RECORDS
        self.writer.send([record(number) for number in range(first, self._sent)], first=first)

    def send_and_await(self, watched: Watched) -> None:
        """Some more, until they are rows."""
        first = self._sent
        self.send()
        until(
            lambda: self.rows_from(watched, first) >= RECORDS,
            within_s=WITHIN_S,
            pause_s=PAUSE_S,
            what=lambda: f"the last records of {self.topic}: {watched.status()}\n{self.cluster.log()}",
        )

    def rows_from(self, watched: Watched, first: int) -> int:
        """How many rows there are of records from this number on."""
        tables = watched.tables
        if not tables.has(tables.name):
            return 0
        return int(tables.ask(f"SELECT count() AS n FROM {tables.name} WHERE {tables.mine} AND seq >= {first}")[0]["n"])

    def kill_driver_at(self, step: str, meanwhile: Callable[[], None] = lambda: None) -> None:
        """The driver that has reached this step, after something else has happened."""
        tree = self.cluster.held_at(step)
        meanwhile()
        send([tree.driver], signal.SIGKILL)
        self.cluster.release(step)

    def judged(self, watched: Watched) -> Verdict:
        """Of a pipeline that says it is done."""
        self.send_and_await(watched)
        verdict = watched.judged(self.writer.acknowledged)
        for each in self.pipelines:
            remove(each)
        return verdict


def provenance(trial: Trial) -> Verdict:
    """A pipeline dies after it has begun what another has in the same table."""
    trial.send()
    first = trial.start()
    first.await_exact(trial.writer.acknowledged)
    trial.cluster.hold(trial.step("begun"))
    second = trial.start()
    trial.kill_driver_at(trial.step("begun"))
    return trial.judged(second)


def content_hash(trial: Trial) -> Verdict:
    """A range that was recorded is mapped again, to other rows. The pipeline blocks, until it is mapped as before."""
    cluster, step = trial.cluster, trial.step("recorded")
    watched = trial.start()
    cluster.hold(step)
    trial.send()
    trial.kill_driver_at(step, lambda: cluster.planted.plant(OTHER_MAPPING))

    def blocked_or_written() -> bool:
        reasons = watched.status()["reasons"]
        return any("when they were begun" in each for each in reasons) or trial.rows_from(watched, 0) > 0

    until(
        blocked_or_written, within_s=WITHIN_S, pause_s=PAUSE_S, what=lambda: f"a range that differs: {watched.status()}"
    )
    cluster.planted.remove(OTHER_MAPPING)
    return trial.judged(watched)


def fence(trial: Trial) -> Verdict:
    """A zombie inserts what its successor has inserted, after so many other inserts that its token is forgotten."""
    cluster, step = trial.cluster, trial.step("inserting")
    watched = trial.start()
    trial.send_and_await(watched)
    cluster.clickhouse.query(f"ALTER TABLE {trial.table} MODIFY SETTING non_replicated_deduplication_window = 1")
    cluster.hold(step)
    trial.send()
    zombie = frozen(cluster, Fault("machine", "zombie", step), trial.pipelines)
    assert zombie.lives
    for _ in range(2):
        trial.send_and_await(watched)
    stored = trial.rows_from(watched, 0)
    zombie.wake()
    until(lambda: zombie.was_refused or trial.rows_from(watched, 0) > stored, what="the zombie inserts")
    zombie.wake_others()
    return trial.judged(watched)


def token(trial: Trial) -> Verdict:
    """ClickHouse dies after it has recorded a token, before it has stored the rows; so does the driver."""
    cluster, step = trial.cluster, trial.step("inserted")
    watched = trial.start()
    cluster.hold(step)
    trial.send()
    database = ClickHouseDatabase(cluster.clickhouse, "default")
    trial.kill_driver_at(step, lambda: assert_some(lose_parts(database, trial.table)))
    return trial.judged(watched)


def assert_some(parts: int) -> None:
    assert parts > 0, "no part was there to be lost"


FAULTS = {PROVENANCE: provenance, HASH: content_hash, FENCE: fence, TOKEN: token}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialReport:
    """What the verdict was without the bug, and with it."""

    bug: str
    engine: str
    without: Verdict
    planted: Verdict

    @property
    def caught(self) -> bool:
        return self.without.clean and not self.planted.clean

    def as_json(self) -> dict[str, object]:
        return {**asdict(self), "caught": self.caught}


def try_bug(cluster: KillCluster, bug: str, engine: str) -> TrialReport:
    """The same faults twice."""
    without = FAULTS[bug](Trial(cluster, engine))
    cluster.planted.plant(bug)
    try:
        planted = FAULTS[bug](Trial(cluster, engine))
    finally:
        cluster.planted.remove(bug)
        cluster.planted.remove(OTHER_MAPPING)
    return TrialReport(bug=bug, engine=engine, without=without, planted=planted)
