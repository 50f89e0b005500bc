"""Histories in the forms that other checkers read: Elle's list-append (EDN) and Porcupine's operations (JSON).

Elle sees a partition as a list: a record is an append, what a reader has read so far is the whole list. Porcupine sees appends that
return offsets and reads of single offsets. Records are numbers there, in the order in which they were sent. Only records of
idempotent producers are exported to Elle, whose lists have every element once. A process of either has one operation at a time,
so that each outstanding record has a process of its own; one without an outcome is never used again.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from tests.chaos.history import Event
from tests.chaos.operations import Operations, operations

READS_MAX: Final = 200  # of one reader and partition: each repeats everything before it


class _Slots:
    """Process numbers: taken by an invocation, free again when it is known what came of it."""

    def __init__(self) -> None:
        self._free: list[int] = []
        self._made = 0

    def take(self) -> int:
        if self._free:
            return self._free.pop()
        self._made += 1
        return self._made - 1

    def give(self, number: int) -> None:
        self._free.append(number)


def numbers_of(ops: Operations) -> dict[str, int]:
    """The number of each record."""
    return {value: number for number, value in enumerate(ops.sends, start=1)}


def elle_events(history: Sequence[Event]) -> Iterator[dict[str, Any]]:
    """Elle's history: maps with :index, :time, :process, :type, :f and :value, in order."""
    ops = operations(history)
    numbers, idempotent, slots = numbers_of(ops), set(ops.of_kind("idempotent")), _Slots()
    taken: dict[str, int] = {}
    lists: dict[tuple[str, int], list[int]] = defaultdict(list)
    every = _read_spacing(history)
    readers = {name: 1_000_000 + at for at, name in enumerate(ops.of_kind("reader"))}
    index = 0
    seen: dict[tuple[str, int], int] = defaultdict(int)
    for event in history:
        made: list[tuple[int, str, list[list[Any]]]] = []
        if event.f == "send" and event.process in idempotent:
            value = event.value["value"]
            append = [["append", event.value["partition"], numbers[value]]]
            if event.type == "invoke":
                taken[value] = slots.take()
                made = [(taken[value], "invoke", append)]
            elif value in taken:
                process = taken.pop(value)
                made = [(process, event.type, append)]
                if event.type != "info":
                    slots.give(process)
        elif event.f == "read" and event.process in readers:
            key = (event.process, event.value["partition"])
            kept = [numbers[value] for _, value, _ in event.value["records"] if _is_of(ops, value, idempotent)]
            lists[key] += kept
            seen[key] += 1
            if seen[key] % every[key] == 0 or seen[key] == every[key, "all"]:
                process = readers[event.process]
                made = [(process, "invoke", [["r", key[1], None]]), (process, "ok", [["r", key[1], list(lists[key])]])]
        for process, status, value in made:
            yield {
                "index": index,
                "time": event.time_ms * 1_000_000,
                "process": process,
                "type": status,
                "f": "txn",
                "value": value,
            }
            index += 1


def _is_of(ops: Operations, value: str, producers: set[str]) -> bool:
    send = ops.sends.get(value)
    return send is not None and send.process in producers


def _read_spacing(history: Iterable[Event]) -> dict[Any, int]:
    counts: dict[tuple[str, int], int] = defaultdict(int)
    for event in history:
        if event.f == "read":
            counts[event.process, event.value["partition"]] += 1
    spacing: dict[Any, int] = {key: -(-count // READS_MAX) for key, count in counts.items()}
    return {**spacing, **{(key, "all"): count for key, count in counts.items()}}


def edn(value: object) -> str:
    """A value of a history as EDN; strings are keywords."""
    match value:
        case None:
            return "nil"
        case bool():
            return str(value).lower()
        case str():
            return f":{value}"
        case dict():
            return "{" + ", ".join(f":{name} {edn(each)}" for name, each in value.items()) + "}"
        case list():
            return "[" + " ".join(map(edn, value)) + "]"
        case _:
            return str(value)


def write_elle(history: Sequence[Event], path: Path) -> None:
    """For `elle-cli --model list-append`: one map per line."""
    with path.open("w") as lines:
        for event in elle_events(history):
            lines.write(edn(event) + "\n")


def porcupine_operations(history: Sequence[Event]) -> Iterator[dict[str, Any]]:
    """Porcupine's operations: ClientId, Call, Return, Input {op, partition, value, offset}, Output {offset, value, unknown}; in ns.

    What nobody knows returns at the end of time. Refused for good: left out.
    """
    ops = operations(history)
    numbers, slots = numbers_of(ops), _Slots()
    last_ms = max((event.time_ms for event in history), default=0)
    moments: list[tuple[int, int, str]] = []
    for send in ops.sends.values():
        if send.outcome != "fail":
            moments.append((send.invoked_ms, 0, send.value))
            if send.outcome == "ok":
                moments.append((send.answered_ms, 1, send.value))
    client: dict[str, int] = {}
    for _, returning, value in sorted(moments):
        send = ops.sends[value]
        if returning:
            slots.give(client[value])
            continue
        client[value] = slots.take()
        known = send.outcome == "ok"
        yield {
            "ClientId": client[value],
            "Call": send.invoked_ms * 1_000_000,
            "Return": (send.answered_ms if known else last_ms + 1) * 1_000_000,
            "Input": {"op": "append", "partition": send.partition, "value": numbers[value]},
            "Output": {"offset": send.offset} if known else {"unknown": True},
        }
    readers = {name: 1_000_000 + at for at, name in enumerate(ops.of_kind("reader", "member"))}
    for read in ops.reads:
        for offset, value, _ in read.records:
            yield {
                "ClientId": readers[read.process],
                "Call": read.time_ms * 1_000_000,
                "Return": read.time_ms * 1_000_000,
                "Input": {"op": "read", "partition": read.partition, "offset": offset},
                "Output": {"value": numbers.get(value, 0)},
            }


def write_porcupine(history: Sequence[Event], path: Path) -> None:
    """A JSON array of operations."""
    path.write_text("[\n" + ",\n".join(json.dumps(each) for each in porcupine_operations(history)) + "\n]\n")
