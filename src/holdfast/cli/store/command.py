"""The family `holdfast store`."""

import argparse

from holdfast.cli.arguments import add_family
from holdfast.cli.store import backup, check, members


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register this family's commands."""
    actions = add_family(commands, "store", "check a store, its members; back up and restore it")
    check.add_commands(actions)
    members.add_commands(actions)
    backup.add_commands(actions)
