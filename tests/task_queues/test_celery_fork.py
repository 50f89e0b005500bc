"""Programs that fork after they have used a broker: what the fork sends arrives, and the parent's connections are its own."""

import subprocess
import sys
from pathlib import Path

from kombu import Connection
from tests.support.server_process import ServeProcess, environment

import holdfast.celery

assert holdfast.celery.__all__  # the import makes `holdfast://` known

ROOT = Path(__file__).parents[2]

BEGINNING = """
import os, sys
from multiprocessing import get_context

from celery import Celery
from tests.support.forked import end_in_time

import holdfast.celery
from holdfast.vocabulary.errors import UsageError

app = Celery("forking", broker=sys.argv[1], set_as_current=False)
holdfast.celery.configure(app, prefix=sys.argv[2])


def forked(work):
    child = os.fork()
    if child == 0:
        code = 1
        try:
            end_in_time()
            work()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
"""

SENDING = """
def send(name):
    app.send_task(name, ignore_result=True)


def in_fork(name):
    end_in_time()
    send(name)
    app.close()


send("parent")
forked(lambda: in_fork("fork"))
other = get_context("fork").Process(target=in_fork, args=("multiprocessing",))
other.start()
other.join()
assert other.exitcode == 0
send("parent again")
"""

CONSUMING = """
from kombu import Queue


def use_what_is_not_its_own():
    try:
        queue.get()
    except UsageError as error:
        assert "open another one after the fork" in str(error)
    else:
        raise AssertionError("it was not refused")
    simple.close()
    connection.close()


connection = app.connection_for_read()
simple = connection.SimpleQueue("shared")
temporary = connection.SimpleQueue(Queue("reply", routing_key="reply", expires=60))
queue = Queue("shared")(connection.default_channel)
forked(use_what_is_not_its_own)
for each in (simple, temporary):
    each.put("x")
    message = each.get(timeout=30)
    assert message.payload == "x"
    message.ack()
    each.close()
connection.close()
"""


def run(program: str, broker: str, prefix: str) -> None:
    argv = [sys.executable, "-c", BEGINNING + program, broker, prefix]
    subprocess.run(argv, cwd=ROOT, env=environment(), check=True, timeout=120)


def test_a_program_that_forks_sends_tasks_before_in_and_after_the_fork(node: ServeProcess, tmp_path: Path) -> None:
    broker, prefix = f"holdfast://{node.kafka}", f"{tmp_path.name}."
    run(SENDING, broker, prefix)
    with Connection(broker, transport_options={"prefix": prefix}) as connection:
        queue = connection.SimpleQueue("celery")
        names = [queue.get(timeout=30).headers["task"] for _ in range(4)]
        queue.close()
    assert sorted(names) == ["fork", "multiprocessing", "parent", "parent again"]


def test_a_fork_is_refused_by_what_its_parent_consumes_and_closes_nothing_of_it(
    node: ServeProcess, tmp_path: Path
) -> None:
    run(CONSUMING, f"holdfast://{node.kafka}", f"{tmp_path.name}.")
