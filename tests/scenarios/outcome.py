"""What a scenario showed: every acknowledged message is read, and those of a writer in the order in which it sent them. Pure.

A message is `writer:number`. Whoever gets no answer sends again, and a cursor delivers again what a dead node had taken: a message
may be there twice, which is counted and is no fault. Its first place counts for the order.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Of one scenario. `messages`: acknowledged; `figures`: what else it measured."""

    scenario: str
    messages: int = 0
    faults: int = 0
    lost: int = 0
    out_of_order: int = 0
    repeated: int = 0
    figures: Mapping[str, float] = field(default_factory=dict)

    @property
    def clean(self) -> bool:
        return self.messages > 0 and not self.lost and not self.out_of_order


def judged(
    scenario: str,
    acknowledged: Mapping[str, Sequence[str]],
    read: Mapping[str, Sequence[str]],
    *,
    faults: int = 0,
    **figures: float,
) -> Outcome:
    """The outcome from what was acknowledged and what was read, by topic."""
    lost = out_of_order = repeated = 0
    for topic in acknowledged.keys() | read.keys():
        found = read.get(topic, ())
        first = list(dict.fromkeys(found))
        lost += len(set(acknowledged.get(topic, ())) - set(first))
        repeated += len(found) - len(first)
        out_of_order += _out_of_order(first)
    messages = sum(len(set(each)) for each in acknowledged.values())
    return Outcome(
        scenario=scenario,
        messages=messages,
        faults=faults,
        lost=lost,
        out_of_order=out_of_order,
        repeated=repeated,
        figures=figures,
    )


def _out_of_order(messages: Iterable[str]) -> int:
    """How many come after a later one of the same writer."""
    highest: dict[str, int] = {}
    count = 0
    for message in messages:
        writer, _, number = message.partition(":")
        count += int(number) < highest.get(writer, -1)
        highest[writer] = max(int(number), highest.get(writer, -1))
    return count
