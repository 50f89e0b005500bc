"""Running many seeds: `python -m holdfast.sim`. Prints failures with their transcripts; keeps the seeds; exits with 1.

It reads its arguments and nothing of the environment.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from holdfast.sim.parallel import run_parts, write_report
from holdfast.sim.run_summary import RunSummary, run_seeds
from holdfast.sim.seeds import SavedSeed, save_seeds
from holdfast.sim.transcript import transcript
from holdfast.sim.worlds import LEASES, WORLDS, AnyRun, AnyVariant, SimWorld
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import HoldfastError, InvalidError

TRANSCRIPTS_MAX: Final = 3  # failing seeds shown with their transcript; of the others, the rule
PART_SEEDS_MAX: Final = 50  # that one process runs before it says what it found
LINES_BEFORE: Final = 40  # of a transcript, up to the first broken rule; `--trace` shows all


def main(argv: Sequence[str]) -> int:
    """The command: 0 if every seed kept every rule, 1 if one did not, 2 if the arguments are invalid."""
    args = _parser().parse_args(argv)
    console = Console(highlight=False, soft_wrap=True)
    world = WORLDS[args.world]
    try:
        variant = world.variant(args.planted or world.correct.name)
    except InvalidError as error:
        console.print(str(error), style="red", markup=False)
        return 2
    seeds = [args.seed] if args.seed is not None else range(args.first, args.first + args.seeds)
    if isinstance(seeds, range) and (args.processes > 1 or args.report is not None):
        summary = _run_in_parts(seeds, world, variant, args)
    else:
        summary = _run_with_progress(seeds, world, variant, quiet=args.json or len(seeds) == 1)
    shown = [args.seed] if args.seed is not None and args.trace else [each.seed for each in summary.failures]
    texts = {seed: _transcript_lines(seed, world, variant, whole=args.trace) for seed in shown[:TRANSCRIPTS_MAX]}
    if args.json:
        console.print(msgspec.json.encode({"summary": summary, "transcripts": texts}).decode(), markup=False)
    else:
        _print_summary(console, summary, texts, world)
    keep_in = args.keep or (world.seeds_path if variant is world.correct else None)
    if summary.failures and keep_in is not None:
        try:
            save_seeds(keep_in, [SavedSeed(variant.name, each.seed, each.rule) for each in summary.failures], world)
        except (OSError, HoldfastError) as error:
            console.print(f"seeds were not kept: {error}; name a file with --keep", style="yellow", markup=False)
    return 1 if summary.failures else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m holdfast.sim", description="Run seeded worlds and check their histories."
    )
    parser.add_argument(
        "--world", choices=tuple(WORLDS), default=LEASES.name, help=f"which world to run (default {LEASES.name})"
    )
    parser.add_argument("--seeds", type=int, default=1000, metavar="N", help="how many seeds (default 1000)")
    parser.add_argument("--from", type=int, default=0, dest="first", metavar="SEED", help="the first seed (default 0)")
    parser.add_argument("--seed", type=int, metavar="S", help="only this seed")
    parser.add_argument(
        "--planted",
        metavar="NAME",
        help="run a mutant, which must fail: "
        + "; ".join(f"{', '.join(world.mutants)} ({world.name})" for world in WORLDS.values()),
    )
    parser.add_argument("--processes", type=int, default=1, metavar="N", help="over so many processes (default 1)")
    parser.add_argument(
        "--report", type=Path, metavar="FILE", help="JSON of what has been run, written anew every few seeds"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")
    parser.add_argument("--trace", action="store_true", help="whole transcripts, not only their ends")
    parser.add_argument(
        "--keep", type=Path, metavar="FILE", help=f"where failing seeds are kept (default {LEASES.seeds_path})"
    )
    return parser


def _run_with_progress(seeds: Sequence[int], world: SimWorld, variant: AnyVariant, *, quiet: bool) -> RunSummary:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=quiet) as progress:
        bar = progress.add_task(variant.name, total=len(seeds))
        ran = failed = 0

        def show(run: AnyRun) -> None:
            nonlocal ran, failed
            ran += 1
            failed += bool(run.violations)
            if ran % 20 == 0:
                progress.update(bar, completed=ran, description=f"{variant.name}: {failed} failed")

        return run_seeds(seeds, variant=variant, clock=RealClock(), world=world, on_run=show)


def _run_in_parts(seeds: range, world: SimWorld, variant: AnyVariant, args: argparse.Namespace) -> RunSummary:
    part_seeds = max(1, min(PART_SEEDS_MAX, len(seeds) // (4 * args.processes)))
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    summary: RunSummary | None = None
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=args.json) as progress:
        bar = progress.add_task(variant.name, total=len(seeds))
        for summary in run_parts(
            world.name, variant.name, seeds, processes=args.processes, part_seeds=part_seeds, clock=RealClock()
        ):
            progress.update(bar, completed=summary.seeds, description=f"{variant.name}: {len(summary.failures)} failed")
            if args.report is not None:
                write_report(args.report, summary)
    return summary if summary is not None else run_seeds((), variant=variant, clock=RealClock(), world=world)


def _transcript_lines(seed: int, world: SimWorld, variant: AnyVariant, *, whole: bool) -> list[str]:
    """The seed once more, with notes: the same run, because a seed decides everything."""
    run = world.run(seed, variant=variant, tracing=True)
    lines = list(transcript(run.events, run.violations, described=world.describe))
    if whole or not run.violations:
        return lines
    until = next(at for at, line in enumerate(lines) if line.split(maxsplit=1)[0] == "!") + 1
    return lines[max(0, until - LINES_BEFORE) : until]


def _print_summary(console: Console, summary: RunSummary, texts: dict[int, list[str]], world: SimWorld) -> None:
    for seed, lines in texts.items():
        console.rule(f"{summary.variant} {seed}")
        for line in lines:
            console.print(line, markup=False, style="bold red" if line.split(maxsplit=1)[0] == "!" else None)
    for failure in summary.failures:
        console.print(f"seed {failure.seed} broke {failure.rule}: {failure.what}", markup=False, style="red")
    for rule in dict.fromkeys(failure.rule for failure in summary.failures):
        console.print(f"{rule}: {world.rules[rule]}", markup=False)
    means = ", ".join(f"{what} {mean:g}" for what, mean in summary.means.items())
    console.print(f"per seed: {means}", markup=False, style="dim")
    console.print(
        f"{summary.variant}: {summary.seeds} seeds, {len(summary.failures)} failed, {summary.events} events, "
        f"{summary.seconds:g} s, {summary.seeds_per_s:g} seeds/s",
        markup=False,
        style="red" if summary.failures else "green",
    )
