"""The benchmarks of several agents: what is reckoned from acknowledgements and rounds, and that they run."""

import subprocess
import sys
from pathlib import Path

import pytest
from bench.cluster.object_level import _SAMPLE
from bench.cluster.throughput import Turns
from bench.failover import Failover, longest_gap_ms, shown

ROOT = Path(__file__).parents[2]


def test_a_gap_counts_if_any_of_it_lies_in_the_window() -> None:
    times = [0, 100, 200, 2_200, 2_300]
    assert longest_gap_ms(times, 250, 2_400) == 2_000
    assert longest_gap_ms(times, 2_250, 2_400) == 100
    assert longest_gap_ms(times, 2_250, 9_000) == 6_700  # nothing came any more
    assert longest_gap_ms([], 100, 400) == 300


def test_a_ratio_is_of_values_of_the_same_round() -> None:
    turns = Turns(mb_s={"ours": [10.0, 40.0, 30.0], "theirs": [10.0, 20.0, 10.0]})
    assert turns.ratio("ours", "theirs") == 2.0
    assert turns.ratio("ours", "nobody") is None


def test_counters_of_object_storage_are_found_in_a_page_of_metrics() -> None:
    page = (
        '# TYPE x counter\nholdfast_objects_requests_total{operation="put"} 12\nholdfast_objects_cost_usd_total 0.5\n'
    )
    found = [("holdfast_objects_requests_total", "12"), ("holdfast_objects_cost_usd_total", "0.5")]
    assert _SAMPLE.findall(page) == found


def test_failover_times_are_shown_by_store_level_and_ttl() -> None:
    found = [
        Failover(
            store="sqlite",
            level=level,
            ttl_ms=2_000,
            event="kill",
            led_ms=1_234,
            others_ms=56,
            came_back=back,
            early=early,
        )
        for level, back, early in (("object", False, True), ("quorum", False, False), ("local", True, True))
    ]
    table = shown(found)
    assert [column.header for column in table.columns][:4] == ["store", "level", "TTL", "kill"]
    assert list(table.columns[3].cells) == ["1.23 early (0.06)", "1.23 (0.06)", "1.23 came back (0.06)"]


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "module", [("bench.cluster", "--quick"), ("bench.failover", "--ttl", "2000", "--event", "stop")]
)
def test_it_runs(module: tuple[str, ...]) -> None:
    done = subprocess.run([sys.executable, "-m", *module, "--json"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout
