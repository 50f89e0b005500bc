"""`holdfast pipeline …`: pipelines of a cluster, over HTTP. Parse, ask the server, show."""

import argparse

from holdfast.cli.http.parsers import add_pipeline


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register this family's commands."""
    add_pipeline(commands)
