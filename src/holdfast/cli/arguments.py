"""What commands share when they read their arguments: numbers, KEY=VALUE pairs, and the question before a deletion."""

import argparse
import os
import re
import sys
from collections.abc import Iterable
from typing import Any, Final

from holdfast.vocabulary.errors import InvalidError, UsageError
from holdfast.vocabulary.text import is_utf8

Parsers = argparse._SubParsersAction
Parser = argparse.ArgumentParser

_ANY_BYTES: Final = frozenset({"FILE", "FILE|URL", "FOLDER", "OUT", "PATH", "WORD"})


class CommandParser(argparse.ArgumentParser):
    """The parser of a command. Arguments are UTF-8, but for files and words of the text protocol (by their metavar).

    Python passes other bytes on as surrogates, on which libraries behind the commands crash. A data directory is part of URLs.
    """

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse; a text that is not UTF-8 is an error of usage."""
        parsed, rest = super().parse_known_args(args, namespace)
        for action in self._actions:
            if action.metavar not in _ANY_BYTES and not all(map(is_utf8, _texts(getattr(parsed, action.dest, None)))):
                self.error(str(argparse.ArgumentError(action, "must be valid UTF-8")))
        return parsed, rest


def _texts(value: object) -> list[str]:
    return [each for each in (value if isinstance(value, list) else [value]) if isinstance(each, str)]


def environment_text(variable: str) -> str:
    """An environment variable that is no path; empty if it is not set."""
    text = os.environ.get(variable, "")
    if not is_utf8(text):
        raise InvalidError("environment variable", variable, "valid UTF-8")
    return text


def add_family(commands: "Parsers[Parser]", name: str, does: str, *, description: str = "") -> "Parsers[Parser]":
    """A command that has subcommands; without one it prints its help."""
    family = commands.add_parser(name, help=does, description=description or does[0].upper() + does[1:] + ".")
    family.set_defaults(run=lambda _: print_help(family))
    return family.add_subparsers(dest="action", metavar="COMMAND")


def print_help(parser: Parser) -> int:
    """The help on stdout; success."""
    parser.print_help()
    return 0


def parse_pairs(given: Iterable[str], option: str) -> list[tuple[str, str]]:
    """`KEY=VALUE` as pairs; a value may be empty and may contain `=`."""
    split = [text.partition("=") for text in given]
    for key, equals, value in split:
        if not key or not equals:
            raise InvalidError(option, key + equals + value, "KEY=VALUE")
    return [(key, value) for key, _, value in split]


def parse_number(text: str, option: str, *, above: float, most: float) -> float:
    """A number of seconds or records per second."""
    try:
        value = float(text)
    except ValueError:
        value = above
    if not above < value <= most:
        raise InvalidError(option, text, f"a number above {above:g}, at most {most:g}")
    return value


def parse_int(text: str | None, option: str, *, least: int = 0, most: int | None = None) -> int | None:
    """An integer, or None if the option was not given."""
    if text is None:
        return None
    if not re.fullmatch(r"\d{1,18}", text) or int(text) < least or (most is not None and int(text) > most):
        raise InvalidError(
            option, text, f"an integer, at least {least}" if most is None else f"an integer between {least} and {most}"
        )
    return int(text)


def add_yes(parser: Parser) -> None:
    """`--yes`, for commands that delete."""
    parser.add_argument("--yes", action="store_true", help="do not ask; required if stdin is not a terminal")


def confirmed(args: argparse.Namespace, question: str) -> bool:
    """Whether `--yes` was given or the answer is yes."""
    if args.yes:
        return True
    if not sys.stdin.isatty():
        raise UsageError("confirmation required: pass --yes (stdin is not a terminal)")
    return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")
