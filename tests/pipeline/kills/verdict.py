"""The verdict: the rows in ClickHouse against the acknowledged records. What a pipeline reports of itself does not count.

The one rule: rows and dead_letters together are the acknowledged records, each once, with the values it was written with.
"""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import astuple, dataclass, fields
from typing import Any

from tests.pipeline.kills.plan import FAST
from tests.pipeline.kills.writer import Acknowledged, amount_of

from holdfast.testing.clickhouse import ClickHouseServer

Place = tuple[int, int]  # partition, offset
PLACE = "_partition, _offset"
Row = tuple[int, int, int, int]  # partition, offset, seq, amount


@dataclass(frozen=True, slots=True)
class Totals:
    """Totals of a table."""

    rows: int = 0
    distinct: int = 0
    seq: int = 0
    amount: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """All but the first three must be 0. `wrong`: rows with other values than were written, or in the wrong table."""

    records: int
    rows: int
    dead_letters: int
    duplicates: int
    lost: int
    wrong: int

    @property
    def clean(self) -> bool:
        exact = self.rows + self.dead_letters == self.records
        return exact and not (self.duplicates or self.lost or self.wrong)


def sum_of(verdicts: Iterable[Verdict]) -> Verdict:
    """Of several tables, as one."""
    found = [astuple(each) for each in verdicts]
    return Verdict(**{field.name: sum(each[at] for each in found) for at, field in enumerate(fields(Verdict))})


def expected(acknowledged: Acknowledged) -> tuple[Totals, Totals]:
    """The totals that table and DLQ must reach."""
    good, bad = acknowledged.good, len(acknowledged.poisoned)
    amounts = sum(map(amount_of, good.values()))
    return Totals(len(good), len(good), sum(good.values()), amounts), Totals(bad, bad)


def judge(acknowledged: Acknowledged, rows: Iterable[Row], dead_letters: Iterable[Place]) -> Verdict:
    """Row by row."""
    table, dlq = list(rows), Counter(dead_letters)
    places = Counter((partition, offset) for partition, offset, _, _ in table)
    good, poisoned = acknowledged.good, acknowledged.poisoned
    return Verdict(
        records=len(acknowledged),
        rows=len(table),
        dead_letters=dlq.total(),
        duplicates=(places + dlq).total() - len(places + dlq),
        lost=len(good.keys() - places.keys()) + len(poisoned - dlq.keys()),
        wrong=sum(
            good.get((partition, offset)) != seq or amount_of(seq) != amount for partition, offset, seq, amount in table
        )
        + len(dlq.keys() - poisoned),
    )


class Tables:
    """What one pipeline has in its table and DLQ, queried over HTTP. To a query, a record that lacks a field is no dead letter: it
    has a null there, and this one drops it."""

    def __init__(self, server: ClickHouseServer, name: str, *, pipeline_id: str, engine: str = FAST) -> None:
        self._server, self.name = server, name
        self.mine = f"_pipeline = '{pipeline_id}'"
        self._streaming = engine != FAST
        self._place = PLACE if engine == FAST else "record_partition, record_offset"

    def ask(self, statement: str) -> list[dict[str, Any]]:
        """Rows of a query."""
        text = self._server.query(f"{statement} FORMAT JSONEachRow")
        return [json.loads(line) for line in text.splitlines()]

    def has(self, name: str) -> bool:
        """Whether a table exists."""
        found = self.ask(f"SELECT 1 AS n FROM system.tables WHERE database = 'default' AND name = '{name}'")
        return bool(found)

    def expected(self, acknowledged: Acknowledged) -> tuple[Totals, Totals]:
        """The totals to be reached."""
        return expected(self._owed(acknowledged))

    def totals(self) -> tuple[Totals, Totals]:
        """Table and DLQ; a missing one is empty."""
        table, dlq = Totals(), Totals()
        if self.has(self.name):
            table = self._totals(self._place, f"sum(seq) AS s, sum(amount) AS a FROM {self.name}")
        if self.has(f"{self.name}_dlq"):
            dlq = self._totals(PLACE, f"0 AS s, 0 AS a FROM {self.name}_dlq")
        return table, dlq

    def _totals(self, place: str, rest: str) -> Totals:
        [row] = self.ask(f"SELECT count() AS n, uniqExact({place}) AS d, {rest} WHERE {self.mine}")
        return Totals(int(row["n"]), int(row["d"]), int(row["s"] or 0), int(row["a"] or 0))

    def judged(self, acknowledged: Acknowledged, where: str = "1") -> Verdict:
        """Every row against every record."""
        condition = f"WHERE {self.mine} AND {where}"
        rows = self._numbers(f"SELECT {self._place}, seq, amount FROM {self.name} {condition}")
        owed = self._owed(acknowledged)
        dead_letters = self._numbers(f"SELECT {PLACE} FROM {self.name}_dlq {condition}") if owed.poisoned else []
        return judge(
            owed,
            ((partition, offset, seq, amount) for partition, offset, seq, amount in rows),
            ((partition, offset) for partition, offset in dead_letters),
        )

    def _owed(self, acknowledged: Acknowledged) -> Acknowledged:
        if not self._streaming:
            return acknowledged
        return Acknowledged(good=acknowledged.good, poisoned=acknowledged.poisoned - acknowledged.incomplete)

    def _numbers(self, statement: str) -> list[list[int]]:
        text = self._server.query(f"{statement} FORMAT TSV").decode()
        return [[int(each) for each in line.split("\t")] for line in text.splitlines()]
