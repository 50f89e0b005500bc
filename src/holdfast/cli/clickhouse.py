"""`holdfast clickhouse`: an embedded ClickHouse, served over HTTP until it is told to stop."""

import argparse
import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.app.addresses import Address
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
The password is read from {PASSWORD}, or from a file, or drawn at the first start and kept in DIR/password: an argument
would be seen by everybody on the machine.

examples:
  holdfast clickhouse --data ./clickhouse
  holdfast clickhouse --data ./clickhouse --listen 127.0.0.1:0 --print-addresses addresses.json
  curl "http://127.0.0.1:8123/?user=default&password=$(cat clickhouse/password)" --data 'SELECT 1'
"""


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register this family's commands."""
    made = commands.add_parser(
        "clickhouse",
        help="serve an embedded ClickHouse over its HTTP interface",
        description="Serves chDB, which is ClickHouse as a library, behind ClickHouse's HTTP interface until SIGTERM or SIGINT; "
        "what runs is finished first. One process per data directory.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--data", required=True, metavar="DIR", help="where the tables are")
    made.add_argument(
        "--listen", default="127.0.0.1:8123", metavar="HOST:PORT", help="default: %(default)s; port 0: a free one"
    )
    made.add_argument("--user", default="default", metavar="NAME", help="who may ask (default: %(default)s)")
    made.add_argument("--password-file", metavar="FILE", help="its first line is the password")
    made.add_argument("--listen-fd", type=int, metavar="N", help="a listening socket handed down, instead of --listen")
    made.add_argument("--with-parent", action="store_true", help="end when standard input does")
    made.add_argument("--insecure", action="store_true", help="allow an address beyond this machine")
    made.add_argument("--print-addresses", metavar="FILE", help="write the address as JSON once it listens")
    made.add_argument("--log-level", default="warning", choices=("debug", "info", "warning", "error"))
    for name, default in _tunable():
        made.add_argument(f"--{name.replace('_', '-')}", metavar="N", help=f"default: {default}")
    made.set_defaults(run=run_clickhouse)


def _tunable() -> list[tuple[str, object]]:
    fields = dataclasses.fields(ClickHouseSettings)
    return [(each.name, each.default) for each in fields if each.name not in _NOT_FLAGS]


def run_clickhouse(args: argparse.Namespace) -> int:
    """Serve until told to stop."""
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
        place = inherited_socket(args.listen_fd)
    else:
        place = bind_socket(address.host, address.port, insecure=args.insecure)
    with place:
        return serve(
            settings,
            place,
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
    from holdfast.app.data_directory import write_atomic

    host, port = server.socket.getsockname()[:2]
    address = str(Address(host, port))
    sys.stdout.write(f"clickhouse {address}, engine {server.engine.version} (chDB), data {args.data}\n")
    sys.stdout.flush()
    if args.print_addresses:
        write_atomic(Path(args.print_addresses), json.dumps({"clickhouse": address, "pid": os.getpid()}) + "\n")
