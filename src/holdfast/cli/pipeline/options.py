"""What every command over HTTP has: where the server is, and how a changed pipeline is told."""

import argparse
from typing import Any

from holdfast.cli.kafka.options import parse_int
from holdfast.cli.output import OK, console, print_json
from holdfast.cli.server_url import NOT_CONNECTED_HINT, server_url
from holdfast.client.http_client import HttpClient


def http_client_for(args: argparse.Namespace) -> HttpClient:
    """The server a command is for."""
    seconds = float(parse_int(args.timeout_s, "--timeout-s", least=1) or 60)
    return HttpClient(server_url(args.http), timeout_s=seconds, hint=NOT_CONNECTED_HINT)


def print_pipeline_state(args: argparse.Namespace, pipeline: dict[str, Any]) -> int:
    """A pipeline as it is wanted now."""
    if args.json:
        print_json(pipeline)
    else:
        state = pipeline["state"]
        console().print(f"{pipeline['name']}: {state['desired']}, {state['replicas']} replicas", markup=False)
    return OK
