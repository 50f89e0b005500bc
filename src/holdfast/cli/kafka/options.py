"""What the Kafka commands share on the command line: where the brokers are, how long to wait, and KEY=VALUE pairs."""

import argparse
import os
import re
import textwrap
from collections.abc import Iterable
from typing import Final

from holdfast.client.addresses import Bootstrap, parse_bootstrap
from holdfast.vocabulary.errors import InvalidError

DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"
BOOTSTRAP_VARIABLE: Final = "HOLDFAST_BOOTSTRAP"
DEFAULT_PORT: Final = 9092

Parsers = argparse._SubParsersAction
Parser = argparse.ArgumentParser


def add_command(commands: "Parsers[Parser]", name: str, does: str, examples: str, *, about: str = "") -> Parser:
    """A command of this family: its help ends with `examples`, and it knows where the brokers are."""
    made = commands.add_parser(
        name,
        help=does,
        description=textwrap.fill(about or does[0].upper() + does[1:] + ".", 100),
        epilog="examples:\n" + examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    # "-1h" and "-10" are values here, not flags.
    made._negative_number_matcher = re.compile(r"-\d")
    shared = made.add_argument_group("connection")
    shared.add_argument(
        "--bootstrap",
        metavar="HOST:PORT[,…]",
        help=f"any brokers of the cluster (default: ${BOOTSTRAP_VARIABLE}, else {DEFAULT_BOOTSTRAP})",
    )
    shared.add_argument("--timeout-s", metavar="S", default="10", help="how long to wait for an answer (default: 10)")
    shared.add_argument(
        "-X",
        "--client-config",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting of librdkafka, as in -X security.protocol=ssl; may be repeated",
    )
    return made


def bootstrap_from(args: argparse.Namespace) -> Bootstrap:
    """The brokers that the arguments or the environment name."""
    servers = args.bootstrap or os.environ.get(BOOTSTRAP_VARIABLE) or DEFAULT_BOOTSTRAP
    parse_bootstrap(servers, name="bootstrap", default_port=DEFAULT_PORT)
    timeout_s = parse_number(args.timeout_s, "--timeout-s", above=0, most=86_400)
    return Bootstrap(
        servers=servers, timeout_s=timeout_s, properties=dict(parse_pairs(args.client_config, "--client-config"))
    )


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


def parse_int(text: str | None, option: str, *, least: int = 0) -> int | None:
    """A whole number, or None where none was given."""
    if text is None:
        return None
    if not re.fullmatch(r"\d{1,18}", text) or int(text) < least:
        raise InvalidError(option, text, f"a whole number, at least {least}")
    return int(text)
