"""`holdfast store backup|restore`: a store in one file."""

import argparse
import dataclasses
from pathlib import Path

from holdfast.app.embedded_etcd.place import opened_store_url
from holdfast.app.store_backup import back_up
from holdfast.app.store_restore import restore
from holdfast.cli.output import OK, print_json, print_line
from holdfast.cli.settings_flags import add_setting_flags, effective_settings_for
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SystemRandom


def add_commands(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the commands."""
    made = actions.add_parser(
        "backup",
        help="write a backup of the store into a file",
        description="Writes an etcd snapshot or a copy of an SQLite database while servers run, and checks it before the file has "
        "its name. PostgreSQL and Redis have means of their own. Objects are not in it. Takes the flags of `holdfast serve`.",
    )
    made.add_argument("file", metavar="FILE", help="a file that does not exist yet")
    made.add_argument("--json", action="store_true", help="the report as one JSON object")
    add_setting_flags(made)
    made.set_defaults(run=run_backup)
    back = actions.add_parser(
        "restore",
        help="restore a backup into a new data directory",
        description="Makes a new store of a backup in --data, which must be new or empty. An etcd snapshot becomes a new "
        "cluster of one member (--name, --etcd-peer); other nodes join it. Stop every process of the old store first, for good. "
        "Objects that were published since are unknown to it: see `holdfast objects adopt`. Takes the flags of "
        "`holdfast serve`.",
    )
    back.add_argument("file", metavar="FILE", help="what `holdfast store backup` wrote")
    back.add_argument("--json", action="store_true", help="the report as one JSON object")
    add_setting_flags(back)
    back.set_defaults(run=run_restore)


async def run_backup(args: argparse.Namespace) -> int:
    """Write a backup, with a progress bar."""
    from rich.console import Console
    from rich.progress import DownloadColumn, Progress

    url = opened_store_url(effective_settings_for(args).settings)
    columns = (*Progress.get_default_columns(), DownloadColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=args.json) as bar:
        task = bar.add_task("backup", total=None)
        report = await back_up(
            url,
            Path(args.file),
            lambda done, total: bar.update(task, completed=done, total=total),
            clock=RealClock(),
            random=SystemRandom(),
        )
    if args.json:
        print_json(dataclasses.asdict(report))
    else:
        print_line(f"{report.file}: {report.engine}, {report.bytes} bytes, SHA-256 {report.sha256}, checked")
    return OK


async def run_restore(args: argparse.Namespace) -> int:
    """Restore a backup."""
    settings = effective_settings_for(args).settings
    report = await restore(settings, Path(args.file), random=SystemRandom())
    if args.json:
        print_json(dataclasses.asdict(report))
    else:
        print_line(
            f"{report.engine} restored in {report.place}: serve it with --store {report.store} --data {settings.data}"
        )
    return OK
