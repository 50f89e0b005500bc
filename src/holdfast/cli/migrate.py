"""`holdfast migrate`: move a stopped cluster to another store and object storage."""

import argparse
import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.app.data_directory import require_unlocked
from holdfast.app.embedded_etcd.place import opened_store_url
from holdfast.app.migration.migrate import Migration
from holdfast.app.migration.model import (
    PARALLEL_MAX,
    MigrationProgress,
    MigrationReport,
    MigrationSettings,
    OnProgress,
    opened_end,
)
from holdfast.cli.arguments import add_yes, confirmed, parse_int
from holdfast.cli.output import OK, print_json, print_line, print_rows, print_warning
from holdfast.cli.settings_flags import add_setting_flags, effective_settings_for
from holdfast.objects.urls import parse_objects_url
from holdfast.stores.urls import is_embedded_etcd, parse_store_url
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import InvalidError, UsageError
from holdfast.vocabulary.random import SystemRandom

if TYPE_CHECKING:
    from rich.progress import TaskID

EXAMPLES: Final = """\
examples:
  holdfast migrate --dry-run --to-store postgresql://holdfast@db/holdfast --to-objects s3://events/holdfast
  holdfast migrate --from sqlite+file --to postgresql+s3 \\
    --to-store postgresql://holdfast@db/holdfast --to-objects s3://events/holdfast
"""
_ENGINE: Final = {
    "postgres": "postgresql",
    "etcds": "etcd",
    "rediss": "redis",
    "valkey": "redis",
    "valkeys": "redis",
    "folder": "file",
}


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the command."""
    made = commands.add_parser(
        "migrate",
        help="move a stopped cluster to another store and object storage",
        description="Copies the store and the objects of a stopped cluster, verifies every entry and every object, and closes "
        "the source for good. Killed or failed, run it again: it goes on where it was. The source is given by the flags of "
        "`holdfast serve`, the target by --to-store and --to-objects. WALs stay where they are: start the servers of the target "
        "with the same --data.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--to-store", metavar="URL", default="", help="the new store: empty, or of an earlier run")
    made.add_argument(
        "--to-objects",
        metavar="URL",
        default="",
        help="the new object storage: an empty folder or prefix (default: the objects stay where they are)",
    )
    made.add_argument(
        "--from", dest="from_engines", metavar="STORE+OBJECTS", default="", help="refuse another source, as sqlite+file"
    )
    made.add_argument(
        "--to", dest="to_engines", metavar="STORE+OBJECTS", default="", help="refuse another target, as postgresql+s3"
    )
    made.add_argument("--from-store", dest="store", metavar="URL", help="the same as --store: the present store")
    made.add_argument(
        "--from-objects", dest="objects", metavar="URL", help="the same as --objects: the present object storage"
    )
    made.add_argument("--dry-run", action="store_true", help="check both ends, show what would be moved, move nothing")
    made.add_argument("--parallel", metavar="N", default="8", help="objects copied at a time (default: 8)")
    made.add_argument("--json", action="store_true", help="the report as one JSON object")
    add_yes(made)
    add_setting_flags(made)
    made.set_defaults(run=run_migrate)


async def run_migrate(args: argparse.Namespace) -> int:
    """Check, ask, move, report."""
    settings = effective_settings_for(args).settings
    store, objects = opened_store_url(settings), settings.objects
    to_objects = args.to_objects or objects
    if not args.to_store:
        raise UsageError(
            "where to? Give --to-store URL, and --to-objects URL unless the objects stay where they are. To move objects alone, "
            "give another database, schema or prefix of the same server as --to-store"
        )
    if is_embedded_etcd(args.to_store):
        raise InvalidError("--to-store", args.to_store, "the address of running members, such as etcd://127.0.0.1:2379")
    _check_engines("--from", args.from_engines, store, objects)
    _check_engines("--to", args.to_engines, args.to_store, to_objects)
    parallel = parse_int(args.parallel, "--parallel", least=1, most=PARALLEL_MAX) or 1
    if (
        parse_store_url(store).parts.scheme == "sqlite"
    ):  # elsewhere sessions tell, and an etcd member runs in the directory
        await asyncio.to_thread(require_unlocked, settings.data)
    clock, random = RealClock(), SystemRandom()
    async with (
        opened_end(store, objects, create=False, clock=clock, random=random) as source,
        opened_end(
            args.to_store,
            to_objects,
            create=True,
            clock=clock,
            random=random,
            keep=None if args.to_objects else source,
        ) as target,
    ):
        question = (
            f"Move the cluster of {source.location.store} to {target.location.store}, and close it here for good?"
        )
        if not args.dry_run and not confirmed(args, question):
            return OK
        with _progress_bar(disable=args.json) as on_progress:
            migration = Migration(
                source,
                target,
                clock=clock,
                random=random,
                settings=MigrationSettings(parallel=parallel),
                on_progress=on_progress,
            )
            report = await migration.run(dry_run=args.dry_run)
    _print(report, as_json=args.json)
    return OK


def _check_engines(option: str, given: str, store: str, objects: str) -> None:
    """`UsageError` if the URLs are of other engines than the short form names."""
    if not given:
        return
    found = parse_store_url(store).parts.scheme, parse_objects_url(objects).parts.scheme
    if [_engine(each) for each in given.split("+")] != [_engine(each) for each in found]:
        raise UsageError(f"{option} {given} does not match the URLs, which are of {'+'.join(map(_engine, found))}")


def _engine(name: str) -> str:
    return _ENGINE.get(name, name)


@contextmanager
def _progress_bar(*, disable: bool) -> Iterator[OnProgress]:
    """A bar for each stage, on stderr: bytes of objects, numbers of entries."""
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description:10}"),
        BarColumn(),
        TextColumn("{task.fields[counted]}"),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=Console(stderr=True), disable=disable) as bar:
        tasks: dict[str, TaskID] = {}

        def show(progress: MigrationProgress) -> None:
            if progress.stage not in tasks:
                tasks[progress.stage] = bar.add_task(progress.stage, total=None, counted="")
            by_bytes = progress.stage == "objects"
            bar.update(
                tasks[progress.stage],
                completed=progress.bytes_done if by_bytes else progress.done,
                total=(progress.bytes_total if by_bytes else progress.total) or None,
                counted=f"{progress.done:,}/{progress.total:,}"
                + (f"  {_size(progress.bytes_done)}" if by_bytes else ""),
            )

        yield show


def _size(size_bytes: int) -> str:
    from rich.filesize import decimal

    return decimal(size_bytes)


def _print(report: MigrationReport, *, as_json: bool) -> None:
    if as_json:
        print_json(msgspec.to_builtins(report))
        return
    verb = "would move" if report.dry_run else "moved, every one verified"
    kept = report.origin.objects == report.to.objects
    objects = "no objects" if kept else f"{report.objects:,} objects ({_size(report.object_bytes)})"
    print_line(
        f"cluster {report.cluster}: {report.entries:,} entries ({_size(report.entry_bytes)}) and {objects} {verb}"
    )
    print_line(f"  from  {report.origin}")
    print_line(f"  to    {report.to}")
    if report.unpublished:
        print_warning(
            "these partitions have records that may be in the WAL of their agent alone. Start it with the same --data, or stop it "
            "gracefully before you migrate:"
        )
        print_rows(
            "unpublished",
            [msgspec.to_builtins(each) for each in report.unpublished],
            ("topic", "partition", "agent", "offsets"),
        )
    if report.finished:
        print_line(
            "start each server with its --data as before, and with the new --store and --objects; the source refuses servers"
        )
