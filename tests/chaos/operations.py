"""A history as operations: what was invoked together with what came of it. Pure."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from tests.chaos.history import Event

PRODUCERS: Final = ("idempotent", "plain")


@dataclass(slots=True)
class Send:
    """A record that was sent. `outcome`: ok, fail or info; `answered_ms` is when it became known."""

    process: str
    partition: int
    value: str
    invoked_ms: int
    outcome: str = "info"
    offset: int = -1
    answered_ms: int = -1


@dataclass(frozen=True, slots=True)
class Read:
    """Records that a reader was given at once: (offset, value, leader epoch or -1)."""

    process: str
    partition: int
    records: tuple[tuple[int, str, int], ...]
    time_ms: int


@dataclass(frozen=True, slots=True)
class End:
    """An end offset, and the leader's epoch that came with it."""

    partition: int
    epoch: int
    end: int
    invoked_ms: int
    answered_ms: int


@dataclass(frozen=True, slots=True)
class Commit:
    """An acknowledged commit of a group's offset."""

    group: str
    partition: int
    offset: int
    answered_ms: int


@dataclass(frozen=True, slots=True)
class Assigned:
    """A partition that became a member's; `first`: the first offset it was given then, -1 if none."""

    group: str
    process: str
    partition: int
    time_ms: int
    first: int


@dataclass(slots=True)
class Operations:
    """Everything in a history, by kind."""

    kinds: dict[str, str] = field(default_factory=dict)  # process → kind
    groups: dict[str, str] = field(default_factory=dict)  # member → group
    sends: dict[str, Send] = field(default_factory=dict)  # value → send
    reads: list[Read] = field(default_factory=list)
    ends: list[End] = field(default_factory=list)
    leaders: dict[tuple[int, int], set[int]] = field(default_factory=lambda: defaultdict(set))  # (partition, epoch)
    commits: list[Commit] = field(default_factory=list)
    assigned: list[Assigned] = field(default_factory=list)
    done: dict[tuple[str, int], int] = field(default_factory=dict)  # (reader, partition) → end
    refusals: list[tuple[str, int, str]] = field(default_factory=list)
    faults: list[tuple[str, str]] = field(default_factory=list)
    malformed: list[str] = field(default_factory=list)  # what no client could have written

    @property
    def partitions(self) -> list[int]:
        return sorted({send.partition for send in self.sends.values()} | {read.partition for read in self.reads})

    def of_kind(self, *kinds: str) -> list[str]:
        """The processes of these kinds."""
        return [process for process, kind in self.kinds.items() if kind in kinds]


def operations(history: Iterable[Event]) -> Operations:
    """Put a history together."""
    found = Operations()
    asked_ms: dict[tuple[str, int], int] = {}
    open_assignments: dict[tuple[str, int], int] = {}
    for event in history:
        value = event.value
        match event.f, event.type:
            case "begin", _:
                found.kinds[event.process] = value["kind"]
                if "group" in value:
                    found.groups[event.process] = value["group"]
            case "send", _:
                _send(event, found)
            case "read", "ok":
                records = tuple((offset, name, epoch) for offset, name, epoch in value["records"])
                found.reads.append(Read(event.process, value["partition"], records, event.time_ms))
                at = open_assignments.pop((event.process, value["partition"]), None)
                if at is not None and records:
                    group = found.groups[event.process]
                    found.assigned.append(Assigned(group, event.process, value["partition"], at, records[0][0]))
            case "end", "invoke":
                asked_ms[event.process, value["partition"]] = event.time_ms
            case "end", "ok":
                invoked_ms = asked_ms.pop((event.process, value["partition"]), event.time_ms)
                found.ends.append(End(value["partition"], value["epoch"], value["end"], invoked_ms, event.time_ms))
            case "lead", "ok":
                found.leaders[value["partition"], value["epoch"]].add(value["leader"])
            case "commit", "ok":
                group = found.groups[event.process]
                found.commits.append(Commit(group, value["partition"], value["offset"], event.time_ms))
            case "assign", _:
                open_assignments[event.process, value["partition"]] = event.time_ms
            case "done", _:
                found.done[event.process, value["partition"]] = value["end"]
            case "refuse", _:
                error = ": ".join(filter(None, (value["error"], value.get("reason"))))
                found.refusals.append((event.process, value["partition"], error))
            case "fault", "invoke":
                found.faults.append((value["fault"], value["target"]))
            case _:
                pass
    _find_unnamed(found)
    return found


def _find_unnamed(found: Operations) -> None:
    """Offsets of records acknowledged as duplicates, which names none: where they were read. -1: nowhere, they are lost."""
    unnamed = {send.value: send for send in found.sends.values() if send.outcome == "ok" and send.offset < 0}
    for read in found.reads if unnamed else ():
        for offset, value, _ in read.records:
            if value in unnamed and unnamed[value].partition == read.partition:
                unnamed.pop(value).offset = offset


def _send(event: Event, found: Operations) -> None:
    name = event.value["value"]
    if event.type == "invoke":
        if name in found.sends:
            found.malformed.append(f"{name} was invoked twice")
            return
        found.sends[name] = Send(event.process, event.value["partition"], name, event.time_ms)
        return
    send = found.sends.get(name)
    if send is None:
        found.malformed.append(f"{name} was answered and never invoked")
        return
    send.outcome, send.answered_ms = event.type, event.time_ms
    if event.type == "ok":
        named = event.value["offset"]
        send.offset = -1 if named is None else named
