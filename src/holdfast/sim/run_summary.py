"""Running seeds one after another, and the summary of what they did."""

import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import msgspec

from holdfast.sim.worlds import LEASES, AnyRun, AnyVariant, SimWorld
from holdfast.vocabulary.clock import Clock


class SeedFailure(msgspec.Struct, frozen=True):
    """A seed that broke a rule, and the first rule it broke."""

    seed: int
    rule: str
    what: str
    at_ms: float


class RunSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The result of many seeds. `events`: all that their histories hold; `means` is per seed."""

    world: str
    variant: str
    seeds: int
    seconds: float
    seeds_per_s: float
    events: int
    failures: list[SeedFailure]
    means: dict[str, float]

    def after(self, duration_ms: int) -> "RunSummary":
        """The same, if it took so long."""
        seconds = max(1, duration_ms) / 1000
        return msgspec.structs.replace(self, seconds=seconds, seeds_per_s=round(self.seeds / seconds, 1))


def merge_summaries(one: RunSummary, other: RunSummary) -> RunSummary:
    """That of the seeds of both, run one after the other."""
    count = one.seeds + other.seeds
    totals = {
        what: one.means.get(what, 0) * one.seeds + other.means.get(what, 0) * other.seeds
        for what in {**one.means, **other.means}
    }
    merged = RunSummary(
        world=one.world,
        variant=one.variant,
        seeds=count,
        seconds=0,
        seeds_per_s=0,
        events=one.events + other.events,
        failures=sorted((*one.failures, *other.failures), key=lambda failure: failure.seed),
        means={what: round(total / max(1, count), 2) for what, total in sorted(totals.items())},
    )
    return merged.after(round(1000 * (one.seconds + other.seconds)))


def run_seeds(
    seeds: Iterable[int],
    *,
    variant: AnyVariant,
    clock: Clock,
    world: SimWorld = LEASES,
    on_run: Callable[[AnyRun], None] = lambda run: None,
) -> RunSummary:
    """Run each seed, one after another."""
    started_ms = clock.boot_ms()
    count = events = 0
    failures: list[SeedFailure] = []
    totals: dict[str, int] = dict.fromkeys(world.counted, 0)
    with _rare_garbage_collection() as collect:
        for seed in seeds:
            run = world.run(seed, variant=variant)
            count += 1
            events += len(run.events)
            for what, kind in world.counted.items():
                totals[what] += _count(run.events, kind)
            for what, times in run.counts.items():
                totals[what] = totals.get(what, 0) + times
            if run.violations:
                first = run.violations[0]
                failures.append(SeedFailure(seed, first.rule, first.what, first.at_ms))
            on_run(run)
            if count % world.collect_every_seeds == 0:
                collect()
    summary = RunSummary(
        world=world.name,
        variant=variant.name,
        seeds=count,
        seconds=0,
        seeds_per_s=0,
        events=events,
        failures=failures,
        means={what: round(total / max(1, count), 2) for what, total in sorted(totals.items())},
    )
    return summary.after(clock.boot_ms() - started_ms)


@contextmanager
def _rare_garbage_collection() -> Iterator[Callable[[], object]]:
    """A world becomes garbage as a whole after a few milliseconds: collecting meanwhile would be a tenth of the cost."""
    was_enabled = gc.isenabled()
    gc.disable()
    gc.freeze()  # modules stay: nobody looks through them
    try:
        yield gc.collect
    finally:
        gc.unfreeze()
        if was_enabled:
            gc.enable()


def _count(events: Iterable[object], kind: type) -> int:
    return sum(type(event) is kind for event in events)
