"""What every command over HTTP has: `--http`, `--tls-ca`, `--api-key-file`, `--timeout-s`, `--json`, and the client they make."""

import argparse
import textwrap

from holdfast.cli.api_key import add_api_key, api_key
from holdfast.cli.arguments import Parser, Parsers, parse_int
from holdfast.cli.server_url import (
    ADDRESS_VARIABLE,
    AUTHORITIES_VARIABLE,
    DEFAULT_ADDRESS,
    NOT_CONNECTED_HINT,
    server_url,
    tls_authorities,
)
from holdfast.client.http_client import HttpClient


def add_http_command(actions: "Parsers[Parser]", name: str, does: str, examples: str, *, named: str = "") -> Parser:
    """A subcommand of a server; its help ends with `examples`. `named`: what its argument NAME is, if it has one."""
    made = actions.add_parser(
        name,
        help=does,
        description=textwrap.fill(does[0].upper() + does[1:] + ".", 100),
        epilog="examples:\n" + textwrap.indent(examples, "  "),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if named:
        made.add_argument("name", metavar="NAME", help=named)
    made.add_argument("--http", metavar="URL", default="", help=f"default: ${ADDRESS_VARIABLE}, else {DEFAULT_ADDRESS}")
    made.add_argument(
        "--tls-ca",
        metavar="FILE",
        default="",
        help=f"authorities of an https URL (PEM; default: ${AUTHORITIES_VARIABLE})",
    )
    made.add_argument("--timeout-s", metavar="S", default="60", help="how long to wait for a response (default: 60)")
    add_api_key(made)
    made.add_argument("--json", action="store_true", help="JSON, one object per line")
    return made


def http_client_for(args: argparse.Namespace) -> HttpClient:
    """The client of the server that the arguments name, or the environment."""
    timeout_s = float(parse_int(args.timeout_s, "--timeout-s", least=1) or 60)
    return HttpClient(
        server_url(args.http),
        timeout_s=timeout_s,
        hint=NOT_CONNECTED_HINT,
        api_key=api_key(args.api_key_file),
        authorities=tls_authorities(args.tls_ca),
    )
