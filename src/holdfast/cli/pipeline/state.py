"""`holdfast pipeline start|stop|scale`: the desired state."""

import argparse

from holdfast.cli.arguments import Parser, Parsers, parse_int
from holdfast.cli.http_commands import http_client_for
from holdfast.cli.pipeline.options import add_command, print_pipeline_state
from holdfast.client.http_client import pipeline_path


def add_to(actions: "Parsers[Parser]") -> None:
    """Register the subcommands."""
    start = add_command(actions, "start", "start a pipeline", "holdfast pipeline start orders")
    start.set_defaults(run=run_start)
    stop = add_command(actions, "stop", "stop a pipeline; its progress stays", "holdfast pipeline stop orders")
    stop.set_defaults(run=run_stop)
    scale = add_command(actions, "scale", "change the number of slots", "holdfast pipeline scale orders 3")
    scale.add_argument("replicas", metavar="REPLICAS")
    scale.set_defaults(run=run_scale)


def run_start(args: argparse.Namespace) -> int:
    """Set the desired state to started."""
    return print_pipeline_state(args, http_client_for(args).post(pipeline_path(args.name, "start")))


def run_stop(args: argparse.Namespace) -> int:
    """Set the desired state to stopped."""
    return print_pipeline_state(args, http_client_for(args).post(pipeline_path(args.name, "stop")))


def run_scale(args: argparse.Namespace) -> int:
    """Set the number of replicas."""
    replicas = parse_int(args.replicas, "REPLICAS", least=1)
    return print_pipeline_state(
        args, http_client_for(args).post(pipeline_path(args.name, "scale"), {"replicas": replicas})
    )
