"""Prometheus' text format, read: samples by name. What is not a sample is skipped."""

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

_SAMPLE: Final = re.compile(r"(?m)^([A-Za-z_:][\w:]*)(?:\{(.*)\})? (\S+)$")
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPED: Final = re.compile(r"\\(.)")


class MetricSample(NamedTuple):
    """One number of a page."""

    labels: Mapping[str, str]
    value: float


class MetricsPage:
    """The samples of one node."""

    def __init__(self, text: str) -> None:
        self._samples: dict[str, list[MetricSample]] = {}
        for name, labels, value in _SAMPLE.findall(text):
            try:
                self._samples.setdefault(name, []).append(MetricSample(dict(_labels(labels)), float(value)))
            except ValueError:
                continue

    def samples(self, name: str) -> list[MetricSample]:
        """All samples of a name."""
        return self._samples.get(name, [])

    def value(self, name: str, default: float = 0.0) -> float:
        """The only sample of a name, or the sum of all."""
        found = self._samples.get(name)
        return sum(each.value for each in found) if found else default

    def by(self, name: str, label: str) -> dict[str, float]:
        """Sums of a name by one label."""
        found: dict[str, float] = {}
        for labels, value in self.samples(name):
            found[labels.get(label, "")] = found.get(labels.get(label, ""), 0.0) + value
        return found


def _labels(text: str) -> Iterator[tuple[str, str]]:
    for name, value in _LABEL.findall(text):
        yield name, _ESCAPED.sub(lambda found: "\n" if found[1] == "n" else found[1], value)
