"""What is about to be written is compared with what was recorded; kept rows are a shortcut and nothing else."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.sink_values import fenced_range, records_of, target_of

from holdfast.pipeline.driver import mapped_files, tasks
from holdfast.pipeline.driver.mapped_ranges import NOTHING, MappedRange, keep_mapped, kept_range, map_range
from holdfast.pipeline.driver.tasks import RangeJob, write_mapped
from holdfast.pipeline.model.definition import ParquetConfig, RangeDigest
from holdfast.pipeline.sinks.contract import BlockedError, FencedRange, WriteResult

TARGET = target_of(ParquetConfig(url="/x"))
JOB = RangeJob(target=TARGET, cluster_address=None, fenced_ranges=())
RANGE = fenced_range(0, 4)
VALUES = [b'{"id": 1, "name": "a"}', b"bad", b'{"id": 2, "name": "b"}', b'{"id": 3, "name": "c"}']


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[FencedRange]:
    found: list[FencedRange] = []

    class Sink:
        def write(self, of: FencedRange, rows: Any, refused: Any) -> WriteResult:
            found.append(of)
            return WriteResult(fenced_range=of, rows=rows.num_rows, refused=len(refused))

    monkeypatch.setattr(tasks, "cached_sink", lambda _: Sink())
    return found


def mapped() -> MappedRange:
    return map_range(TARGET, RANGE, records_of(VALUES))


def recorded(**changes: Any) -> FencedRange:
    return replace(RANGE, digest=msgspec.structs.replace(mapped().digest, **changes))


@pytest.mark.parametrize("changes", [{"rows": 2}, {"rows_hash": "1:0"}, {"refused": 0}, {"refused_hash": "1:0"}])
def test_a_range_that_is_not_what_it_was_is_not_written(written: list[FencedRange], changes: dict[str, Any]) -> None:
    other = recorded(**changes)
    with pytest.raises(BlockedError) as blocked:
        write_mapped(JOB, other, mapped())
    assert f"are {mapped().digest} now and were {other.digest} when" in str(blocked.value)
    assert not written


@pytest.mark.slow
def test_without_the_comparison_other_rows_would_be_written(
    written: list[FencedRange], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "check_rows", lambda *_: None)
    write_mapped(JOB, recorded(rows=2), mapped())
    assert written


def test_a_range_whose_records_are_gone_is_not_done(written: list[FencedRange]) -> None:
    with pytest.raises(BlockedError, match="are 0 rows and 0 dead letters now and were 3 rows"):
        write_mapped(JOB, recorded(), map_range(TARGET, RANGE, None))
    assert write_mapped(JOB, replace(RANGE, digest=NOTHING), map_range(TARGET, RANGE, None)).kind == "done"
    assert not written


def test_the_same_range_is_written_and_so_is_one_with_a_hash_of_another_form(written: list[FencedRange]) -> None:
    outcome = write_mapped(JOB, recorded(), mapped())
    assert (outcome.rows, outcome.refused, outcome.read) == (3, 1, 4)
    write_mapped(JOB, recorded(rows_hash="9:x", refused_hash="9:y"), mapped())
    write_mapped(JOB, RANGE, mapped())
    assert len(written) == 3


def test_kept_rows_are_taken_once_and_only_for_the_very_range(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(mapped_files, "_folder", lambda: tmp_path)
    keep_mapped(TARGET, RANGE, mapped())
    found = kept_range(TARGET, recorded())
    assert found is not None
    assert (found.rows, found.refused, found.digest) == (mapped().rows, list(mapped().refused), mapped().digest)
    assert list(tmp_path.iterdir()) == []
    assert kept_range(TARGET, recorded()) is None
    for other in (replace(recorded(), epoch=2), replace(recorded(), end=5), recorded(rows_hash="1:0"), RANGE):
        keep_mapped(TARGET, RANGE, mapped())
        assert kept_range(TARGET, other) is None


def test_damaged_files_and_a_full_disk_are_as_good_as_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(mapped_files, "_folder", lambda: tmp_path)
    keep_mapped(TARGET, RANGE, mapped())
    for file in tmp_path.iterdir():
        file.write_bytes(b"ARROW1")
    assert kept_range(TARGET, recorded()) is None
    monkeypatch.setattr(mapped_files, "_folder", lambda: tmp_path / "missing")
    keep_mapped(TARGET, RANGE, mapped())
    assert kept_range(TARGET, recorded()) is None
    assert kept_range(TARGET, replace(RANGE, digest=RangeDigest(rows=0, rows_hash=""))) is not None
