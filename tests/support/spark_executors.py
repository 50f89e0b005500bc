"""Executors of a standalone Spark as processes: which they are, and their end.

The one rule: a process is ours if its environment names our folder of failpoints.
"""

import signal
from pathlib import Path

from tests.pipeline.kills.process_tree import Process, ours, send
from tests.support.failpoints import FailpointFolder
from tests.support.spark_servers import JVM
from tests.support.spark_session import ROOT
from tests.support.waiting import until

EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"


def executor_conf(failpoints: FailpointFolder) -> dict[str, str]:
    """Settings of a Spark whose executors obey these failpoints."""
    variables = {**failpoints.environment, "PYTHONPATH": f"{failpoints.environment['PYTHONPATH']}:{ROOT / 'src'}"}
    conf = {f"spark.executorEnv.{name}": value for name, value in variables.items()}
    return {**conf, "spark.executor.extraJavaOptions": JVM}


def executors(failpoints: FailpointFolder) -> list[int]:
    """The JVMs of executors that live."""
    return [pid for pid, each in ours(failpoints.folder).items() if EXECUTOR in each.words]


def kill_executor_of(task: int, failpoints: FailpointFolder) -> int:
    """SIGKILL to the JVM that a Python task works for: its id."""
    known = ours(failpoints.folder)
    jvm = _ancestor(task, known)
    _kill(jvm)
    return jvm


def kill_any_executor(failpoints: FailpointFolder) -> int:
    """SIGKILL to an executor, once there is one: its id."""
    jvm = until(lambda: executors(failpoints), what="an executor", within_s=120)[0]
    _kill(jvm)
    return jvm


def _kill(pid: int) -> None:
    send([pid], signal.SIGKILL)
    until(lambda: not _lives(pid), what=f"end of executor {pid}")


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def _ancestor(pid: int, known: dict[int, Process]) -> int:
    while EXECUTOR not in known[pid].words:
        pid = known[pid].parent
    return pid
