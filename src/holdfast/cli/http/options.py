"""What every command over HTTP has: where the server is, and how a changed pipeline is told."""

import argparse
from typing import Any

from holdfast.cli.http.client import HttpClient, server_url
from holdfast.cli.kafka.options import whole
from holdfast.cli.output import OK, console, print_json


def client_of(args: argparse.Namespace) -> HttpClient:
    """The server a command is for."""
    seconds = float(whole(args.timeout_s, "--timeout-s", least=1) or 60)
    return HttpClient(server_url(args.http), timeout_s=seconds)


def told(args: argparse.Namespace, pipeline: dict[str, Any]) -> int:
    """A pipeline as it is wanted now."""
    if args.json:
        print_json(pipeline)
    else:
        state = pipeline["state"]
        console().print(f"{pipeline['name']}: {state['desired']}, {state['replicas']} replicas", markup=False)
    return OK
