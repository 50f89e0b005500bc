"""A pipeline under test: where it is, what it owns, and its rows.

The one rule: rows are judged by the table alone; the status says only who owns what, and why it is blocked.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.pipeline.kills.cluster import KillCluster
from tests.pipeline.kills.plan import FAST
from tests.pipeline.kills.verdict import Tables, Verdict
from tests.pipeline.kills.writer import Acknowledged
from tests.support.waiting import until

from holdfast.pipeline.sinks.clickhouse.statements import FENCE_TABLE, TRIES

WITHIN_S = 180.0
EXACT_TIMEOUT_S = 240.0
PAUSE_S = 0.25  # between two looks at a server that has other work to do


@dataclass(frozen=True, slots=True)
class Watched:
    """One pipeline of a cluster."""

    cluster: KillCluster
    path: str
    engine: str
    tables: Tables

    @property
    def name(self) -> str:
        """As reports name it."""
        return f"{self.engine} {self.path.rpartition('/')[2]}"

    def status(self) -> dict[str, Any]:
        """Its status, as soon as HTTP responds."""
        return until(lambda: self.cluster.status(self.path), what="a status")

    def fences(self) -> dict[int, int]:
        """The epoch of every partition that ClickHouse compares inserts with."""
        found = self.tables.ask(
            f"SELECT toUInt32(splitByChar(':', k)[-1]) AS partition, intDiv(max(epoch), {TRIES}) AS e FROM {FENCE_TABLE} "
            f"WHERE startsWith(k, '{self.path.rpartition('/')[2]}:') AND k NOT LIKE '%:~end~%' AND k NOT LIKE '%:~begun:%' "
            "GROUP BY partition"
        )
        return {int(row["partition"]): int(row["e"]) for row in found}

    def owned_by(self, worker: str) -> set[int]:
        """The partitions of a worker, by its status."""
        mine = [slot for slot in self.status()["slots"] if slot["workerId"] == worker]
        return {int(number) for slot in mine for number in slot["epochs"]}

    def checkpoint(self) -> int:
        """The sum of the checkpoints."""
        return sum(each["checkpoint"] for each in self.status()["partitions"])

    def await_blocked(self, why: str) -> None:
        """Until the status is blocked for this reason."""

        def blocked() -> bool:
            status = self.status()
            return status.get("state") == "blocked" and any(why in reason for reason in status["reasons"])

        until(blocked, within_s=WITHIN_S, pause_s=PAUSE_S, what=lambda: f"blocked because {why}: {self.status()}")

    def await_exact(self, acknowledged: Acknowledged) -> None:
        """Until the totals are those of the acknowledged records."""
        goal = self.tables.expected(acknowledged)

        def exact() -> bool:
            found = self.tables.totals()
            assert all(each.rows == each.distinct for each in found), "rows are there twice"  # they do not go away
            return found == goal

        try:
            until(exact, within_s=EXACT_TIMEOUT_S, pause_s=PAUSE_S)
        except AssertionError as error:
            found = f"{self.tables.totals()} of {goal}; {self.tables.judged(acknowledged)}"
            raise AssertionError(f"{self.name}: {error}: {found}; {self.status()}\n{self.cluster.log()}") from None

    def judged(self, acknowledged: Acknowledged) -> Verdict:
        """Row by row."""
        return self.tables.judged(acknowledged)


def watch(cluster: KillCluster, topic: str, table: str, *, engine: str = FAST, **parts: Any) -> Watched:
    """A started pipeline."""
    path = cluster.make_pipeline(topic, table, engine=engine, **parts)
    tables = Tables(cluster.clickhouse, table, pipeline_id=path.rpartition("/")[2], engine=engine)
    return Watched(cluster, path, engine, tables)


Ownership = list[tuple[Watched, dict[int, int], set[int]]]


def owned_now(pipelines: Sequence[Watched], worker: str) -> Ownership:
    """What a worker owns of each pipeline, and the fences of all of their partitions."""
    alone = len(pipelines[0].cluster.workers) == 1
    found = [(each, each.fences()) for each in pipelines]
    owned = [(each, fences, set(fences) if alone else each.owned_by(worker)) for each, fences in found]
    # A status may be older than the claims.
    return owned if any(numbers for _, _, numbers in owned) else [(each, fences, set(fences)) for each, fences in found]


def await_takeover(before: Ownership) -> None:
    """Until the fences of what was owned are raised, so that who wakes now is too late."""

    def taken(each: Watched, fences: dict[int, int], owned: set[int]) -> bool:
        now = each.fences()
        return all(now.get(number, 0) > fences.get(number, 0) for number in owned)

    until(
        lambda: all(taken(*each) for each in before),
        within_s=WITHIN_S,
        pause_s=PAUSE_S,
        what=lambda: "a takeover of " + ", ".join(f"{each.name} {sorted(owned)}" for each, _, owned in before),
    )
