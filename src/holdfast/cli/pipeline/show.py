"""`holdfast pipeline show`."""

import argparse
import sys

from holdfast.cli.arguments import Parser, Parsers
from holdfast.cli.http_commands import http_client_for
from holdfast.cli.output import OK, print_json
from holdfast.cli.pipeline.file import pipeline_yaml
from holdfast.cli.pipeline.options import add_command
from holdfast.client.http_client import pipeline_path


def add_to(actions: "Parsers[Parser]") -> None:
    """Register the subcommand."""
    made = add_command(
        actions, "show", "print a pipeline as a file for `apply`", "holdfast pipeline show orders > orders.yaml"
    )
    made.set_defaults(run=run_show)


def run_show(args: argparse.Namespace) -> int:
    """Print a pipeline as YAML that `apply` takes; secrets are ***."""
    client = http_client_for(args)
    pipeline, parts = client.get(pipeline_path(args.name)), client.get(pipeline_path(args.name, "parts"))
    if args.json:
        print_json({**pipeline, "parts": parts})
    else:
        sys.stdout.write(pipeline_yaml(pipeline, parts))
    return OK
