"""How a run is read: a table for each part, ratios beside their aims, and all of it as JSON."""

from collections.abc import Iterator
from typing import Final

from rich.table import Table

from bench.figures import Figure
from bench.kafka.results import BenchResults
from bench.latency.peers import DISK, OURS, PEERS
from bench.latency.runs import BUSY, OPEN_LOOP, PAUSES, SHAPES, case_name

P99_MAX_TIMES: Final = {DISK: 3.0, "kafka": 1.0, "kafka-flush": 1.0}
REQUESTS_MIN_TIMES: Final = {"valkey": 1.0, "nats": 5.0}
NO_AIM: Final = "1 connection, depth 1"  # one sync after the other: the disk's own rate for everybody

_COLUMNS: Final = (
    ("p50_us", "p50"),
    ("p99_us", "p99"),
    ("p999_us", "p99.9"),
    ("max_us", "max"),
    ("late_p99_us", "sent\nlate p99"),
    ("answered_per_second", "answered\n/s"),
    ("unanswered", "never"),
    ("server_cpu_us", "server\nCPU µs"),
    ("client_cpu_us", "client\nCPU µs"),
    ("batches_per_group", "batches\n/group"),
    ("handover_p99_us", "hand-over\np99 ≤"),
    ("loop_stall_p99_us", "loop stall\np99 ≤"),
)
_OF_OURS: Final = ("batches_per_group", "handover_p99_us", "loop_stall_p99_us")


def latency_tables(found: BenchResults, rates: tuple[int, ...]) -> Iterator[Table]:
    """Times in microseconds, one table for each part and rate."""
    for part in (OPEN_LOOP, PAUSES, BUSY):
        for rate in rates:
            case = case_name(part, rate)
            if any(key[0] == case for key in found.values):
                yield _latency_table(found, case)


def _latency_table(found: BenchResults, case: str) -> Table:
    made = Table(title=f"{case}: µs from when a request was due to its answer")
    made.add_column("who", no_wrap=True)
    for _, title in _COLUMNS:
        made.add_column(title, justify="right", no_wrap=True)
    made.add_column("seconds with\np99 > 5 ms", justify="right", no_wrap=True)
    for peer in (each for each in PEERS if found.median(case, "p50_us", each.name) is not None):
        cells = [_cell(found.median(case, metric, peer.name), metric, peer.name) for metric, _ in _COLUMNS]
        slow, of = (found.median(case, metric, peer.name) or 0.0 for metric in ("episodes", "episodes_of"))
        made.add_row(peer.title, *cells, f"{slow:g} of {of:g}")
    return made


def requests_table(found: BenchResults) -> Table | None:
    """Requests a second, closed loop."""
    shapes = [shape for shape in SHAPES if any(key[0] == shape for key in found.values)]
    if not shapes:
        return None
    made = Table(title="requests a second, closed loop; server CPU µs and frames a group behind them")
    made.add_column("who", no_wrap=True)
    for shape in shapes:
        made.add_column(shape.replace(", ", "\n"), justify="right", no_wrap=True)
    for peer in PEERS:
        cells = [_rate_cell(found, shape, peer.name) for shape in shapes]
        if any(cells):
            made.add_row(peer.title, *cells)
    return made


def figures(found: BenchResults, rates: tuple[int, ...]) -> list[Figure]:
    """Ours against the others of the same run."""
    made: list[Figure] = []
    for part in (OPEN_LOOP, PAUSES, BUSY):
        for rate in rates:
            made += _p99_figures(found, part, rate)
    for shape in SHAPES:
        made += _request_figures(found, shape)
    return made


def _p99_figures(found: BenchResults, part: str, rate: int) -> Iterator[Figure]:
    case = case_name(part, rate)
    ours = found.median(case, "p99_us", OURS)
    for peer, times_max in P99_MAX_TIMES.items():
        theirs, ratio = found.median(case, "p99_us", peer), found.ratio(case, "p99_us", OURS, peer)
        if ours is not None and theirs is not None and ratio is not None:
            what = f"p99 at {rate:,}/s to {peer}"
            yield Figure(part, what, "µs", ours, theirs, ratio, f"ratio ≤ {times_max:g}", ratio <= times_max)


def _request_figures(found: BenchResults, shape: str) -> Iterator[Figure]:
    ours = found.median(shape, "requests_s", OURS)
    for peer in ("valkey", "nats", "kafka", "kafka-flush"):
        theirs, ratio = found.median(shape, "requests_s", peer), found.ratio(shape, "requests_s", OURS, peer)
        if ours is None or theirs is None or ratio is None:
            continue
        least = None if shape == NO_AIM else REQUESTS_MIN_TIMES.get(peer)
        aim, met = ("", None) if least is None else (f"ratio ≥ {least:g}", ratio >= least)
        yield Figure("requests", f"{shape}, to {peer}", "/s", ours, theirs, ratio, aim, met)


def _rate_cell(found: BenchResults, shape: str, peer: str) -> str:
    rate = found.median(shape, "requests_s", peer)
    if rate is None:
        return ""
    cpu_us, frames = (found.median(shape, metric, peer) for metric in ("server_cpu_us", "batches_per_group"))
    return f"{rate:,.0f}\n{cpu_us or 0:.1f} µs, {_cell(frames, 'batches_per_group', peer)}".rstrip(", ")


def _cell(value: float | None, metric: str, peer: str) -> str:
    if value is None:
        return "not exposed" if peer == OURS and metric in _OF_OURS else ""
    if metric in ("batches_per_group", "server_cpu_us", "client_cpu_us"):
        return f"{value:,.2f}" if metric == "batches_per_group" else f"{value:,.1f}"
    return f"{value:,.0f}"
