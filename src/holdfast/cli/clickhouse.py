"""`holdfast clickhouse query|serve`: ask a ClickHouse; serve an embedded one over HTTP."""

import argparse
import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.app.addresses import Address
from holdfast.cli.arguments import Parser, Parsers, add_family, parse_number
from holdfast.cli.clickhouse_access import DATA_VARIABLE, DEFAULT_DATA, ClickHouseAccess
from holdfast.cli.output import OK
from holdfast.clickhouse.embedded.authentication import load_or_create_password, read_password_file
from holdfast.clickhouse.embedded.settings import ClickHouseSettings
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SystemRandom
from holdfast.vocabulary.settings import settings_from

if TYPE_CHECKING:
    from holdfast.clickhouse.embedded.server import ClickHouseHttpServer

_NOT_FLAGS: Final = ("data", "users")
PASSWORD: Final = "HOLDFAST_CLICKHOUSE_PASSWORD"  # noqa: S105 (a name, not a password)

EPILOG = f"""\
The password is read from {PASSWORD}, or from a file, or generated at the first start and kept in DIR/password:
an argument would be visible to every user of the machine.

examples:
  holdfast clickhouse serve --data ./clickhouse
  holdfast clickhouse serve --data ./clickhouse --listen 127.0.0.1:0 --print-addresses addresses.json
  curl http://127.0.0.1:8123 -u "default:$(cat clickhouse/password)" -d 'SELECT 1'
"""
QUERY_EPILOG = """\
examples:
  holdfast clickhouse query "SELECT count() FROM orders"
  holdfast clickhouse query "SELECT * FROM orders LIMIT 5" --json
  holdfast clickhouse query "SHOW TABLES" --data /var/lib/holdfast
"""


def add_commands(commands: "Parsers[Parser]") -> None:
    """Register this family's commands."""
    actions = add_family(commands, "clickhouse", "query the embedded ClickHouse, or serve one")
    _add_query(actions)
    _add_serve(actions)


def _add_query(actions: "Parsers[Parser]") -> None:
    made = actions.add_parser(
        "query",
        help="run one statement and print the result",
        description="Runs one statement in the embedded ClickHouse of a server on this machine, which it finds in the server's "
        "data directory, or in another ClickHouse.",
        epilog=QUERY_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("sql", metavar="SQL", help="the statement; - is standard input")
    made.add_argument(
        "--data", metavar="DIR", help=f"the server's data directory (default: ${DATA_VARIABLE}, else ./{DEFAULT_DATA})"
    )
    made.add_argument("--clickhouse", metavar="URL", help="another ClickHouse: http://user:password@host:8123/database")
    form = made.add_mutually_exclusive_group()
    form.add_argument("--format", metavar="FORMAT", default="PrettyCompact", help="default: %(default)s")
    form.add_argument("--json", action="store_true", help="one JSON object per row (JSONEachRow)")
    made.add_argument("--timeout-s", metavar="S", default="60", help="how long to wait for the result (default: 60)")
    made.set_defaults(run=run_query)


def run_query(args: argparse.Namespace) -> int:
    """Print the result of one statement."""
    timeout_s = parse_number(args.timeout_s, "--timeout-s", above=0, most=86_400)
    access = (
        ClickHouseAccess.from_url(args.clickhouse)
        if args.clickhouse
        else ClickHouseAccess.of_server(Path(args.data or os.environ.get(DATA_VARIABLE) or DEFAULT_DATA))
    )
    sql = sys.stdin.read() if args.sql == "-" else args.sql
    result = access.query(sql, form="JSONEachRow" if args.json else args.format, timeout_s=timeout_s)
    sys.stdout.buffer.write(result)
    sys.stdout.buffer.flush()
    return OK


def _add_serve(actions: "Parsers[Parser]") -> None:
    made = actions.add_parser(
        "serve",
        help="serve an embedded ClickHouse over its HTTP interface",
        description="Serves chDB, which is ClickHouse as a library, behind ClickHouse's HTTP interface until SIGTERM or SIGINT; "
        "running queries are finished first. One process per data directory. `serve` may be left out.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--data", required=True, metavar="DIR", help="the directory of the tables")
    made.add_argument(
        "--listen", default="127.0.0.1:8123", metavar="HOST:PORT", help="default: %(default)s; port 0: a free one"
    )
    made.add_argument("--user", default="default", metavar="NAME", help="the one user (default: %(default)s)")
    made.add_argument("--password-file", metavar="FILE", help="its first line is the password")
    made.add_argument("--listen-fd", type=int, metavar="N", help="an inherited listening socket instead of --listen")
    made.add_argument("--with-parent", action="store_true", help="stop when standard input is closed")
    made.add_argument("--insecure", action="store_true", help="allow an address beyond loopback")
    made.add_argument("--print-addresses", metavar="FILE", help="write the address as JSON once it listens")
    made.add_argument("--log-level", default="warning", choices=("debug", "info", "warning", "error"))
    for name, default in _tunable():
        made.add_argument(f"--{name.replace('_', '-')}", metavar="N", help=f"default: {default}")
    made.set_defaults(run=run_serve)


def _tunable() -> list[tuple[str, object]]:
    fields = dataclasses.fields(ClickHouseSettings)
    return [(each.name, each.default) for each in fields if each.name not in _NOT_FLAGS]


def run_serve(args: argparse.Namespace) -> int:
    """Serve until a signal."""
    from holdfast.app.log_format import configure_logging
    from holdfast.clickhouse.embedded.process import (
        bind_socket,
        inherited_socket,
        serve,
        stop_on_parent_exit,
        stop_on_signal,
    )

    configure_logging("text", args.log_level)
    address = Address.parse("--listen", args.listen)
    data = Path(args.data)
    tuned = {name: getattr(args, name) for name, _ in _tunable() if getattr(args, name) is not None}
    settings = settings_from(ClickHouseSettings, {**tuned, "data": data, "users": {args.user: _password(args, data)}})
    stop_event = stop_on_signal()
    if args.with_parent:
        stop_on_parent_exit(sys.stdin.fileno(), stop_event)
    if args.listen_fd is not None:
        listener = inherited_socket(args.listen_fd)
    else:
        listener = bind_socket(address.host, address.port, insecure=args.insecure)
    with listener:
        return serve(
            settings,
            listener,
            clock=RealClock(),
            random=SystemRandom(),
            announce=lambda server: _announce(args, server),
            stop_event=stop_event,
        )


def _password(args: argparse.Namespace, data: Path) -> str:
    if given := os.environ.pop(PASSWORD, ""):
        return given
    return (
        read_password_file(Path(args.password_file))
        if args.password_file
        else load_or_create_password(data, SystemRandom())
    )


def _announce(args: argparse.Namespace, server: "ClickHouseHttpServer") -> None:
    from holdfast.app.data_directory import write_text

    host, port = server.socket.getsockname()[:2]
    address = str(Address(host, port))
    sys.stdout.write(f"clickhouse {address}, engine {server.engine.version} (chDB), data {args.data}\n")
    sys.stdout.flush()
    if args.print_addresses:
        write_text(Path(args.print_addresses), json.dumps({"clickhouse": address, "pid": os.getpid()}) + "\n")
