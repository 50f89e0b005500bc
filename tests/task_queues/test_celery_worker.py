"""One of Celery's own workers on a heap: urgent tasks first, each once, and nothing left. The long form is in `test_celery.py`."""

from pathlib import Path

from tests.support.celery_worker import Project
from tests.support.server_process import ServeProcess
from tests.support.waiting import until

LEASE_S = 60.0  # no lease ends here, however busy the machine is
REMEMBER = "tests.support.celery_project.remember"


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
