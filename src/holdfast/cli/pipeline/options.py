"""Options of every `holdfast pipeline` command, the client they make, and how a changed pipeline is printed."""

import argparse
import textwrap
from typing import Any

from holdfast.cli.arguments import Parser, Parsers, parse_int
from holdfast.cli.output import OK, print_json, print_line
from holdfast.cli.server_url import ADDRESS_VARIABLE, DEFAULT_ADDRESS, NOT_CONNECTED_HINT, server_url
from holdfast.client.http_client import HttpClient


def add_command(actions: "Parsers[Parser]", name: str, does: str, examples: str, *, named: bool = True) -> Parser:
    """A subcommand with `--http`, `--timeout-s` and `--json`; its help ends with `examples`."""
    made = actions.add_parser(
        name,
        help=does,
        description=textwrap.fill(does[0].upper() + does[1:] + ".", 100),
        epilog="examples:\n" + textwrap.indent(examples, "  "),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if named:
        made.add_argument("name", metavar="NAME", help="a pipeline's name or id")
    made.add_argument("--http", metavar="URL", default="", help=f"default: ${ADDRESS_VARIABLE}, else {DEFAULT_ADDRESS}")
    made.add_argument("--timeout-s", metavar="S", default="60", help="how long to wait for a response (default: 60)")
    made.add_argument("--json", action="store_true", help="JSON, one object per line")
    return made


def http_client_for(args: argparse.Namespace) -> HttpClient:
    """The client of the server that the arguments name, or the environment."""
    timeout_s = float(parse_int(args.timeout_s, "--timeout-s", least=1) or 60)
    return HttpClient(server_url(args.http), timeout_s=timeout_s, hint=NOT_CONNECTED_HINT)


def print_pipeline_state(args: argparse.Namespace, pipeline: dict[str, Any]) -> int:
    """A pipeline's desired state and replicas."""
    if args.json:
        print_json(pipeline)
    else:
        state = pipeline["state"]
        print_line(f"{pipeline['name']}: {state['desired']}, {state['replicas']} replicas")
    return OK
