"""Prometheus' text format.

The one rule: sources are read at scrape time and return what is counted already; there is no second copy of a counter.

By hand, not by `prometheus_client`: its collectors are synchronous while sources await the store, so it could only format a
registry that is built and thrown away per scrape, and the page would change (`1.0` for `1`). Tests read the page with its parser.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal

from holdfast.vocabulary.histogram import Histogram

EXPOSITION_MEDIA_TYPE: Final = "text/plain; version=0.0.4"
Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """All samples of one name, which ends in its unit and, for counters, `_total`."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    samples: Sequence[tuple[Labels, float]] = ()
    suffixed: Sequence[tuple[str, Labels, float]] = field(default=())
    """Samples of a histogram, whose names have a suffix."""


MetricSource = Callable[[], Awaitable[Iterable[MetricFamily]]]


def counter(name: str, help_text: str, value: float, **labels: str) -> MetricFamily:
    """A counter with one sample."""
    return MetricFamily(name, "counter", help_text, [(labels, value)])


def gauge(name: str, help_text: str, value: float, **labels: str) -> MetricFamily:
    """A gauge with one sample."""
    return MetricFamily(name, "gauge", help_text, [(labels, value)])


def histogram(name: str, help_text: str, observed: Histogram | Iterable[tuple[Labels, Histogram]]) -> MetricFamily:
    """A histogram, or several with labels."""
    suffixed: list[tuple[str, Labels, float]] = []
    for labels, each in [({}, observed)] if isinstance(observed, Histogram) else observed:
        bounds = (*(f"{bound:g}" for bound in each.bounds), "+Inf")
        counts = each.cumulative()
        suffixed += [("_bucket", {**labels, "le": le}, at_most) for le, at_most in zip(bounds, counts, strict=True)]
        suffixed += [("_count", labels, counts[-1]), ("_sum", labels, each.sum)]
    return MetricFamily(name, "histogram", help_text, suffixed=suffixed)


def counters_of(prefix: str, counters: Any, help_text: Mapping[str, str]) -> list[MetricFamily]:
    """A dataclass of counters: `{prefix}_{field}_total` for each field; all need a help text."""
    return [
        counter(f"{prefix}_{each.name}_total", help_text[each.name], float(getattr(counters, each.name)))
        for each in fields(counters)
    ]


def render_exposition(families: Iterable[MetricFamily]) -> bytes:
    """The page. Families of the same name are merged."""
    joined: dict[str, MetricFamily] = {}
    for each in families:
        before = joined.get(each.name)
        if before is None:
            joined[each.name] = each
        else:
            joined[each.name] = MetricFamily(
                each.name,
                each.kind,
                each.help,
                [*before.samples, *each.samples],
                [*before.suffixed, *each.suffixed],
            )
    return "".join(_render_family(each) for each in joined.values()).encode()


def _render_family(family: MetricFamily) -> str:
    lines = [f"# HELP {family.name} {_escape_help(family.help)}", f"# TYPE {family.name} {family.kind}"]
    lines += [f"{family.name}{_format_labels(labels)} {_format_number(value)}" for labels, value in family.samples]
    lines += [
        f"{family.name}{suffix}{_format_labels(labels)} {_format_number(value)}"
        for suffix, labels, value in family.suffixed
    ]
    return "\n".join(lines) + "\n"


def _format_labels(labels: Labels) -> str:
    return "{" + ",".join(f'{name}="{_escape_label(value)}"' for name, value in labels.items()) + "}" if labels else ""


def _escape_label(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _escape_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _format_number(value: float) -> str:
    return repr(int(value)) if float(value).is_integer() and abs(value) < 1 << 62 else repr(float(value))
