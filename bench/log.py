"""`python -m bench.log`: the log against what the disk, the memory and LZ4 can do, and what it costs."""

import argparse
import asyncio
import multiprocessing
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Final, Protocol

from rich.console import Console

from bench import log_batches, log_cost, log_flow, log_segments, log_wal
from bench.figures import Figure, table


class Measure(Protocol):
    """One part: figures as they are found. `say` is for who waits."""

    def __call__(self, directory: Path, *, quick: bool, say: Callable[[str], None]) -> AsyncIterator[Figure]: ...


PARTS: Final[dict[str, Measure]] = {
    "wal": log_wal.measure,
    "batches": log_batches.measure,
    "segments": log_segments.measure,
    "flow": log_flow.measure,
    "cost": log_cost.measure,
}


def run(part: str, directory: Path | None, quick: bool) -> list[Figure]:
    """One part, in this process."""
    return asyncio.run(_run(part, directory, quick))


async def _run(part: str, directory: Path | None, quick: bool) -> list[Figure]:
    console = Console(stderr=True, log_path=False)
    figures = []
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=directory) as made, console.status(part) as status:
        found = PARTS[part](Path(made), quick=quick, say=lambda doing: status.update(f"{part}: {doing}"))
        async for figure in found:
            figures.append(figure)
            console.log(f"{figure.part}: {figure.what}: {figure.ours:,.2f} {figure.unit}")
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.log", description=__doc__)
    parser.add_argument("--only", choices=PARTS, action="append", help="only this part (may be repeated)")
    parser.add_argument("--quick", action="store_true", help="less data, fewer rounds")
    parser.add_argument("--dir", type=Path, help="a directory on the disk to measure, with 4 GiB to spare")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    figures: list[Figure] = []
    for part in args.only or PARTS:
        # A process for each: what one part leaves in memory is not counted as another's.
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
            figures += process.submit(run, part, args.dir, args.quick).result()
    if args.json:
        sys.stdout.writelines(figure.json() + "\n" for figure in figures)
    else:
        load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
        Console().print(table(figures, f"The log (load {load} on {os.cpu_count()} cores)"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
