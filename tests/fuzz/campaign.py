"""A campaign: many inputs against a target, and what must not happen meanwhile.

A target is opened for a while, takes inputs in batches, and says whether its neighbour is still served. A crash is an error with a
traceback in the log, or one that reaches the event loop; a hang is a batch or a neighbour that takes longer than `HANG_S`.
"""

import argparse
import asyncio
import logging
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from holdfast.vocabulary.clock import stopwatch_ns

HANG_S = 20.0
BATCH = 32
LOGGERS = ("holdfast", "uvicorn.error", "asyncio")
REOPEN_AFTER = 20_000  # inputs: what they leave behind (topics, ACLs) stays small


class Target(Protocol):
    """An open server."""

    def input(self, seed: int, number: int) -> bytes:
        """Input number N of a seed."""
        ...

    async def feed(self, inputs: Sequence[bytes], numbers: Sequence[int]) -> None:
        """Send each on a connection of its own, and return when all have been handled."""
        ...

    async def neighbour_is_served(self) -> bool:
        """Whether another client gets the answer it should."""
        ...


Opened = Callable[[Path], AbstractAsyncContextManager[Target]]


@dataclass
class Findings:
    """What a campaign has seen."""

    inputs: int = 0
    seconds: float = 0.0
    crashes: list[str] = field(default_factory=list)
    hangs: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        return not self.crashes and not self.hangs

    def __str__(self) -> str:
        found = f"{self.inputs} inputs, {len(self.crashes)} crashes, {len(self.hangs)} hangs, {self.seconds:.0f} s"
        return "\n".join([found, *self.crashes[:20], *self.hangs[:20]])


class _Crashes(logging.Handler):
    """Errors with a traceback, and what reached the event loop."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.seen.append(f"{record.getMessage()}: {record.exc_info[1]!r}")


async def run_campaign(opened: Opened, *, seed: int, first: int, inputs: int) -> Findings:
    """Feed inputs `first` to `first + inputs`."""
    findings, crashes, started_ns = Findings(), _Crashes(), stopwatch_ns()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: crashes.seen.append(str(context)))
    loggers = [logging.getLogger(each) for each in LOGGERS]
    before = [(each.level, each.propagate) for each in loggers]
    for logger in loggers:
        logger.addHandler(crashes)
        logger.setLevel(logging.ERROR)
        logger.propagate = False
    try:
        at, end = first, first + inputs
        while at < end and len(findings.hangs) < 3:
            with tempfile.TemporaryDirectory(prefix="holdfast-fuzz-") as folder:
                async with opened(Path(folder)) as target:
                    at = await _feed(target, findings, crashes, seed, at, min(end, at + REOPEN_AFTER))
                    print(f"{at - first} of {inputs}", file=sys.stderr, flush=True)
        findings.inputs = at - first
    finally:
        for logger, (level, propagate) in zip(loggers, before, strict=True):
            logger.removeHandler(crashes)
            logger.setLevel(level)
            logger.propagate = propagate
        loop.set_exception_handler(None)
    findings.seconds = (stopwatch_ns() - started_ns) / 1e9
    return findings


async def _feed(target: Target, findings: Findings, crashes: _Crashes, seed: int, first: int, end: int) -> int:
    for start in range(first, end, BATCH):
        numbers = range(start, min(start + BATCH, end))
        inputs = [target.input(seed, number) for number in numbers]
        where = f"seed {seed}, inputs {numbers.start} to {numbers.stop - 1}"
        if not await _in_time(target.feed(inputs, numbers)):
            findings.hangs.append(f"{where}: not handled within {HANG_S} s")
            return numbers.stop
        if not await _in_time(target.neighbour_is_served()):
            findings.hangs.append(f"{where}: the neighbour was not served within {HANG_S} s")
            return numbers.stop
        if crashes.seen:
            findings.crashes += [f"{where}: {each}" for each in crashes.seen]
            crashes.seen.clear()
    return end


async def _in_time(work: Awaitable[Any]) -> bool:
    try:
        async with asyncio.timeout(HANG_S):
            return await work is not False
    except TimeoutError:
        return False


def main(name: str, opened: Opened) -> int:
    """The command of a target: 0 if nothing was found."""
    parser = argparse.ArgumentParser(prog=f"python -m tests.fuzz.{name}", description=f"Fuzz {name}.")
    parser.add_argument("--inputs", type=int, default=20_000, metavar="N", help="how many (default: 20000)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="which (default: 1)")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="the number of the first: repeats a finding")
    args = parser.parse_args()
    findings = asyncio.run(run_campaign(opened, seed=args.seed, first=args.first, inputs=args.inputs))
    print(f"{name}: {findings}")
    return 0 if findings.clean else 1
