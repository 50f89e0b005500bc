"""`holdfast pipeline …`: pipelines of a cluster, over HTTP. Parse, ask the server, show."""

import argparse

from holdfast.cli.pipeline.parsers import add_pipeline_commands


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register this family's commands."""
    add_pipeline_commands(commands)
