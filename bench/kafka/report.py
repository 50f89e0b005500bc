"""How a run is read: a table of what everybody did, a table of ratios beside their aims, and both as JSON."""

from collections.abc import Sequence

from rich.table import Table

from bench.figures import Figure
from bench.kafka.cases import (
    AIMS,
    CASES,
    LATENCY,
    LATENCY_P99_MAX_TIMES_DISK,
    LATENCY_P99_MAX_US,
    OURS,
    PRODUCE_CPU_MAX_S_PER_GIB,
    SYSTEMS,
    Case,
)
from bench.kafka.results import DISK, BenchResults

ROWS = (
    ("produce_mb_s", "produce MB/s"),
    ("produce_records_s", "produce records/s"),
    ("produce_cpu_s_per_gib", "server CPU s/GiB produced"),
    ("consume_mb_s", "consume MB/s"),
    ("consume_records_s", "consume records/s"),
    ("consume_cpu_s_per_gib", "server CPU s/GiB consumed"),
    ("p50_us", "produce latency p50 µs"),
    ("p99_us", "produce latency p99 µs"),
    ("p999_us", "produce latency p99.9 µs"),
)


def values_table(found: BenchResults, title: str) -> Table:
    """Medians, one column per system."""
    systems = [each for each in SYSTEMS if any(key[2] == each.name for key in found.values)]
    disk = any(key[2] == DISK for key in found.values)
    made = Table(title=title)
    made.add_column("what", no_wrap=True)
    for system in systems:
        made.add_column(system.title, justify="right", no_wrap=True)
    if disk:
        made.add_column("bare disk\nfdatasync", justify="right", no_wrap=True)
    columns = [each.name for each in systems] + [DISK] * disk
    for case in (*(each.name for each in CASES), LATENCY):
        for metric, words in ROWS:
            cells = [found.median(case, metric, column) for column in columns]
            if any(cell is not None for cell in cells):
                made.add_row(f"{case}: {words}", *(_shown(cell) for cell in cells))
        made.add_section()
    return made


def figures(found: BenchResults) -> list[Figure]:
    """Ours against every other, with the aim where there is one."""
    made: list[Figure] = []
    for case in CASES:
        for part in ("produce", "consume"):
            made += _rates(found, case, part)
    for case in CASES:
        if (cpu := found.median(case.name, "produce_cpu_s_per_gib", OURS)) is not None:
            aim = f"≤ {PRODUCE_CPU_MAX_S_PER_GIB:g} s/GiB"
            met = cpu <= PRODUCE_CPU_MAX_S_PER_GIB
            made.append(Figure("CPU", f"produce {case.name}", "s/GiB", cpu, aim=aim, met=met))
    return made + _latency(found)


def _rates(found: BenchResults, case: Case, part: str) -> list[Figure]:
    metric = f"{part}_mb_s"
    ours = found.median(case.name, metric, OURS)
    if ours is None:
        return []
    made = []
    for system in SYSTEMS:
        other, ratio = found.median(case.name, metric, system.name), found.ratio(case.name, metric, OURS, system.name)
        if system.name == OURS or other is None or ratio is None:
            continue
        wanted = _ratio_min(part, system.name, case.size)
        aim, met = ("", None) if wanted is None else (f"≥ {wanted:g} ×", ratio >= wanted)
        what = f"{part} {case.name} / {system.name}"
        made.append(Figure(part, what, "MB/s", ours, other, ratio, aim, met))
    return made


def _ratio_min(part: str, system: str, size: int) -> float | None:
    for aim in AIMS:
        if aim.metric == part and aim.system == system and aim.size in (0, size):
            return aim.ratio_min
    return None


def _latency(found: BenchResults) -> list[Figure]:
    ours, disk = (found.median(LATENCY, "p99_us", each) for each in (OURS, DISK))
    if ours is None or disk is None:
        return []
    allowed = max(LATENCY_P99_MAX_US, LATENCY_P99_MAX_TIMES_DISK * disk)
    aim = f"≤ {LATENCY_P99_MAX_US:g} µs or {LATENCY_P99_MAX_TIMES_DISK:g} × disk"
    made = [Figure("latency", "p99 / bare fdatasync p99", "µs", ours, disk, ours / disk, aim, ours <= allowed)]
    for system in SYSTEMS:
        other = found.median(LATENCY, "p99_us", system.name)
        if system.name != OURS and other is not None:
            note = "less is better"
            made.append(Figure("latency", f"p99 / {system.name}", "µs", ours, other, ours / other, note=note))
    return made


def verdict(made: Sequence[Figure]) -> str:
    """One line."""
    judged = [each for each in made if each.met is not None]
    missed = [each.what for each in judged if not each.met]
    return f"{len(judged) - len(missed)} of {len(judged)} aims met" + (f"; not: {', '.join(missed)}" if missed else "")


def _shown(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:,.2f}"
