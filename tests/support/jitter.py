"""A busy machine on demand: `pytest -p tests.support.jitter` delays threads and stalls event loops at random.

A test that only passes while threads and callbacks are quick fails here, and not first in CI. `JITTER_SEED` chooses the delays;
each test draws its own from it and its name, so that a failure is likely to come again when the test runs alone.
"""

import asyncio
import os
import random
import time
from collections.abc import Callable
from typing import Any, Final

import pytest

SLOW_THREAD: Final = 0.15  # how often a call in a thread is late, before it runs or before its result is known
STALL: Final = 0.002  # how often a loop stands still before a callback
THREAD_S: Final = 0.06
STALL_S: Final = 0.04

_random = random.Random()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    _random.seed(f"{os.environ.get('JITTER_SEED', '0')} {item.nodeid.partition('@')[0]}")


def _late(function: Callable[..., Any], *args: Any) -> Any:
    _pause(SLOW_THREAD, THREAD_S)
    try:
        return function(*args)
    finally:
        _pause(SLOW_THREAD, THREAD_S)


def _pause(chance: float, longest_s: float) -> None:
    if _random.random() < chance:
        time.sleep(_random.random() * longest_s)


def _in_executor(loop: asyncio.BaseEventLoop, executor: Any, function: Callable[..., Any], *args: Any) -> Any:
    return _run_in_executor(loop, executor, _late, function, *args)


def _run(handle: asyncio.Handle) -> None:
    _pause(STALL, STALL_S)
    _run_handle(handle)


_run_in_executor = asyncio.BaseEventLoop.run_in_executor
_run_handle = asyncio.Handle._run
asyncio.BaseEventLoop.run_in_executor = _in_executor  # type: ignore[method-assign,assignment]
asyncio.Handle._run = _run  # type: ignore[method-assign,assignment]
