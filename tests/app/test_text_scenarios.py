"""Walrus's scenarios over the text protocol, on real processes: nothing acknowledged is lost, nothing is out of order.

The short form; tests/scenarios has them all, on every store.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.support.failpoints import FailpointFolder
from tests.support.server_process import SHORT_SESSIONS, ServeProcess, started
from tests.support.text_processes import ask, put_until_ok, read_to_the_end, session, state, text_process
from tests.support.waiting import until

from holdfast.vocabulary.errors import OutcomeUnknownError

NAMES = ("ann", "bob", "cid")
EVERY_TEN = {"WALRUS_MAX_SEGMENT_ENTRIES": "10"}


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[ServeProcess]]:
    made = [text_process(tmp_path, name, env=EVERY_TEN) for name in NAMES]
    with started(*made):
        yield made


def test_smoke_rollover_and_recovery(nodes: list[ServeProcess]) -> None:
    """30 messages over any node; six sealed segments over three leaders; all stopped and started."""
    for number in range(60):
        assert ask(nodes[number % 3], f"PUT logs {number}") == b"OK"
        if number % 10 == 9:
            segment = number // 10 + 2
            until(lambda segment=segment: _led_by_another(nodes[0], segment))  # type: ignore[misc]
    found = state(nodes[1], "logs")
    assert found["sealed_segments"] == {str(segment): 10 for segment in range(1, 7)}
    assert len(set(found["segment_leaders"].values())) == 3
    assert [ask(nodes[number % 3], "GET logs") for number in range(30)] == [b"OK %d" % number for number in range(30)]
    for node in nodes:
        assert node.terminate() == 0
    for node in nodes:
        node.start()
    until(lambda: state(nodes[2], "logs")["leader_node"])
    assert state(nodes[2], "logs")["sealed_segments"] == found["sealed_segments"]
    assert read_to_the_end(nodes[2], "logs") == [str(number) for number in range(30, 60)]
    assert ask(nodes[0], "PUT logs 60") == b"OK"
    assert ask(nodes[1], "GET logs") == b"OK 60"


def _led_by_another(node: ServeProcess, segment: int) -> bool:
    leaders = state(node, "logs")["segment_leaders"]
    return leaders.get(str(segment)) not in (None, leaders.get(str(segment - 1)))


LONG = pytest.mark.long


@pytest.mark.parametrize(
    "step",
    [pytest.param("rotation.due", marks=LONG), pytest.param("rotation.published", marks=LONG), "rotation.sealed"],
)
def test_a_leader_killed_while_it_seals_loses_nothing_and_seals_once(tmp_path: Path, step: str) -> None:
    failpoints = FailpointFolder(tmp_path / "failpoints")
    node = text_process(tmp_path, "ann", *SHORT_SESSIONS, env={**EVERY_TEN, **failpoints.environment})
    with started(node):
        failpoints.arm(step, "kill")
        for number in range(9):
            assert ask(node, f"PUT logs {number}") == b"OK"
        with suppress(OutcomeUnknownError):  # it may die before it answers
            ask(node, "PUT logs 9")
        failpoints.wait_taken(step, "kill")
        node.process.wait()
        node.start()
        for number in range(10, 15):
            put_until_ok(lambda: [node], f"PUT logs {number}")
        until(lambda: state(node, "logs")["current_segment"] == 2)
        found = state(node, "logs")
        assert found["current_segment"] == 2
        assert found["last_sealed_entry_offset"] == found["sealed_segments"]["1"] >= 10
        # What made the segment long enough was durable, so the tenth is there, too, whatever its writer was told.
        assert read_to_the_end(node, "logs") == [str(number) for number in range(15)]


def test_a_hundred_topics_in_exact_order_then_empty(nodes: list[ServeProcess]) -> None:
    topics, messages = [f"topic-{number}" for number in range(100)], 3
    for turn, node in enumerate(nodes):
        with session(node) as opened:
            for topic in topics:
                assert opened.ask(f"PUT {topic} {turn}".encode()) == b"OK"
    with session(nodes[0]) as opened:
        for topic in topics:
            replies = [opened.ask(f"GET {topic}".encode()) for _ in range(messages + 1)]
            assert replies == [*(b"OK %d" % number for number in range(messages)), b"EMPTY"]
