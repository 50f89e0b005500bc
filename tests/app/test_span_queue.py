"""The queue of spans: bounded, never in anybody's way, and one line when the collector is lost or back."""

import logging
import threading
from collections.abc import Sequence

import pytest
from tests.support.waiting import until

from holdfast.app.tracing.settings import TraceSettings
from holdfast.app.tracing.span_queue import SpanQueue
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import InvalidError


def test_spans_are_sent_in_batches_and_the_rest_when_it_stops() -> None:
    sent: list[Sequence[int]] = []

    def export(batch: Sequence[int]) -> bool:
        sent.append(batch)
        return True

    queue: SpanQueue[int] = SpanQueue(export, queue_max=100, batch_max=3, interval_s=60)
    queue.start()
    for span in range(7):
        queue.add(span)
    until(lambda: len(sent) >= 2)
    queue.stop(10)
    assert [span for batch in sent for span in batch] == list(range(7))
    assert max(map(len, sent)) == 3
    assert (queue.counters.exported, queue.counters.failed, queue.counters.dropped) == (7, 0, 0)


def test_a_collector_that_does_not_answer_holds_nobody_up_and_nothing_grows() -> None:
    entered, released = threading.Event(), threading.Event()

    def hangs(_: Sequence[int]) -> bool:
        entered.set()
        return released.wait(60)

    queue: SpanQueue[int] = SpanQueue(hangs, queue_max=10, batch_max=1, interval_s=60)
    queue.start()
    queue.add(0)
    assert entered.wait(60)
    for span in range(1, 1_001):
        queue.add(span)
    assert len(queue) == 10
    assert queue.counters.dropped == 990
    clock = RealClock()
    began_ms = clock.boot_ms()
    queue.stop(0.05)
    assert clock.boot_ms() - began_ms < 30_000, "a stop does not wait for it"
    released.set()


def test_losing_the_collector_is_one_line_and_so_is_finding_it(caplog: pytest.LogCaptureFixture) -> None:
    answers = iter([False, False, True, True])

    def export(_: Sequence[int]) -> bool:
        answer = next(answers)
        if not answer:
            raise OSError("refused")
        return answer

    queue: SpanQueue[int] = SpanQueue(export, queue_max=10, batch_max=1, interval_s=60)
    with caplog.at_level(logging.WARNING):
        queue.start()
        for span in range(4):
            queue.add(span)
        until(lambda: queue.counters.exported == 2)
        queue.stop(10)
    assert queue.counters.failed == 2
    assert [record.getMessage() for record in caplog.records] == [
        "the trace collector does not answer: spans are lost",
        "the trace collector answers again",
    ]


def test_where_traces_go_is_checked_before_anything_starts() -> None:
    assert not TraceSettings().is_on
    assert TraceSettings(export="otlp:http://c:4318").endpoint() == "http://c:4318/v1/traces"
    assert TraceSettings(export="otlp:https://c/otlp/v1/traces").endpoint() == "https://c/otlp/v1/traces"
    for refused in ("http://c:4318", "otlp:c:4318", "otlp:ftp://c", "jaeger"):
        with pytest.raises(InvalidError, match="otlp:http"):
            TraceSettings(export=refused)
    with pytest.raises(InvalidError):
        TraceSettings(ratio=1.5)
