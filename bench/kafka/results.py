"""Everything a run found: each value of each round, what could not be measured, and why."""

import statistics
from dataclasses import dataclass, field
from typing import Any, Final

DISK: Final = "disk"  # stands where a system's name stands

Key = tuple[str, str, str]  # case, metric, system


@dataclass
class BenchResults:
    """Values are kept by round: a ratio is of values of the same round."""

    values: dict[Key, dict[int, float]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)  # system → why

    def add(self, case: str, metric: str, system: str, round_: int, value: float) -> None:
        self.values.setdefault((case, metric, system), {})[round_] = value

    def median(self, case: str, metric: str, system: str) -> float | None:
        values = self.values.get((case, metric, system))
        return statistics.median(values.values()) if values else None

    def ratio(self, case: str, metric: str, system: str, to: str) -> float | None:
        """The median of each round's ratio."""
        mine, other = (self.values.get((case, metric, each), {}) for each in (system, to))
        ratios = [value / other[round_] for round_, value in mine.items() if other.get(round_, 0) > 0]
        return statistics.median(ratios) if ratios else None

    def others_cores(self) -> float:
        """How many cores programs that are no part of a turn used meanwhile: the noise."""
        seen = [
            value
            for key, values in self.values.items()
            if key[1].endswith("_others_cores")
            for value in values.values()
        ]
        return statistics.median(seen) if seen else 0.0

    def as_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for (case, metric, system), values in self.values.items():
            rounds = [values[round_] for round_ in sorted(values)]
            cell = {"median": statistics.median(rounds), "rounds": rounds}
            found.setdefault(case, {}).setdefault(metric, {})[system] = cell
        return {"values": found, "failures": self.failures, "missing": self.missing}
