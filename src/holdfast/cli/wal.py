"""`holdfast wal …`: inspect and repair an agent's write-ahead log. Tails set aside: `cli.set_aside`."""

import argparse
import asyncio
from functools import partial
from pathlib import Path

import msgspec

from holdfast.cli import set_aside
from holdfast.cli.arguments import add_family
from holdfast.cli.output import CORRUPT, FAILED, OK, print_json, print_line, print_table
from holdfast.log.replication.inspection import inspect_replicas
from holdfast.log.wal.inspection import WalInspection, inspect
from holdfast.log.wal.repair import RepairReport, plan_repair, repair
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SystemRandom

REPLICA_COLUMNS = (
    *("topic_id", "partition", "promised", "base_epoch", "base_offset", "end_epoch", "end_offset"),
    *("entries", "size_bytes", "damage"),
)
FILE_COLUMNS = ("file", "generation", "first_lsn", "last_lsn", "frames", "payload_bytes", "partitions", "damage")


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register this family's commands."""
    actions = add_family(commands, "wal", "inspect and repair a write-ahead log")
    look = actions.add_parser(
        "inspect",
        help="show files, LSNs, partitions and damage",
        description="Reads every file of a WAL and changes nothing. Exits with 4 if the WAL is damaged.",
    )
    look.add_argument("directory", metavar="DIR", help="the WAL's directory")
    look.add_argument("--json", action="store_true", help="one JSON object per file, then one for the whole")
    look.set_defaults(run=run_inspect)
    copies = actions.add_parser(
        "replicas",
        help="show the replicas in it: what each has promised and has",
        description="Reads every file of a WAL and changes nothing. Exits with 4 if a replica cannot be read.",
    )
    copies.add_argument("directory", metavar="DIR", help="the WAL's directory")
    copies.add_argument("--json", action="store_true", help="one JSON object per replica")
    copies.set_defaults(run=run_replicas)
    mend = actions.add_parser(
        "repair",
        help="set a damaged file aside and keep all that is readable",
        description="Without --yes it only prints what it would change. With it, the damaged file and those after it are renamed "
        "to *.damaged-N and stay as they are; frames whose partition provably lost nothing are copied into fresh files; "
        "repair-N.json lists every frame that was set aside or lost. A torn tail needs no repair.",
    )
    mend.add_argument("directory", metavar="DIR", help="the WAL's directory; no process may have it open")
    mend.add_argument("--yes", action="store_true", help="apply the repair")
    mend.add_argument("--json", action="store_true", help="the report as one JSON object")
    mend.set_defaults(run=run_repair)
    set_aside.add_commands(actions)


async def run_inspect(args: argparse.Namespace) -> int:
    """Print one file per line; fail if the WAL could not be opened."""
    found = await asyncio.to_thread(inspect, Path(args.directory))
    if args.json:
        for file in found.files:
            print_json(msgspec.to_builtins(file))
        print_json(_summary(found))
    else:
        rows = [{**msgspec.to_builtins(file), "partitions": len(file.partitions)} for file in found.files]
        print_table(f"WAL {args.directory}", rows, FILE_COLUMNS)
        _print_verdict(found)
    return CORRUPT if found.damage is not None or found.unfinished_repairs else OK


async def run_replicas(args: argparse.Namespace) -> int:
    """Print one replica per line; fail if one cannot be read."""
    found = await asyncio.to_thread(inspect_replicas, Path(args.directory))
    rows = [msgspec.to_builtins(each) for each in found]
    if args.json:
        for row in rows:
            print_json(row)
    else:
        print_table(f"Replicas in WAL {args.directory}", rows, REPLICA_COLUMNS)
    return CORRUPT if any(each.damage for each in found) else OK


def _summary(found: WalInspection) -> dict[str, object]:
    damage, torn = found.damage, found.torn
    return {
        "directory": str(found.directory),
        "spare_files": found.spare_files,
        "set_aside": found.set_aside,
        "tails": found.tails,
        "unfinished_repairs": found.unfinished_repairs,
        "torn": None if torn is None else {"file": torn.path.name, "position": torn.position, "lsn": torn.lsn},
        "damage": None
        if damage is None
        else {"file": damage.path.name, "position": damage.position, "lsn": damage.lsn, "found": damage.found},
    }


def _print_verdict(found: WalInspection) -> None:
    print_line(f"{found.spare_files} spare files, {len(found.set_aside)} files set aside")
    if found.tails:
        print_line(
            f"{len(found.tails)} tails wait for a decision: `holdfast wal set-aside list {found.directory}` shows them"
        )
    if found.torn is not None:
        print_line(
            f"torn tail in {found.torn.path.name} at byte {found.torn.position}: never acknowledged, opening the WAL removes it"
        )
    if found.unfinished_repairs:
        print_line(
            f"{found.unfinished_repairs[0]} was interrupted: run `holdfast wal repair {found.directory} --yes` to finish it"
        )
    if found.damage is None:
        print_line("This WAL can be opened." if not found.unfinished_repairs else "This WAL cannot be opened.")
    else:
        print_line(f"{found.damage.path.name} is corrupt at byte {found.damage.position}: {found.damage.found}")
        print_line(
            f"This WAL cannot be opened. `holdfast wal repair {found.directory}` shows what a repair would change."
        )


async def run_repair(args: argparse.Namespace) -> int:
    """Say what a repair would do, or do it."""
    directory, clock = Path(args.directory), RealClock()
    if args.yes:
        report = await asyncio.to_thread(partial(repair, directory, clock=clock, random=SystemRandom()))
    else:
        report = await asyncio.to_thread(partial(plan_repair, directory, clock=clock))
    if args.json:
        print_json({"done": args.yes and report is not None, "report": msgspec.to_builtins(report)})
    elif report is None:
        print_line("Nothing to repair.")
    else:
        _print_report(report, done=args.yes)
    return OK if report is None or args.yes else FAILED


def _print_report(report: RepairReport, *, done: bool) -> None:
    print_line(f"{report.damaged_file} is corrupt at byte {report.damaged_position}: {report.found}")
    for name, new_name in report.renames:
        if name != new_name and new_name.endswith(f".damaged-{report.number}"):
            print_line(f"set aside: {name} → {new_name}")
    print_line(f"kept from them: {report.kept_frames} frames")
    rows = [{**msgspec.to_builtins(frame), "state": "in doubt"} for frame in report.in_doubt]
    rows += [{**msgspec.to_builtins(frame), "state": "lost"} for frame in report.lost]
    columns = ("state", "lsn", "topic_id", "partition", "base_offset", "count", "acknowledged", "position")
    print_table("frames no longer in the WAL", rows, columns)
    for first, last in report.missing_lsns:
        print_line(f"missing: LSN {first} to {last}")
    print_line(
        f"The full report is repair-{report.number}.json." if done else "Nothing was changed. Add --yes to apply."
    )
