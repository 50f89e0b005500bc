"""Programs whose greenlets send tasks: they arrive, and the program ends, whenever gevent has replaced the standard library."""

import subprocess
import sys
from pathlib import Path

import pytest
from kombu import Connection
from tests.support.server_process import ServeProcess, environment

import holdfast.celery

assert holdfast.celery.__all__  # the import makes `holdfast://` known

ROOT = Path(__file__).parents[2]

BEGINNING = """
import faulthandler, sys

faulthandler.dump_traceback_later(30, exit=True)

from celery import Celery

import holdfast.celery


def app(address):
    found = Celery("greenlets", broker=f"holdfast://{address}", set_as_current=False)
    holdfast.celery.configure(found, prefix=sys.argv[2])
    return found


def patch():
    from gevent import monkey

    monkey.patch_all()


def send(app, names):
    import gevent

    gevent.joinall([gevent.spawn(app.send_task, name, ignore_result=True) for name in names], raise_error=True)
"""

PATCHED_AFTER_THE_IMPORT = """
patch()
send(app(sys.argv[1]), "abcd")
"""

PATCHED_AFTER_A_TASK = """
app(sys.argv[1]).send_task("a", ignore_result=True)
patch()
send(app(sys.argv[1]), "bc")
send(app(sys.argv[1].replace("127.0.0.1", "localhost")), "d")  # a name: to look it up blocks
"""

GREENLETS_THAT_ARE_KILLED = """
patch()
import gevent
from holdfast.heaps.background import background_heaps

heaps, heap = background_heaps(sys.argv[1]), sys.argv[2] + "empty"
heaps.call(heaps.client.create(heap))
waiting = [gevent.spawn(heaps.call, heaps.client.pop(heap, wait=20)) for _ in range(3)]
gevent.sleep(0.1)
gevent.killall(waiting)
send(app(sys.argv[1]), "abcd")
"""


def run(program: str, node: ServeProcess, prefix: str, **env: str) -> str:
    """What it logs."""
    argv = [sys.executable, "-W", "ignore", "-c", BEGINNING + program, node.kafka, prefix]
    done = subprocess.run(
        argv, cwd=ROOT, env=environment(**env), stderr=subprocess.PIPE, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def arrived(node: ServeProcess, prefix: str) -> list[str]:
    with Connection(f"holdfast://{node.kafka}", transport_options={"prefix": prefix}) as connection:
        queue = connection.SimpleQueue("celery")
        names = [queue.get(timeout=30).headers["task"] for _ in range(4)]
        queue.close()
    return sorted(names)


@pytest.mark.parametrize("program", [PATCHED_AFTER_THE_IMPORT, PATCHED_AFTER_A_TASK], ids=["import", "task"])
def test_greenlets_send_tasks_whenever_gevent_has_replaced_the_standard_library(
    node: ServeProcess, tmp_path: Path, program: str
) -> None:
    run(program, node, f"{tmp_path.name}.")
    assert arrived(node, f"{tmp_path.name}.") == ["a", "b", "c", "d"]


def test_a_greenlet_that_is_killed_while_it_waits_leaves_nothing_behind(node: ServeProcess, tmp_path: Path) -> None:
    assert "Exception" not in run(GREENLETS_THAT_ARE_KILLED, node, f"{tmp_path.name}.", GEVENT_LOOP="libuv")
    assert arrived(node, f"{tmp_path.name}.") == ["a", "b", "c", "d"]
