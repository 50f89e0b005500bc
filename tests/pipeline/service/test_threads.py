"""Blocking calls: answered in time, bounded in number, and no burden to the end of the process."""

import asyncio
import subprocess
import sys
import threading

import pytest

from holdfast.pipeline.service.threads import BoundedThreads
from holdfast.vocabulary.errors import ClosedError, InvalidError, UnavailableError


def refuse() -> None:
    raise InvalidError("x", 1, "2")


async def test_results_and_errors_are_returned_and_an_overdue_call_is_abandoned() -> None:
    threads, go_on = BoundedThreads(threads_max=1, name="t"), threading.Event()
    assert await threads.run("a", lambda: 7, timeout_ms=5_000) == 7
    with pytest.raises(InvalidError):
        await threads.run("a", refuse, timeout_ms=5_000)
    with pytest.raises(UnavailableError, match="a server is unavailable: no answer within 50 ms"):
        await threads.run("a server", go_on.wait, timeout_ms=50)
    with pytest.raises(UnavailableError, match="no answer within 50 ms"):
        await threads.run("the next", lambda: 7, timeout_ms=50)  # the one thread is still taken
    go_on.set()
    assert await threads.run("the next", lambda: 7, timeout_ms=5_000) == 7
    threads.close()
    with pytest.raises(ClosedError):
        await threads.run("a", lambda: 7, timeout_ms=5_000)


async def test_a_cancelled_caller_does_not_affect_others() -> None:
    threads, go_on = BoundedThreads(threads_max=2, name="t"), threading.Event()
    waiting = asyncio.ensure_future(threads.run("a", go_on.wait, timeout_ms=60_000))
    assert await threads.run("b", lambda: 7, timeout_ms=5_000) == 7
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    go_on.set()
    assert await asyncio.gather(*(threads.run("c", lambda: 7, timeout_ms=5_000) for _ in range(5))) == [7] * 5


LEAVES = """
import asyncio, threading
from holdfast.pipeline.service.threads import BoundedThreads
from holdfast.vocabulary.errors import UnavailableError

async def main():
    try:
        await BoundedThreads(threads_max=1, name="t").run("a", threading.Event().wait, timeout_ms=50)
    except UnavailableError:
        print("left")

asyncio.run(main())
"""


def test_a_process_does_not_wait_for_a_call_that_hangs() -> None:
    done = subprocess.run([sys.executable, "-c", LEAVES], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "left\n", "")
