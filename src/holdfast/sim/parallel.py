"""Many seeds over several processes: parts of a range, each run by one process, and one summary of all.

The one rule: a seed's run is the same in whichever process it happens, so the parts may end in any order. A report, if one is
wanted, is written anew after each part: a run that is ended early has said what it found.
"""

import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from pathlib import Path

import msgspec

from holdfast.sim.run_summary import RunSummary, merge_summaries, run_seeds
from holdfast.sim.worlds import WORLDS
from holdfast.vocabulary.clock import Clock, RealClock


def run_part(world: str, variant: str, seeds: Sequence[int]) -> RunSummary:
    """One part, in this process."""
    chosen = WORLDS[world]
    return run_seeds(seeds, variant=chosen.variant(variant), clock=RealClock(), world=chosen)


def run_parts(
    world: str, variant: str, seeds: range, *, processes: int, part_seeds: int, clock: Clock
) -> Iterator[RunSummary]:
    """The summary of all parts that have ended, each time that one does; the last is that of all seeds."""
    started_ms = clock.boot_ms()
    parts = [seeds[at : at + part_seeds] for at in range(0, len(seeds), part_seeds)]
    ended: RunSummary | None = None
    with _pool(processes) as pool:
        running: list[Future[RunSummary]] = [pool.submit(run_part, world, variant, part) for part in parts]
        for part in as_completed(running):
            found = part.result()
            ended = found if ended is None else merge_summaries(ended, found)
            ended = ended.after(clock.boot_ms() - started_ms)
            yield ended


@contextmanager
def _pool(processes: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that are begun anew: a progress bar is a thread, and a forked process would have its locks."""
    pool = ProcessPoolExecutor(max_workers=processes, mp_context=get_context("spawn"), initializer=_end_with_the_parent)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _end_with_the_parent() -> None:
    """A worker whose parent was killed would run its part, and then wait for ever."""
    parent = parent_process()
    assert parent is not None, "a worker of a pool has a parent"

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def write_report(path: Path, summary: RunSummary) -> None:
    """Replace the report."""
    beside = path.with_suffix(".part")
    beside.write_bytes(msgspec.json.format(msgspec.json.encode(summary)) + b"\n")
    beside.replace(path)
