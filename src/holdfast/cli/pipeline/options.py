"""Options of every `holdfast pipeline` command, and how a changed pipeline is printed."""

import argparse
from typing import Any

from holdfast.cli.arguments import Parser, Parsers
from holdfast.cli.http_commands import add_http_command
from holdfast.cli.output import OK, print_json, print_line


def add_command(actions: "Parsers[Parser]", name: str, does: str, examples: str, *, named: bool = True) -> Parser:
    """A subcommand with the options of commands over HTTP."""
    return add_http_command(actions, name, does, examples, named="a pipeline's name or id" if named else "")


def print_pipeline_state(args: argparse.Namespace, pipeline: dict[str, Any]) -> int:
    """A pipeline's desired state and replicas."""
    if args.json:
        print_json(pipeline)
    else:
        state = pipeline["state"]
        print_line(f"{pipeline['name']}: {state['desired']}, {state['replicas']} replicas")
    return OK
