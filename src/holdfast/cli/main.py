"""`holdfast`: parse, call one function, print, return an exit code. No business here.

A family of commands is imported when it is called: `holdfast serve` does not pay for a Kafka client, nor `holdfast topic` for a
server. Only what needs the whole command line (its help, a misspelt command) imports all of it.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Callable, Coroutine, Sequence
from importlib import import_module
from typing import Any, Final

from holdfast import __version__
from holdfast.cli.output import EXIT_CODES, INTERRUPTED, OK, exit_code, print_error
from holdfast.vocabulary.errors import HoldfastError

# command → the module that has it, with a function `add_commands`
COMMAND_MODULES: Final = {
    "clickhouse": "holdfast.cli.clickhouse",
    "config": "holdfast.cli.config",
    "consume": "holdfast.cli.consume",
    "demo": "holdfast.cli.demo.command",
    "group": "holdfast.cli.group",
    "pipeline": "holdfast.cli.pipeline.command",
    "produce": "holdfast.cli.produce",
    "registry": "holdfast.cli.registry",
    "segment": "holdfast.cli.segment",
    "serve": "holdfast.cli.serve",
    "store": "holdfast.cli.store",
    "topic": "holdfast.cli.topic",
    "wal": "holdfast.cli.wal",
}


def build_parser(argv: Sequence[str] = ()) -> argparse.ArgumentParser:
    """The command line: the family `argv` calls if that can be told from its first word, otherwise the whole."""
    made = argparse.ArgumentParser(
        prog="holdfast",
        description="Event logs, priority heaps and Spark pipelines on object storage.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--version", action="version", version=f"holdfast {__version__}")
    commands = made.add_subparsers(dest="command", required=True, metavar="COMMAND")
    called = COMMAND_MODULES.get(argv[0]) if argv else None
    for module in [called] if called else dict.fromkeys(COMMAND_MODULES.values()):
        import_module(module).add_commands(commands)
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command."""
    given = sys.argv[1:] if argv is None else argv
    try:
        args = build_parser(given).parse_args(given)
        run: Callable[[argparse.Namespace], Coroutine[Any, Any, int] | int] = args.run
        outcome = run(args)
        if isinstance(outcome, int):  # a command that needs no event loop
            return outcome
        with asyncio.Runner(loop_factory=getattr(args, "loop_factory", None)) as runner:
            return runner.run(outcome)
    except HoldfastError as error:
        print_error(error)
        return exit_code(error)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever reads our output has seen enough. What is still buffered must not complain when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK


if __name__ == "__main__":
    sys.exit(main())
