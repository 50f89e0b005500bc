"""Prometheus' text format, written by hand: it is a page, and a client library would keep a second copy of every counter.

The one rule: a source is asked when somebody scrapes, and answers with what is counted already.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal

MEDIA_TYPE: Final = "text/plain; version=0.0.4"
Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Family:
    """All samples of one name. `name` has no suffix but its unit and, for counters, `_total`."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    samples: Sequence[tuple[Labels, float]] = ()
    suffixed: Sequence[tuple[str, Labels, float]] = field(default=())
    """Samples whose name goes on, of a histogram."""


Source = Callable[[], Awaitable[Iterable[Family]]]


def counter(name: str, said: str, value: float, **labels: str) -> Family:
    """A counter with one sample."""
    return Family(name, "counter", said, [(labels, value)])


def gauge(name: str, said: str, value: float, **labels: str) -> Family:
    """A gauge with one sample."""
    return Family(name, "gauge", said, [(labels, value)])


def counted(prefix: str, tally: Any, said: Mapping[str, str]) -> list[Family]:
    """A dataclass of counters: `{prefix}_{field}_total` for each of its fields, which all must be described."""
    return [
        counter(f"{prefix}_{each.name}_total", said[each.name], float(getattr(tally, each.name)))
        for each in fields(tally)
    ]


def exposition(families: Iterable[Family]) -> bytes:
    """The page. Families of one name are one family."""
    joined: dict[str, Family] = {}
    for each in families:
        before = joined.get(each.name)
        if before is None:
            joined[each.name] = each
        else:
            joined[each.name] = Family(
                each.name,
                each.kind,
                each.help,
                [*before.samples, *each.samples],
                [*before.suffixed, *each.suffixed],
            )
    return "".join(_shown(each) for each in joined.values()).encode()


def _shown(family: Family) -> str:
    lines = [f"# HELP {family.name} {_help(family.help)}", f"# TYPE {family.name} {family.kind}"]
    lines += [f"{family.name}{_labels(labels)} {_number(value)}" for labels, value in family.samples]
    lines += [f"{family.name}{suffix}{_labels(labels)} {_number(value)}" for suffix, labels, value in family.suffixed]
    return "\n".join(lines) + "\n"


def _labels(labels: Labels) -> str:
    return "{" + ",".join(f'{name}="{_value(value)}"' for name, value in labels.items()) + "}" if labels else ""


def _value(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _number(value: float) -> str:
    return repr(int(value)) if float(value).is_integer() and abs(value) < 1 << 62 else repr(float(value))
