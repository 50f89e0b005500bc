"""Celery's own workers run a project on heaps: no task runs twice because it takes long, none is lost with its worker."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.celery_worker import Project
from tests.support.server_process import ServeProcess
from tests.support.waiting import WAIT_S, until

from holdfast.vocabulary.clock import RealClock

LEASE_S = 3.0
SLEEP, SPIN, REMEMBER = (f"tests.support.celery_project.{name}" for name in ("sleep", "spin", "remember"))

pytestmark = pytest.mark.long  # real workers against leases of seconds: what a busy machine delays, fails


@pytest.fixture
def project(node: ServeProcess, tmp_path: Path) -> Iterator[Project]:
    project = Project(node, tmp_path, lease=LEASE_S)
    with project.stack:
        yield project


def test_a_long_task_runs_once_urgent_ones_first_delayed_ones_in_time_and_control_is_answered(
    project: Project,
) -> None:
    project.send(SLEEP, "long", 2.5 * LEASE_S, priority=255)  # the first, and longer than several leases
    for name, priority in (("low", 1), ("high", 200), ("middle", 42)):
        project.send(REMEMBER, name, priority=priority)
    ann = project.worker("ann")
    project.journal.wait("start", "long", context=lambda: ann.log)
    due_ms = RealClock().now_ms() + 2_000
    project.send(REMEMBER, "later", countdown=2)
    assert project.app.control.ping(destination=["ann@test"], timeout=30, limit=1) == [{"ann@test": {"ok": "pong"}}]
    bob = project.worker("bob").ready()
    project.journal.wait("ran", count=4, context=lambda: bob.log)
    project.journal.wait("end", "long", context=lambda: ann.log)
    until(lambda: project.unsettled() == 0)
    ran = project.journal.lines("ran")
    assert [words[1] for words in ran if words[1] != "later"] == ["high", "middle", "low"]
    (later,) = project.journal.lines("ran", "later")
    assert int(later[2]) >= due_ms - 1
    assert later[3:] == ["None", "True"], "the worker does not wait once more"
    assert (project.journal.count("start", "long"), project.journal.count("end", "long")) == (1, 1)


def test_a_task_is_run_again_when_its_process_or_its_worker_is_killed(project: Project) -> None:
    ann = project.worker("ann").ready()
    project.send(SLEEP, "child", 1)
    (_, _, child) = project.journal.wait("start", "child", context=lambda: ann.log)[0]
    os.kill(int(child), signal.SIGKILL)
    project.journal.wait("end", "child", context=lambda: ann.log)
    assert (project.journal.count("start", "child"), project.journal.count("end", "child")) == (2, 1)
    project.send(SLEEP, "parent", 1.5)
    project.journal.wait("start", "parent", context=lambda: ann.log)
    ann.signal_all(signal.SIGKILL)
    bob = project.worker("bob")
    project.journal.wait("end", "parent", context=lambda: bob.log)
    until(lambda: project.unsettled() == 0)
    assert (project.journal.count("start", "parent"), project.journal.count("end", "parent")) == (2, 1)


def test_a_worker_that_was_frozen_too_long_is_told_and_its_ack_refused(project: Project) -> None:
    ann = project.worker("ann").ready()
    project.send(SLEEP, "frozen", 4)
    project.journal.wait("start", "frozen", context=lambda: ann.log)
    ann.signal_all(signal.SIGSTOP)
    bob = project.worker("bob")
    project.journal.wait("start", "frozen", count=2, context=lambda: bob.log)
    ann.signal_all(signal.SIGCONT)
    until(lambda: "is lost, its acknowledgement is refused" in ann.log, what=lambda: ann.log)
    project.journal.wait("end", "frozen", context=lambda: bob.log)
    until(lambda: project.unsettled() == 0)
    assert project.journal.count("start", "frozen") == 2


def test_a_task_runs_once_while_the_server_is_restarted(node: ServeProcess, tmp_path: Path) -> None:
    project = Project(node, tmp_path, lease=30.0)
    with project.stack:
        ann, bob = project.worker("ann").ready(), project.worker("bob").ready()
        project.send(SLEEP, "long", 15)
        project.journal.wait("start", "long", context=lambda: ann.log)
        node.kill()
        node.start()
        project.journal.wait("end", "long", context=lambda: ann.log + bob.log)
        until(lambda: project.unsettled() == 0)
        project.send(REMEMBER, "after")
        project.journal.wait("ran", "after", context=lambda: ann.log + bob.log)
        assert (project.journal.count("start", "long"), project.journal.count("end", "long")) == (1, 1)


@pytest.mark.parametrize("pool", ["threads", "solo", "gevent"])
def test_a_task_that_keeps_the_processor_runs_once_in_every_pool(project: Project, pool: str) -> None:
    ann, bob = project.worker("ann", "-P", pool).ready(), project.worker("bob", "-P", pool).ready()
    project.send(SPIN, "busy", 2.5 * LEASE_S)
    project.journal.wait("end", "busy", context=lambda: ann.log + bob.log)
    until(lambda: project.unsettled() == 0)
    assert (project.journal.count("start", "busy"), project.journal.count("end", "busy")) == (1, 1)


def test_a_worker_that_is_stopped_finishes_its_task_and_gives_the_others_back(project: Project) -> None:
    ann = project.worker("ann", "--prefetch-multiplier", "4").ready()
    project.send(SLEEP, "running", 2 * LEASE_S)
    project.journal.wait("start", "running", context=lambda: ann.log)
    for name in ("one", "two"):
        project.send(SLEEP, name, 0)
    until(lambda: project.waiting() == 0, what=lambda: ann.log)
    assert ann.stop() == 0
    bob = project.worker("bob")
    for name in ("one", "two"):
        project.journal.wait("end", name, context=lambda: bob.log)
    until(lambda: project.unsettled() == 0)
    assert [project.journal.count("start", name) for name in ("running", "one", "two")] == [1, 1, 1]


def test_tasks_whose_greenlets_are_killed_by_a_cold_shutdown_are_run_again(project: Project) -> None:
    ann = project.worker("ann", "-P", "gevent", "-c", "2").ready()
    project.send(SLEEP, "one", 2 * LEASE_S)
    project.journal.wait("start", "one", context=lambda: ann.log)
    project.send(SPIN, "two", 2)  # it is in this greenlet that the signal is handled
    project.journal.wait("start", "two", context=lambda: ann.log)
    ann.process.send_signal(signal.SIGQUIT)
    ann.process.wait(WAIT_S)
    bob = project.worker("bob")
    for name in ("one", "two"):
        project.journal.wait("end", name, context=lambda: bob.log)
    until(lambda: project.unsettled() == 0)
    assert [project.journal.count("start", name) for name in ("one", "two")] == [2, 2]
