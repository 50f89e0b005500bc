"""The Kafka benchmark runs: its programs compile, its load is acknowledged and read, its report judges by the aims."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from bench.kafka.cases import CASES, LATENCY, OURS, SYSTEMS
from bench.kafka.disk import at_share, sync_latencies_us
from bench.kafka.processes import cpu_seconds, is_running, resident_bytes
from bench.kafka.report import figures, verdict
from bench.kafka.results import DISK, BenchResults
from bench.kafka.rounds import Rounds, RunPlan
from bench.kafka.targets import KafkaTarget, discard, holdfast, mock

pytest.importorskip("confluent_kafka", reason="librdkafka comes with confluent-kafka")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="costs are read from /proc")
needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler (cc)")


@needs_compiler
def test_latency_is_measured_at_the_pace_asked_for(tmp_path: Path) -> None:
    with mock(tmp_path) as target:
        done = target.latency(target.create(1), 100, 0.2, 500)
        assert done["records"] == pytest.approx(100, abs=2)
        assert 0 < done["p50_us"] <= done["p99_us"] <= done["p999_us"] <= done["max_us"]


@needs_compiler
def test_what_holdfast_acknowledges_is_counted_and_read(tmp_path: Path) -> None:
    with holdfast(tmp_path / OURS) as target:
        topic = target.create(1)
        produced = target.produce(topic, 1, 100, 0.1)
        assert produced["total_records"] >= produced["records"] > 0
        assert produced["total_bytes"] == 100 * produced["total_records"]
        read = target.consume(topic, 1, produced["total_records"], 10.0)
        assert (read["failed"], read["records"]) == (0, produced["total_records"])
        target.drop(topic)


@needs_compiler
def test_a_turn_gives_every_figure_of_its_case(tmp_path: Path) -> None:
    (case,) = (each for each in CASES if each.name == "100B-12")
    (system,) = (each for each in SYSTEMS if each.name == "ceiling")
    found = BenchResults()
    with discard(tmp_path) as ceiling:
        plan = RunPlan(seconds=0.1, rounds=1, latency_seconds=0.1)
        Rounds({system.name: (system, ceiling)}, found, plan, directory=tmp_path, say=lambda _: None).throughput(case)
    assert found.failures == []
    for part in ("produce", "consume"):
        for unit in ("mb_s", "records_s"):
            assert (found.median(case.name, f"{part}_{unit}", "ceiling") or 0) > 0


def test_the_client_in_python_speaks_as_the_one_in_c_does(tmp_path: Path) -> None:
    with mock(tmp_path) as target:
        assert isinstance(target, KafkaTarget)
        argv = [
            sys.executable,
            "-m",
            "bench.kafka.client",
            "produce",
            target.bootstrap,
            target.create(1),
            "1",
            "100",
            "0.2",
        ]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        assert '"failed": 0' in done.stdout


def test_a_ratio_is_of_the_same_round_and_aims_are_judged_by_it() -> None:
    found = BenchResults()
    for round_, (ours, theirs) in enumerate([(10.0, 10.0), (90.0, 30.0), (40.0, 20.0)]):
        found.add("1KiB-1", "produce_mb_s", OURS, round_, ours)
        found.add("1KiB-1", "produce_mb_s", "kafka-flush", round_, theirs)
    (figure,) = figures(found)
    assert (figure.ours, figure.reference, figure.ratio) == (40.0, 20.0, 2.0)
    assert figure.met is False  # three times is aimed at
    assert verdict([figure]) == "0 of 1 aims met; not: produce 1KiB-1 / kafka-flush"


def test_latency_may_be_a_millisecond_or_three_times_the_disk() -> None:
    for ours, disk, met in ((900.0, 100.0, True), (1_200.0, 500.0, True), (1_600.0, 500.0, False)):
        found = BenchResults()
        found.add(LATENCY, "p99_us", OURS, 0, ours)
        found.add(LATENCY, "p99_us", DISK, 0, disk)
        assert [each.met for each in figures(found)] == [met]


def test_the_disk_answers_and_processes_are_counted(tmp_path: Path) -> None:
    took = sync_latencies_us(tmp_path, size=1024, seconds=0.05, per_second=1_000)
    assert 0 < at_share(took, 0.5) <= at_share(took, 0.99)
    with subprocess.Popen([sys.executable, "-c", "sum(range(10**7)); input()"], stdin=subprocess.PIPE) as process:
        while cpu_seconds(process.pid) == 0:
            assert process.poll() is None
        assert resident_bytes(process.pid) > 1 << 20
        process.communicate(b"\n")


@needs_compiler
def test_a_target_that_has_ended_is_said_once_and_left_out(tmp_path: Path) -> None:
    (case,) = (each for each in CASES if each.name == "100B-1")
    (system,) = (each for each in SYSTEMS if each.name == "ceiling")
    found = BenchResults()
    with discard(tmp_path) as ceiling:
        os.kill(ceiling.pid, signal.SIGKILL)
        while is_running(ceiling.pid):
            pass
        plan = RunPlan(seconds=0.1, rounds=2, latency_seconds=0.1)
        Rounds({system.name: (system, ceiling)}, found, plan, directory=tmp_path, say=lambda _: None).throughput(case)
    assert found.failures == ["ceiling: its process has ended"]
    assert found.values == {}
