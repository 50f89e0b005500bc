"""`holdfast`: parse, call one function, print, return an exit code. No business here."""

import argparse
import asyncio
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from holdfast import __version__
from holdfast.cli import registry, segment, store, wal
from holdfast.cli.output import EXIT_CODES, INTERRUPTED, exit_code, print_error
from holdfast.vocabulary.errors import HoldfastError


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    made = argparse.ArgumentParser(
        prog="holdfast",
        description="Event logs, priority heaps and Spark pipelines on object storage.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--version", action="version", version=f"holdfast {__version__}")
    commands = made.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for family in (registry, segment, store, wal):
        family.add_commands(commands)
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command."""
    args = parser().parse_args(argv)
    try:
        run: Callable[[argparse.Namespace], Coroutine[Any, Any, int]] = args.run
        return asyncio.run(run(args))
    except HoldfastError as error:
        print_error(error)
        return exit_code(error)
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
