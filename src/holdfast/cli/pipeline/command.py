"""`holdfast pipeline`: the family. Each subcommand registers itself."""

from typing import Final

from holdfast.cli.arguments import Parser, Parsers, add_family
from holdfast.cli.pipeline import (
    apply,
    delete,
    dlq,
    export,
    infer,
    listing,
    migrate,
    preview,
    rewind,
    show,
    state,
    status,
    table,
    validate,
    workers,
)

_SUBCOMMANDS: Final = (
    apply,
    state,
    status,
    listing,
    show,
    export,
    infer,
    preview,
    validate,
    migrate,
    table,
    workers,
    dlq,
    rewind,
    delete,
)


def add_commands(commands: "Parsers[Parser]") -> None:
    """Register this family's commands."""
    actions = add_family(commands, "pipeline", "create, start, watch and rewind pipelines, over HTTP")
    for subcommand in _SUBCOMMANDS:
        subcommand.add_to(actions)
