"""`holdfast pipeline delete`."""

import argparse

from holdfast.cli.arguments import Parser, Parsers, add_yes, confirmed
from holdfast.cli.http_commands import http_client_for
from holdfast.cli.output import OK, USAGE, print_json, print_line
from holdfast.cli.pipeline.options import add_command
from holdfast.client.http_client import pipeline_path


def add_to(actions: "Parsers[Parser]") -> None:
    """Register the subcommand."""
    made = add_command(
        actions, "delete", "delete stopped pipelines; tables stay", "holdfast pipeline delete orders --yes", named=False
    )
    made.add_argument("names", metavar="NAME", nargs="+")
    add_yes(made)
    made.set_defaults(run=run_delete)


def run_delete(args: argparse.Namespace) -> int:
    """Delete pipelines and their progress after asking."""
    client = http_client_for(args)
    if not confirmed(args, f"Delete {', '.join(args.names)} and their progress?"):
        print_line("Nothing was deleted.")
        return USAGE
    for name in args.names:
        client.delete_confirmed(pipeline_path(name), "pipeline.delete", name)
        if args.json:
            print_json({"name": name, "deleted": True})
        else:
            print_line(f"{name} deleted; its tables stay")
    return OK
