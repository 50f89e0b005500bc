"""`holdfast`: parse, call one function, print, return an exit code. No business logic here.

A command's module is imported when the command is called: `holdfast serve` does not pay for a Kafka client, nor `holdfast topic`
for a server. Only a misspelt command imports all of them.
"""

import argparse
import asyncio
import sys
from collections.abc import Callable, Coroutine, Sequence
from importlib import import_module
from typing import Any, Final

from holdfast import __version__
from holdfast.cli.arguments import CommandParser
from holdfast.cli.output import EXIT_CODES, INTERRUPTED, OK, exit_code, print_error
from holdfast.cli.standard_output import OutputError, discard_stdout
from holdfast.vocabulary.errors import HoldfastError

# command → the module with its function `add_commands`
COMMAND_MODULES: Final = {
    "acl": "holdfast.cli.security.acl",
    "agents": "holdfast.cli.cluster.agents",
    "clickhouse": "holdfast.cli.clickhouse",
    "config": "holdfast.cli.config",
    "consume": "holdfast.cli.consume",
    "demo": "holdfast.cli.demo.command",
    "doctor": "holdfast.cli.doctor",
    "drain": "holdfast.cli.cluster.drain",
    "group": "holdfast.cli.group",
    "heap": "holdfast.cli.heap.command",
    "key": "holdfast.cli.security.key",
    "leases": "holdfast.cli.cluster.leases",
    "migrate": "holdfast.cli.migrate",
    "objects": "holdfast.cli.objects",
    "partitions": "holdfast.cli.cluster.partitions",
    "pipeline": "holdfast.cli.pipeline.command",
    "produce": "holdfast.cli.produce",
    "quota": "holdfast.cli.security.quota",
    "rebalance": "holdfast.cli.cluster.rebalance",
    "registry": "holdfast.cli.registry",
    "secrets": "holdfast.cli.security.secrets",
    "segment": "holdfast.cli.segment",
    "serve": "holdfast.cli.serve",
    "store": "holdfast.cli.store.command",
    "text": "holdfast.cli.text",
    "top": "holdfast.cli.top.command",
    "topic": "holdfast.cli.topic",
    "transfer": "holdfast.cli.cluster.transfer",
    "user": "holdfast.cli.security.user",
    "wal": "holdfast.cli.wal",
}
DEFAULT_SUBCOMMANDS: Final = {"clickhouse": "serve"}
COMMANDS: Final = {
    "server": {
        "serve": "run a server: Kafka, HTTP, pipelines",
        "demo": "events to ClickHouse rows, from end to end",
        "config": "the effective settings and where each comes from",
        "top": "live view: nodes, topics, lag, leases, pipelines",
    },
    "any Kafka cluster": {
        "topic": "create, list, describe, configure, delete topics",
        "produce": "send lines as records",
        "consume": "print records",
        "group": "list, describe, reset, delete consumer groups",
    },
    "heaps": {
        "heap": "create heaps, enqueue, pop and acknowledge, dead letters",
    },
    "text protocol": {
        "text": "send requests to any node, or interactively",
    },
    "cluster": {
        "agents": "list agents and what they hold",
        "partitions": "leader, epoch and offsets of a topic's partitions",
        "leases": "who holds what, at which epoch",
        "transfer": "move a partition to an agent",
        "drain": "move everything off an agent",
        "rebalance": "withdraw assignments, spread evenly again",
    },
    "security": {
        "secrets": "how secrets in the store are sealed; rotate master keys",
        "user": "create, list, delete users",
        "key": "create, list, revoke API keys",
        "acl": "what they may do: create, list, delete ACLs",
        "quota": "how much they may take: set, list, remove quotas",
    },
    "pipelines": {
        "pipeline": "create, start, watch and rewind pipelines",
        "clickhouse": "query the embedded ClickHouse, or serve one",
    },
    "inspection and repair": {
        "doctor": "check what Spark needs on this machine",
        "store": "check a store, its members; back up and restore it",
        "objects": "whose the objects in a bucket are",
        "migrate": "move a stopped cluster to another store and objects",
        "registry": "partitions, owners and checkpoints",
        "segment": "inspect and convert segments",
        "wal": "inspect and repair a write-ahead log",
    },
}


class _Overview(argparse.ArgumentParser):
    """The parser of `holdfast` itself: its help lists the commands by group."""

    def format_help(self) -> str:
        groups = (
            f"{title}:\n" + "".join(f"  {name:<12}{does}\n" for name, does in commands.items())
            for title, commands in COMMANDS.items()
        )
        return (
            f"usage: holdfast COMMAND …\n\n{self.description}\n\n"
            + "\n".join(groups)
            + "\n`holdfast COMMAND --help` shows options and examples. `holdfast --version` prints the version.\n\n"
            + EXIT_CODES
        )


def build_parser(argv: Sequence[str] | None = None) -> argparse.ArgumentParser:
    """The parser: with the command that `argv` begins with, or with all of them."""
    parser = _Overview(prog="holdfast", description="Event logs, priority heaps and Spark pipelines on object storage.")
    parser.add_argument("--version", action="version", version=f"holdfast {__version__}")
    parser.set_defaults(run=lambda _: _print_overview(parser))
    # argparse makes subparsers of the parent's class, which would print the overview as every command's help.
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=CommandParser)
    if argv is not None and list(argv) in ([], ["-h"], ["--help"], ["--version"]):
        return parser
    called = COMMAND_MODULES.get(argv[0]) if argv else None
    for module in [called] if called else dict.fromkeys(COMMAND_MODULES.values()):
        import_module(module).add_commands(commands)
    return parser


def _print_overview(parser: argparse.ArgumentParser) -> int:
    parser.print_help()
    return OK


def _with_subcommand(argv: Sequence[str]) -> list[str]:
    """`holdfast clickhouse --data …` is `holdfast clickhouse serve --data …`."""
    family, option = [*argv[:2], "", ""][:2]
    if family in DEFAULT_SUBCOMMANDS and option.startswith("-") and option not in ("-h", "--help"):
        return [family, DEFAULT_SUBCOMMANDS[family], *argv[1:]]
    return list(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command."""
    try:
        try:
            return _run(_with_subcommand(sys.argv[1:] if argv is None else argv))
        finally:  # also of a `SystemExit`: argparse has printed the help
            sys.stdout.flush()
    except BrokenPipeError:  # the reader of our output closed it
        discard_stdout()
        return OK
    except OutputError as error:
        discard_stdout()
        print_error(error)
        return exit_code(error)


def _run(given: Sequence[str]) -> int:
    try:
        args = build_parser(given).parse_args(given)
        run: Callable[[argparse.Namespace], Coroutine[Any, Any, int] | int] = args.run
        outcome = run(args)
        if isinstance(outcome, int):  # a command that needs no event loop
            return outcome
        with asyncio.Runner(loop_factory=getattr(args, "loop_factory", None)) as runner:
            return runner.run(outcome)
    except OutputError:
        raise
    except HoldfastError as error:
        print_error(error)
        return exit_code(error)
    except KeyboardInterrupt:
        return INTERRUPTED
