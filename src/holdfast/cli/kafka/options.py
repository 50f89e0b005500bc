"""Options of every Kafka command: which brokers, how long to wait, settings of the client."""

import argparse
import re
import textwrap
from typing import Final

from holdfast.cli.arguments import Parser, Parsers, environment_text, parse_number, parse_pairs
from holdfast.client.addresses import Bootstrap, parse_bootstrap

DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"
BOOTSTRAP_VARIABLE: Final = "HOLDFAST_BOOTSTRAP"
DEFAULT_PORT: Final = 9092


def add_command(commands: "Parsers[Parser]", name: str, does: str, examples: str, *, about: str = "") -> Parser:
    """A command with `--bootstrap`, `--timeout-s` and `-X`; its help ends with `examples`."""
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
    shared.add_argument("--timeout-s", metavar="S", default="10", help="how long to wait for a response (default: 10)")
    add_client_config(shared)
    return made


def add_client_config(to: "Parser | argparse._ArgumentGroup") -> None:
    """`-X`, of every command that logs in to brokers."""
    to.add_argument(
        "-X",
        "--client-config",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a librdkafka property, such as -X security.protocol=ssl; may be repeated",
    )


def bootstrap_from(args: argparse.Namespace) -> Bootstrap:
    """The brokers that the arguments name, or the environment."""
    servers = args.bootstrap or environment_text(BOOTSTRAP_VARIABLE) or DEFAULT_BOOTSTRAP
    parse_bootstrap(servers, name="bootstrap", default_port=DEFAULT_PORT)
    timeout_s = parse_number(args.timeout_s, "--timeout-s", above=0, most=86_400)
    return Bootstrap(
        servers=servers, timeout_s=timeout_s, properties=dict(parse_pairs(args.client_config, "--client-config"))
    )
