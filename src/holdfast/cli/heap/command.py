"""`holdfast heap`: the family. Each subcommand registers itself."""

from typing import Final

from holdfast.cli.arguments import Parser, Parsers, add_family
from holdfast.cli.heap import administration, dlq, leases, messages

_SUBCOMMANDS: Final = (administration, messages, leases, dlq)


def add_commands(commands: "Parsers[Parser]") -> None:
    """Register this family's commands."""
    actions = add_family(commands, "heap", "create heaps, enqueue, pop and acknowledge messages, over HTTP")
    for subcommand in _SUBCOMMANDS:
        subcommand.add_to(actions)
