"""Histories as Elle and Porcupine read them."""

import json
from pathlib import Path

from tests.chaos.exports import elle_events, write_elle, write_porcupine
from tests.chaos.history import Event

HISTORY = [
    Event(0, "p0", "ok", "begin", {"kind": "idempotent"}),
    Event(0, "p1", "ok", "begin", {"kind": "plain"}),
    Event(0, "r0", "ok", "begin", {"kind": "reader"}),
    Event(1, "p0", "invoke", "send", {"partition": 0, "value": "a"}),
    Event(2, "p0", "invoke", "send", {"partition": 0, "value": "b"}),
    Event(3, "p1", "invoke", "send", {"partition": 0, "value": "x"}),
    Event(4, "p0", "ok", "send", {"partition": 0, "value": "a", "offset": 0}),
    Event(5, "p0", "invoke", "send", {"partition": 0, "value": "c"}),
    Event(6, "p0", "info", "send", {"partition": 0, "value": "b"}),
    Event(7, "p0", "ok", "send", {"partition": 0, "value": "c", "offset": 2}),
    Event(8, "r0", "ok", "read", {"partition": 0, "records": [[0, "a", 1], [1, "x", 1]]}),
    Event(9, "r0", "ok", "read", {"partition": 0, "records": [[2, "c", 1]]}),
]


def test_elle_sees_appends_and_whole_lists_of_idempotent_records() -> None:
    events = [(each["process"], each["type"], each["value"]) for each in elle_events(HISTORY)]
    assert events == [
        (0, "invoke", [["append", 0, 1]]),
        (1, "invoke", [["append", 0, 2]]),
        (0, "ok", [["append", 0, 1]]),
        (0, "invoke", [["append", 0, 4]]),  # the process that is free again
        (1, "info", [["append", 0, 2]]),
        (0, "ok", [["append", 0, 4]]),
        (1_000_000, "invoke", [["r", 0, None]]),
        (1_000_000, "ok", [["r", 0, [1]]]),
        (1_000_000, "invoke", [["r", 0, None]]),
        (1_000_000, "ok", [["r", 0, [1, 4]]]),
    ]


def test_elle_gets_edn(tmp_path: Path) -> None:
    write_elle(HISTORY, tmp_path / "elle.edn")
    first, *_, last = (tmp_path / "elle.edn").read_text().splitlines()
    assert first == "{:index 0, :time 1000000, :process 0, :type :invoke, :f :txn, :value [[:append 0 1]]}"
    assert last == "{:index 9, :time 9000000, :process 1000000, :type :ok, :f :txn, :value [[:r 0 [1 4]]]}"


def test_porcupine_gets_operations_with_their_times(tmp_path: Path) -> None:
    write_porcupine(HISTORY, tmp_path / "porcupine.json")
    found = json.loads((tmp_path / "porcupine.json").read_text())
    appends = [each for each in found if each["Input"]["op"] == "append"]
    assert [(each["ClientId"], each["Input"]["value"], each["Output"]) for each in appends] == [
        (0, 1, {"offset": 0}),
        (1, 2, {"unknown": True}),
        (2, 3, {"unknown": True}),
        (0, 4, {"offset": 2}),
    ]
    assert (appends[0]["Call"], appends[0]["Return"], appends[1]["Return"]) == (1_000_000, 4_000_000, 10_000_000)
    reads = [(each["Input"]["offset"], each["Output"]["value"]) for each in found if each["Input"]["op"] == "read"]
    assert reads == [(0, 1), (1, 3), (2, 4)]
