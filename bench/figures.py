"""Figures: what a measurement found, beside its reference and what was aimed at. Data, and how a person or a program reads it."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from rich.table import Table

from bench.measure import Compared


@dataclass(frozen=True)
class Figure:
    """One line. `ratio` is what was measured against a reference in the same run; `aim` is in words; `met` is its verdict."""

    part: str
    what: str
    unit: str
    ours: float
    reference: float | None = None
    ratio: float | None = None
    aim: str = ""
    met: bool | None = None
    note: str = ""

    def json(self) -> str:
        return json.dumps(asdict(self))


def against(
    part: str, what: str, unit: str, found: Compared, *, ratio_min: float | None = None, note: str = ""
) -> Figure:
    """A figure with its reference."""
    aim = "" if ratio_min is None else f"ratio ≥ {ratio_min}"
    met = None if ratio_min is None else found.ratio >= ratio_min
    return Figure(part, what, unit, found.ours, found.reference, found.ratio, aim, met, note)


def table(figures: Sequence[Figure], title: str) -> Table:
    """All of them, one below another, parts apart."""
    made = Table(title=title)
    made.add_column("what")
    for name in ("ours", "reference", "ratio", "aim"):
        made.add_column(name, justify="right", no_wrap=True)
    for before, each in zip((None, *figures), figures, strict=False):
        if before is not None and before.part != each.part:
            made.add_section()
        verdict = {None: each.aim, True: f"{each.aim} ✓", False: f"[red]{each.aim} ✗[/red]"}[each.met]
        what = f"{each.part}: {each.what}" + (f"\n[dim]{each.note}[/dim]" if each.note else "")
        made.add_row(what, f"{_shown(each.ours)} {each.unit}", _shown(each.reference), _shown(each.ratio), verdict)
    return made


def _shown(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:,.2f}"
