"""The exit guard: a process that ends right after its calls, or in the middle of them, ends well."""

import asyncio
import re
import sys
import threading
from pathlib import Path

import pytest
from tests.support.scripted_http import RecordedRequest, ScriptedAnswer, scripted_server
from tests.support.waiting import async_until

import holdfast.objects
from holdfast.objects.io_threads import IoThreads
from holdfast.vocabulary.errors import ClosedError

CHILD = """
import asyncio, sys
from holdfast.objects.urls import open_objects
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SystemRandom

async def main(url, how):
    opened = open_objects(url, clock=RealClock(), random=SystemRandom())
    objects = await opened.__aenter__()
    calls = [asyncio.ensure_future(objects.get(f"k/{n}")) for n in range(40)]
    if how == "cancelled":
        await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        for call in calls:
            call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    if how == "closed":
        await opened.__aexit__(None, None, None)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("how", ["closed", "left open", "cancelled"])
async def test_a_process_that_exits_right_after_its_calls_exits_cleanly(how: str) -> None:
    def decide(request: RecordedRequest) -> ScriptedAnswer:
        return ScriptedAnswer("200 OK", b"body", {"etag": '"1"'})

    async with scripted_server(decide) as server:
        url = f"s3://b?endpoint=http://127.0.0.1:{server.port}&region=x&access_key_id=a&secret_access_key=b&check=0"

        async def run() -> tuple[int | None, str]:
            child = await asyncio.create_subprocess_exec(
                sys.executable, "-c", CHILD, url, how, stderr=asyncio.subprocess.PIPE
            )
            _, stderr = await child.communicate()
            return child.returncode, stderr.decode()

        for _ in range(2):
            for code, stderr in await asyncio.gather(run(), run()):
                assert code == 0, stderr  # a driver's thread that outlives the interpreter aborts with -6
                assert how != "closed" or not stderr
        assert len(server.requests) >= 4


def test_the_driver_is_called_through_its_blocking_functions_alone() -> None:
    sources = Path(holdfast.objects.__file__).parent.glob("*.py")
    assert [
        path.name for path in sources if re.search(r"_async\b|__anext__|async for .* in obstore", path.read_text())
    ] == []


async def test_leaving_waits_for_calls_in_flight_even_when_cancelled() -> None:
    begun, go, ended, leaving = threading.Event(), threading.Event(), threading.Event(), asyncio.Event()

    def work() -> None:
        begun.set()
        go.wait(60)
        ended.set()

    async def use() -> None:
        async with IoThreads.running("test", threads_max=2) as threads:
            call = asyncio.ensure_future(threads.run(work))
            await async_until(begun.is_set)
            call.cancel()
            await asyncio.wait({call})
            leaving.set()

    using = asyncio.ensure_future(use())
    await leaving.wait()
    await asyncio.wait({using}, timeout=0.05)
    using.cancel()
    await asyncio.wait({using}, timeout=0.05)
    assert not using.done()
    go.set()
    await asyncio.wait({using})
    assert ended.is_set()
    assert using.cancelled()


async def test_a_call_that_runs_to_its_end_has_ended_when_its_caller_is_cancelled() -> None:
    begun, go, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        go.wait(60)
        ended.set()
        raise OSError("not retrieved")

    async with IoThreads.running("test", threads_max=1) as threads:
        call = asyncio.ensure_future(threads.run_to_end(work))
        await async_until(begun.is_set)
        call.cancel()
        await asyncio.wait({call}, timeout=0.02)
        call.cancel()
        assert not call.done()
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert ended.is_set()
    with pytest.raises(ClosedError):
        await threads.run(work)
