"""The history of a heap's clients as operations: what was invoked together with what came of it. Pure.

Lines are those of `tests.chaos.history`; a `call` joins an invocation and its completion. A lease is named by [topic, partition,
offset of the message, offset of its GRANT], a message by [topic, partition, offset].

| function | fields | by |
| --- | --- | --- |
| `clock` | `wall_ms`: the wall clock at this moment | the run, at its beginning and its end |
| `enqueue` | `value`, `priority`, `delay_ms`; `ok` has its `place` and whether it was a `duplicate` | producers |
| `pop` | `ok` has `messages` [[value, priority, rank bound, leader epoch, *lease]]; `since_ms`, of a stream | consumers |
| `ack`, `nack`, `release`, `extend`, `bury` | `value`, `lease`; `fail`: it is lost. `exact`: `ok` says it was held | consumers |
| `reprioritise`, `cancel` | `value`, `place`; `priority` | operators |
| `stats` | what a leader counts in a partition, when all is over | the run |
| `drained` | nothing is left | the run |
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.chaos.history import Event

SETTLING = ("ack", "nack", "release", "extend", "bury")
CHANGING = ("reprioritise", "cancel")


class Place(NamedTuple):
    """Where a message was first written."""

    topic: str
    partition: int
    offset: int


class LeaseName(NamedTuple):
    """A lease: of which message, by which GRANT."""

    topic: str
    partition: int
    offset: int
    granted_at: int

    @property
    def place(self) -> Place:
        """The message."""
        return Place(*self[:3])


@dataclass(slots=True)
class Enqueued:
    """A value that was enqueued, once or again. `outcome`: ok if any call was, fail if all were, info otherwise."""

    value: str
    process: str
    invoked_ms: int
    priority: int
    delay_ms: int
    outcome: str = "fail"
    answered_ms: int = -1  # the first ok
    places: set[Place] = field(default_factory=set)
    duplicates: int = 0


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message that a consumer got. `invoked_ms`: nobody had asked for it before."""

    process: str
    value: str
    priority: int
    bound: int
    epoch: int
    lease: LeaseName
    invoked_ms: int
    answered_ms: int


@dataclass(slots=True)
class Call:
    """An operation on a lease or a message. `outcome`: ok, fail (it had no effect) or info."""

    f: str
    process: str
    value: str
    target: tuple[Any, ...]
    invoked_ms: int
    priority: int = 0
    exact: bool = False
    outcome: str = "info"
    answered_ms: int = -1


@dataclass(slots=True)
class Operations:
    """Everything in a history, by kind."""

    enqueued: dict[str, Enqueued] = field(default_factory=dict)  # by value
    deliveries: list[Delivery] = field(default_factory=list)
    settlements: list[Call] = field(default_factory=list)  # whose target is a `LeaseName`
    changes: list[Call] = field(default_factory=list)  # whose target is a `Place`
    stats: dict[tuple[str, int], dict[str, int]] = field(default_factory=dict)  # by topic and partition
    refusals: list[tuple[str, str]] = field(default_factory=list)
    faults: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    wall_offsets_ms: list[int] = field(default_factory=list)  # of the wall clock, to the history's times
    drained: bool = False


def operations(history: Iterable[Event]) -> Operations:
    """Put a history together."""
    found = Operations()
    calls: dict[tuple[str, int], Event] = {}
    settled: dict[tuple[str, int], Call] = {}
    for event in history:
        value, name = event.value, (event.process, event.value.get("call", -1))
        match event.f, event.type:
            case "clock", _:
                found.wall_offsets_ms.append(value["wall_ms"] - event.time_ms)
            case "enqueue", "invoke":
                _enqueue_invoked(event, found)
            case "enqueue", _:
                _enqueue_answered(event, found)
            case "pop", "invoke":
                calls[name] = event
            case "pop", "ok":
                invoked_ms = value["since_ms"] if "since_ms" in value else calls.pop(name).time_ms
                found.deliveries += [_delivery(event, each, invoked_ms) for each in value["messages"]]
            case (("ack" | "nack" | "release" | "extend" | "bury" | "reprioritise" | "cancel"), "invoke"):
                settled[name] = _called(event)
                (found.settlements if event.f in SETTLING else found.changes).append(settled[name])
            case (("ack" | "nack" | "release" | "extend" | "bury" | "reprioritise" | "cancel"), _):
                call = settled.pop(name)
                call.outcome, call.answered_ms = event.type, event.time_ms
            case "stats", _:
                found.stats[value["topic"], value["partition"]] = value["counters"]
            case "drained", _:
                found.drained = True
            case "refuse", _:
                found.refusals.append((event.process, value["error"]))
            case "fault", "invoke":
                found.faults[value["fault"]] += 1
            case _:
                pass
    return found


def _enqueue_invoked(event: Event, found: Operations) -> None:
    value = event.value
    known = found.enqueued.get(value["value"])
    if known is None:
        known = Enqueued(value["value"], event.process, event.time_ms, value["priority"], value["delay_ms"])
        found.enqueued[known.value] = known
    if known.outcome == "fail":
        known.outcome = "info"


def _enqueue_answered(event: Event, found: Operations) -> None:
    known = found.enqueued[event.value["value"]]
    if event.type == "ok":
        known.places.add(Place(*event.value["place"]))
        known.duplicates += event.value["duplicate"]
        if known.outcome != "ok":
            known.outcome, known.answered_ms = "ok", event.time_ms


def _delivery(event: Event, message: list[Any], invoked_ms: int) -> Delivery:
    value, priority, bound, epoch, *lease = message
    return Delivery(event.process, value, priority, bound, epoch, LeaseName(*lease), invoked_ms, event.time_ms)


def _called(event: Event) -> Call:
    value = event.value
    target = LeaseName(*value["lease"]) if event.f in SETTLING else Place(*value["place"])
    return Call(
        event.f,
        event.process,
        value["value"],
        target,
        event.time_ms,
        priority=value.get("priority", 0),
        exact=value.get("exact", False),
    )
