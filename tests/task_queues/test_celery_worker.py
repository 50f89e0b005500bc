"""One of Celery's own workers on a heap: urgent tasks first, each once, and nothing left. The long form is in `test_celery.py`."""

from pathlib import Path

from tests.support.celery_worker import Project
from tests.support.server_process import ServeProcess
from tests.support.waiting import until

LEASE_S = 60.0  # no lease ends here, however busy the machine is
REMEMBER, SLEEP = (f"tests.support.celery_project.{name}" for name in ("remember", "sleep"))


def test_a_worker_runs_urgent_tasks_first_and_each_once(node: ServeProcess, tmp_path: Path) -> None:
    project = Project(node, tmp_path, lease=LEASE_S)
    with project.stack:
        for name, priority in (("low", 1), ("high", 200), ("middle", 42)):
            project.send(REMEMBER, name, priority=priority)
        worker = project.worker("ann")
        project.journal.wait("ran", count=3, context=lambda: worker.log)
        until(lambda: project.unsettled() == 0)
        assert [words[1] for words in project.journal.lines("ran")] == ["high", "middle", "low"]
        assert worker.stop() == 0


def test_a_process_of_the_pool_that_is_replaced_after_a_control_command_works_on(
    node: ServeProcess, tmp_path: Path
) -> None:
    project = Project(node, tmp_path, lease=LEASE_S)
    with project.stack:
        ann = project.worker("ann", "--max-tasks-per-child", "1").ready()
        # Its reply opens a connection in the parent, which Kombu closes in each process that is forked from then on.
        assert project.app.control.ping(destination=["ann@test"], timeout=30, limit=1) == [{"ann@test": {"ok": "pong"}}]
        for name in ("one", "two", "three"):
            project.send(SLEEP, name, 0)
        project.journal.wait("end", count=3, context=lambda: ann.log)
        assert len({words[2] for words in project.journal.lines("end")}) == 3, "each in a process of its own"
        assert project.app.control.ping(destination=["ann@test"], timeout=30, limit=1) == [{"ann@test": {"ok": "pong"}}]
        until(lambda: project.unsettled() == 0)
        assert ann.stop() == 0
