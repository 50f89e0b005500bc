"""Failpoints: named places in the code at which a test may pause, kill or fail the process.

The one rule: without a handler a failpoint costs one comparison and does nothing. Handlers are installed by tests alone; production
code only calls `reached`. Names are `area.step`, in letters, digits, dots and dashes (`wal.group-written`).
"""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Handler = Callable[[str], Awaitable[None] | None]

# One per process and not per context: threads that were started before (the WAL writer's) must see it, too.
_handler: Handler | None = None
# A handler that runs code with failpoints of its own is not called from within itself.
_running: ContextVar[bool] = ContextVar("failpoint", default=False)


def installed_any() -> bool:
    """Whether there is a handler: what is done without Python would not reach it."""
    return _handler is not None


def reached(name: str) -> None:
    """The process is at failpoint `name`."""
    if _handler is not None and not _running.get():
        outcome = _call(_handler, name)
        if outcome is not None:
            raise TypeError(f"failpoint {name} is synchronous, its handler returned {outcome!r}")


async def reached_async(name: str) -> None:
    """The same in a coroutine: awaits what the handler returns."""
    if _handler is not None and not _running.get():
        token = _running.set(True)
        try:
            outcome = _handler(name)
            if outcome is not None:
                await outcome
        finally:
            _running.reset(token)


def install(handler: Handler) -> None:
    """Install a handler for the rest of this process's life. For child processes of tests."""
    global _handler
    if _handler is not None:
        raise RuntimeError("a failpoint handler is already installed")
    _handler = handler


@contextmanager
def installed(handler: Handler) -> Iterator[None]:
    """Install a handler for the body; the previous one is restored after it."""
    global _handler
    before, _handler = _handler, handler
    try:
        yield
    finally:
        _handler = before


def _call(handler: Handler, name: str) -> Awaitable[None] | None:
    token = _running.set(True)
    try:
        return handler(name)
    finally:
        _running.reset(token)
