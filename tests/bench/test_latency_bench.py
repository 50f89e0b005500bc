"""The latency benchmark: its schedule leaves nothing out, its programs run against real servers, its report judges by the aims."""

import os
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from bench.latency.__main__ import arguments, plan_of, run
from bench.latency.frames import kafka_frame
from bench.latency.load import bare_disk, closed_loop, open_loop
from bench.latency.peers import DISK, OURS, PEERS, Running, ceiling, holdfast
from bench.latency.report import figures, latency_tables, requests_table
from bench.latency.runs import BUSY, OPEN_LOOP, PAUSES, REQUESTS, SHAPES, LatencyResults, RunPlan, case_name
from bench.latency.samples import episodes, p99_of_each_second, percentiles
from bench.latency.wal_metrics import GROUP_BATCHES, HANDOVER, histograms, wal_figures
from tests.support.waiting import until

from holdfast.vocabulary.errors import UnavailableError

pytest.importorskip("confluent_kafka", reason="topics are created with confluent-kafka")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="costs are read from /proc")
needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler (cc)")

QUICK = RunPlan(rates=(500,), seconds=1.0, warm_up_s=0.2, request_seconds=0.2, request_rounds=1)


def test_percentiles_are_of_all_requests_and_of_each_second() -> None:
    times_us = [*range(1, 101), *(each * 100 for each in range(1, 101))]
    assert percentiles(range(1, 1_002)) == {"p50_us": 501, "p99_us": 991, "p999_us": 1_000, "max_us": 1_001}
    assert p99_of_each_second(times_us, 100) == [99, 9_900]
    assert p99_of_each_second([7] * 150, 100) == [7, 7]  # the last second was cut
    assert episodes([99, 5_000, 5_001, 9_900]) == 2


@contextmanager
def one_stop(pid: int, *, started: Path, after_s: float, for_s: float) -> Iterator[None]:
    """So long after the schedule has started."""

    def stop() -> None:
        until(started.exists)
        threading.Event().wait(after_s)
        os.kill(pid, signal.SIGSTOP)
        threading.Event().wait(for_s)
        os.kill(pid, signal.SIGCONT)

    stopping = threading.Thread(target=stop)
    stopping.start()
    try:
        yield
    finally:
        stopping.join()


@needs_compiler
@pytest.mark.parametrize("server", [True, False], ids=["server", "disk"])
def test_a_stop_counts_for_every_request_that_was_due_meanwhile(tmp_path: Path, server: bool) -> None:
    """A client that waits for an answer before it sends the next would see one slow request."""
    times = tmp_path / "times"
    stop = partial(one_stop, started=times, after_s=0.3, for_s=0.4)
    with ceiling(tmp_path, 1) if server else nullcontext() as running:
        load = partial(open_loop, running) if running else partial(bare_disk, tmp_path)
        done, samples = load(times, per_second=1_000, size=1024, warm_up_s=0.0, seconds=2.0, disturbance=stop)
    assert (done["requests"], len(samples.latency_us), len(samples.late_us)) == (2_000, 2_000, 2_000)
    assert done["unanswered"] == 0
    assert sum(each >= 100_000 for each in samples.latency_us) >= 290  # those due in the first 300 ms of it
    assert max(samples.latency_us) >= 390_000


@needs_compiler
@pytest.mark.parametrize(
    "peer",
    [
        "ceiling",
        "bare-server",
        "publishing-server",
        *(pytest.param(each, marks=pytest.mark.long) for each in ("valkey", "nats")),
    ],
)
def test_every_protocol_is_answered(tmp_path: Path, peer: str) -> None:
    (serving,) = (each.serving for each in PEERS if each.name == peer)
    assert serving is not None
    with serving(tmp_path / "server", 1) as server:
        for connections, depth in SHAPES.values():
            done = closed_loop(server, connections=connections, depth=depth, size=1024, warm_up_s=0.1, seconds=0.2)
            assert done["requests"] > 0
        done, _ = open_loop(server, tmp_path / "times", per_second=200, size=1024, warm_up_s=0.1, seconds=0.2)
        assert (done["requests"], done["failed"], done["unanswered"]) == (40, 0, 0)


@pytest.mark.long  # the other tests run each part, and Holdfast as a peer
@needs_compiler
def test_the_quick_form_measures_holdfast_and_the_disk(tmp_path: Path) -> None:
    found = run([OPEN_LOOP, PAUSES, REQUESTS], [OURS, DISK], QUICK, tmp_path)
    assert (found.failures, found.missing) == ([], {})
    for part in (OPEN_LOOP, PAUSES):
        case = case_name(part, 500)
        for peer in (OURS, DISK):
            p50, p99, worst = (found.median(case, f"{each}_us", peer) for each in ("p50", "p99", "max"))
            assert 0 < (p50 or 0) <= (p99 or 0) <= (worst or 0)
            assert len(found.seconds_p99_us[case][peer][0]) == 1
    assert all((found.median(shape, "requests_s", OURS) or 0) > 0 for shape in SHAPES)
    assert [each.row_count for each in latency_tables(found, QUICK.rates)] == [2, 2]
    rates = requests_table(found)
    assert rates is not None
    assert rates.row_count == 1
    assert not any(tmp_path.iterdir())


@needs_compiler
def test_refused_requests_are_no_fast_ones(tmp_path: Path) -> None:
    with holdfast(tmp_path / "server", 1) as server:
        wrong = replace(server, new_frame=partial(kafka_frame, "no-such-topic", 1))
        with pytest.raises(RuntimeError, match="refused: error code 3"):
            closed_loop(wrong, connections=1, depth=1, size=10, warm_up_s=0.0, seconds=0.1)


@needs_compiler
def test_a_peer_that_fails_is_a_finding_and_the_others_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(folder: Path, partitions: int) -> AbstractContextManager[Running]:
        raise RuntimeError("it does not start")

    changed = tuple(replace(each, serving=broken) if each.name == OURS else each for each in PEERS)
    monkeypatch.setattr("bench.latency.__main__.PEERS", changed)
    found = run([OPEN_LOOP], [OURS, DISK], replace(QUICK, seconds=0.1), tmp_path)
    assert found.failures == ["holdfast, open-loop 500/s: RuntimeError('it does not start')"]
    assert found.median(case_name(OPEN_LOOP, 500), "p99_us", DISK) is not None


@needs_compiler
def test_a_peer_that_did_not_start_once_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    starts: list[Path] = []

    def slow_once(folder: Path, partitions: int) -> AbstractContextManager[Running]:
        starts.append(folder)
        if len(starts) == 1:
            raise UnavailableError("ceiling", "did not start")
        return ceiling(folder, partitions)

    def nowhere(folder: Path, partitions: int) -> AbstractContextManager[Running]:
        raise UnavailableError("nats", "there is no program nats-server")

    changed = {"ceiling": slow_once, "nats": nowhere}
    peers = tuple(replace(each, serving=changed.get(each.name, each.serving)) for each in PEERS)
    monkeypatch.setattr("bench.latency.__main__.PEERS", peers)
    found = run([OPEN_LOOP, BUSY], list(changed), replace(QUICK, seconds=0.1), tmp_path)
    assert found.failures == ["ceiling, open-loop 500/s: ceiling is unavailable: did not start"]
    assert found.missing == {"nats": "nats is unavailable: there is no program nats-server"}
    assert found.median(case_name(BUSY, 500), "p99_us", "ceiling") is not None


EXPOSITION = """\
# TYPE holdfast_wal_group_batches histogram
holdfast_wal_group_batches_bucket{le="1"} 10
holdfast_wal_group_batches_bucket{le="2"} 10
holdfast_wal_group_batches_bucket{le="+Inf"} 12
holdfast_wal_group_batches_sum 30
holdfast_wal_group_batches_count 12
holdfast_wal_handover_seconds_bucket{hop="a",le="0.001"} 1
holdfast_wal_handover_seconds_bucket{hop="a",le="+Inf"} 1
holdfast_wal_handover_seconds_bucket{hop="b",le="0.001"} 99
holdfast_wal_handover_seconds_bucket{hop="b",le="+Inf"} 100
holdfast_wal_handover_seconds_sum{hop="a"} 0.0001
holdfast_wal_handover_seconds_sum{hop="b"} 0.5
holdfast_wal_handover_seconds_count{hop="a"} 1
holdfast_wal_handover_seconds_count{hop="b"} 100
holdfast_wal_group_batches_unrelated 7
"""


def test_histograms_are_read_over_all_labels_and_as_a_difference() -> None:
    after = histograms(EXPOSITION)
    before = histograms(EXPOSITION.replace("12\n", "8\n").replace("30\n", "10\n"))
    assert set(after) == {GROUP_BATCHES, HANDOVER}
    assert after[HANDOVER].count == 101
    shown = wal_figures(before, after)
    assert shown == {"batches_per_group": 5.0, "handover_p99_us": None, "loop_stall_p99_us": None}  # no hand-over since
    assert wal_figures({}, after)["handover_p99_us"] == pytest.approx(1_000)


def test_aims_are_judged_by_the_same_run() -> None:
    found, case = LatencyResults(), case_name(OPEN_LOOP, 1_000)
    for peer, p99_us in ((OURS, 900.0), (DISK, 310.0), ("kafka", 800.0)):
        found.add(case, "p99_us", peer, 0, p99_us)
    for shape in SHAPES:
        for peer, rate in ((OURS, 50_000.0), ("valkey", 60_000.0), ("nats", 9_000.0)):
            found.add(shape, "requests_s", peer, 0, rate)
    judged = {each.what: each.met for each in figures(found, (1_000,))}
    assert judged == {
        "p99 at 1,000/s to disk": True,
        "p99 at 1,000/s to kafka": False,
        "1 connection, depth 1, to valkey": None,
        "1 connection, depth 1, to nats": None,
        "1 connection, depth 64, to valkey": False,
        "1 connection, depth 64, to nats": True,
        "64 connections, depth 1, to valkey": False,
        "64 connections, depth 1, to nats": True,
    }


def test_quick_is_five_seconds_at_a_thousand_and_options_go_before_it() -> None:
    quick = plan_of(arguments().parse_args(["--quick"]))
    assert (quick.rates, quick.seconds, quick.request_rounds) == ((1_000,), 5.0, 1)
    chosen = plan_of(
        arguments().parse_args(["--quick", "--rates", "2000", "--warm-up", "0", "--rounds", "2", "--realtime"])
    )
    assert (chosen.rates, chosen.warm_up_s, chosen.rounds, chosen.request_rounds) == ((2_000,), 0.0, 2, 2)
    assert (quick.realtime, chosen.realtime) == (False, True)
    assert plan_of(arguments().parse_args([])) == RunPlan()
