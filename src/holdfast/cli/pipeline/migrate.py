"""`holdfast pipeline migrate`: tables of an earlier release get the columns that this one needs."""

import argparse
from typing import Any

from holdfast.cli.arguments import Parser, Parsers, add_yes
from holdfast.cli.http_commands import http_client_for
from holdfast.cli.output import OK, print_json, print_line, print_warning
from holdfast.cli.pipeline.options import add_command
from holdfast.client.http_client import pipeline_path


def add_to(actions: "Parsers[Parser]") -> None:
    """Register the subcommand."""
    made = add_command(
        actions,
        "migrate",
        "show the statements that tables of an earlier release need, and run them",
        "holdfast pipeline migrate orders\nholdfast pipeline migrate orders --yes",
    )
    add_yes(made)
    made.set_defaults(run=run_migrate)


def run_migrate(args: argparse.Namespace) -> int:
    """Print the statements; with `--yes`, run them."""
    client, path = http_client_for(args), pipeline_path(args.name, "migration")
    migration = client.post(path) if args.yes else client.get(path)
    if args.json:
        print_json(migration)
        return OK
    _print_statements(args.name, migration)
    if migration["statements"]:
        print_line(f"{args.name}: tables migrated" if args.yes else "Nothing was run: pass --yes to run them.")
    return OK


def _print_statements(name: str, pending: dict[str, Any]) -> None:
    if not pending["statements"]:
        print_line(f"{name}: tables are up to date")
    for statement in pending["statements"]:
        print_line(f"{statement};")
    if pending["sharedWith"]:
        others = ", ".join(pending["sharedWith"])
        print_warning(f"{others} write this table, too: rows stored so far stay without a pipeline")
