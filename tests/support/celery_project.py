"""A Celery project, as its workers and tests load it: tasks that write what they do into a file.

Configured by HOLDFAST_TEST_BROKER, HOLDFAST_TEST_JOURNAL, HOLDFAST_TEST_LEASE and HOLDFAST_TEST_PREFIX.
"""

import os
import time  # noqa: TID251 (the work of tasks takes time)
from pathlib import Path
from typing import Any

from celery import Celery

import holdfast.celery

_ENV = os.environ  # noqa: TID251 (how tests configure the processes they start)
BROKER = _ENV.get("HOLDFAST_TEST_BROKER", "holdfast://127.0.0.1:9")
JOURNAL = Path(_ENV.get("HOLDFAST_TEST_JOURNAL", "/dev/null"))

app = Celery("project", broker=BROKER)
app.conf.worker_enable_remote_control = True
app.conf.broker_connection_retry_on_startup = True
holdfast.celery.configure(
    app, lease=float(_ENV.get("HOLDFAST_TEST_LEASE", "2")), prefix=_ENV.get("HOLDFAST_TEST_PREFIX", "")
)


def note(*words: object) -> None:
    with JOURNAL.open("a") as journal:
        journal.write(" ".join(map(str, words)) + "\n")


@app.task(bind=True)
def sleep(self: Any, name: str, seconds: float) -> None:
    """Take some time, without the processor."""
    note("start", name, os.getpid())
    time.sleep(seconds)
    note("end", name, os.getpid())


@app.task
def spin(name: str, seconds: float) -> None:
    """Take some time of the processor."""
    note("start", name, os.getpid())
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(1000))
    note("end", name, os.getpid())


@app.task(bind=True)
def remember(self: Any, name: str) -> None:
    """Note what the task knows about its delivery."""
    note("ran", name, round(time.time() * 1000), self.request.eta, self.request.get("holdfast_eta") is not None)
