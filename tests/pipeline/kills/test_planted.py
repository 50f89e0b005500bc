"""Planted bugs are there while they are planted, and only then. That the suite finds them is in its long form."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.kills.planted import FENCE, HASH, PROVENANCE, TOKEN, VARIABLE, Planted, install
from tests.support.failpoints import FailpointFolder

from holdfast.pipeline.driver import mapped_ranges
from holdfast.pipeline.model.definition import RangeDigest
from holdfast.pipeline.model.range_identity import RangeIdentity
from holdfast.pipeline.sinks.clickhouse import inserts, statements
from holdfast.pipeline.sinks.contract import BlockedError, FencedRange

IDENTITY = RangeIdentity(pipeline_id="p", generation=1, topic="t", partition=0, start=0, end=2)


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Planted:
    install(tmp_path, monkeypatch.setattr)
    return Planted(tmp_path)


def test_rows_are_looked_for_without_their_pipeline(planted: Planted) -> None:
    whole = statements.of_range(IDENTITY)
    assert "_pipeline = 'p'" in whole
    planted.plant(PROVENANCE)
    assert statements.of_range(IDENTITY) == whole.removeprefix("_pipeline = 'p' AND ")
    planted.remove(PROVENANCE)
    assert statements.of_range(IDENTITY) == whole


def test_a_range_that_differs_is_not_noticed(planted: Planted) -> None:
    fenced = FencedRange(partition=0, start=0, end=2, epoch=1, digest=RangeDigest(rows=2, rows_hash="one"))
    other = RangeDigest(rows=2, rows_hash="other")
    planted.plant(HASH)
    mapped_ranges.check_rows(fenced, other)
    planted.remove(HASH)
    with pytest.raises(BlockedError):
        mapped_ranges.check_rows(replace(fenced, digest=RangeDigest(rows=3, rows_hash="one")), other)


def test_no_epoch_is_too_old(planted: Planted) -> None:
    def insert() -> str:
        return statements.fenced_insert("t", {"n": "Int64"}, database="d", key="k", epoch=7)

    assert "> 7," in insert()
    planted.plant(FENCE)
    assert "> 7," not in insert()


def test_an_insert_that_was_sent_counts_as_stored(planted: Planted) -> None:
    class Empty:
        def rows(self, _: str) -> list[tuple[int, int]]:
            return [(0, 0)]

    class Insert:
        quorum, name, place, record_column, query, made = "", "t", "1", "_offset", "q", (2, 2)

    connection: Any = Empty()
    insert: Any = Insert()
    assert inserts._stored(connection, insert) == (0, 0)
    assert inserts._stored(connection, insert) == (0, 0)
    planted.plant(TOKEN)
    assert inserts._stored(connection, insert) == (2, 2)


PROCESS = """
import sys
assert not {"pyarrow", "holdfast.pipeline"} & set(sys.modules), "Spark waits ten seconds for a Python process"
from holdfast.pipeline.sinks.clickhouse import statements
print(statements.of_pipeline("p", 1, "t"))
"""


def test_a_process_imports_nothing_for_bugs_that_it_has_no_place_for(tmp_path: Path) -> None:
    Planted(tmp_path).plant(PROVENANCE)
    inherited = os.environ  # noqa: TID251 (a child keeps what this process has)
    environment = {**inherited, **FailpointFolder(tmp_path).environment, VARIABLE: "yes"}
    run = subprocess.run(
        [sys.executable, "-c", PROCESS], env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert (run.stdout, run.stderr) == ("_generation = 1 AND _topic = 't'\n", "")
