"""Prometheus' text format, written by hand: it is a page, and a client library would keep a second copy of every counter.

The one rule: a source is asked when somebody scrapes, and answers with what is counted already.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal

MEDIA_TYPE: Final = "text/plain; version=0.0.4"
Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """All samples of one name. `name` has no suffix but its unit and, for counters, `_total`."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    samples: Sequence[tuple[Labels, float]] = ()
    suffixed: Sequence[tuple[str, Labels, float]] = field(default=())
    """Samples whose name goes on, of a histogram."""


MetricSource = Callable[[], Awaitable[Iterable[MetricFamily]]]


def counter(name: str, help_text: str, value: float, **labels: str) -> MetricFamily:
    """A counter with one sample."""
    return MetricFamily(name, "counter", help_text, [(labels, value)])


def gauge(name: str, help_text: str, value: float, **labels: str) -> MetricFamily:
    """A gauge with one sample."""
    return MetricFamily(name, "gauge", help_text, [(labels, value)])


def counters_of(prefix: str, tally: Any, help_text: Mapping[str, str]) -> list[MetricFamily]:
    """A dataclass of counters: `{prefix}_{field}_total` for each of its fields, which all must be described."""
    return [
        counter(f"{prefix}_{each.name}_total", help_text[each.name], float(getattr(tally, each.name)))
        for each in fields(tally)
    ]


def render_exposition(families: Iterable[MetricFamily]) -> bytes:
    """The page. Families of one name are one family."""
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
