"""`holdfast serve`: run a server until it is told to stop."""

import argparse
import asyncio
import json
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast import __version__
from holdfast.app.config import ServeSettings, redacted
from holdfast.cli.output import FAILED, exit_code
from holdfast.cli.settings_flags import add_setting_flags, effective_settings_for
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import HoldfastError
from holdfast.vocabulary.random import SystemRandom

if TYPE_CHECKING:
    from holdfast.app.server import RunningServer

_log = logging.getLogger(__name__)

EPILOG = """\
Every flag is also a variable: --kafka is HOLDFAST_KAFKA, --log-level is HOLDFAST_LOG_LEVEL, and so on; a file is given with
--config or HOLDFAST_CONFIG. Later wins: default, file, variable, flag. `holdfast config show` tells what holds and why.

examples:
  holdfast serve                                       everything in ./holdfast-data, Kafka on 127.0.0.1:9092, HTTP on :8080
  holdfast serve --data /var/lib/holdfast --kafka 127.0.0.1:0 --http off --print-addresses addresses.json
  holdfast serve --store postgresql://me@db/holdfast --objects s3://bucket/prefix --advertise node-1:9092
"""


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register this family's commands."""
    made = commands.add_parser(
        "serve",
        help="run a server: the log, spoken to in Kafka's protocol, and its administration over HTTP",
        description="Runs one server in this process until SIGTERM or SIGINT, which finish what is under way, publish and "
        "give back what it owns; a second one ends it at once.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_setting_flags(made)
    made.set_defaults(run=run_serve, loop_factory=fast_loop)


def fast_loop() -> asyncio.AbstractEventLoop:
    """uvloop where it is installed."""
    try:
        import uvloop
    except ModuleNotFoundError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


async def run_serve(args: argparse.Namespace) -> int:
    """Serve until told to stop."""
    # Imported here, so that the help of the command line does not wait for a server.
    from holdfast.agent.agent import leaf_errors
    from holdfast.app.log_format import configure_logging
    from holdfast.app.process import ShutdownSignal, raise_open_file_limit, serve, shorten_switch_interval

    effective = effective_settings_for(args)
    settings = effective.settings
    configure_logging(settings.log_format, settings.log_level)
    for notice in effective.notices:
        _log.warning("%s", notice)
    raise_open_file_limit()
    shorten_switch_interval()
    stop = ShutdownSignal()
    stop.listen()
    try:
        return await serve(
            settings,
            clock=RealClock(),
            random=SystemRandom(),
            announce=lambda served: _announce(settings, served),
            stop=stop,
        )
    except HoldfastError as error:
        _log.error("ended: %s", error)
        return exit_code(error)
    except Exception as error:
        _log.critical("ended: %s", error, exc_info=error)
        return next((exit_code(each) for each in leaf_errors(error) if isinstance(each, HoldfastError)), FAILED)


def _announce(settings: ServeSettings, served: "RunningServer") -> None:
    from holdfast.app.data_directory import write_atomic

    lines = [
        f"holdfast {__version__}, node {served.node} ({served.name}), cluster {served.cluster_id}",
        f"kafka    {served.kafka}" + (f" as {served.advertised}" if served.advertised != served.kafka else ""),
        f"http     http://{served.http}" if served.http is not None else "http     off",
        *([f"clickhouse http://{served.clickhouse}"] if served.clickhouse is not None else ()),
        f"data     {settings.data}",
        f"store    {redacted(settings.store)}",
        f"objects  {redacted(settings.objects)}",
    ]
    try:
        sys.stdout.write("\n".join(lines) + "\n")
        sys.stdout.flush()
    except OSError:  # nobody reads it: no reason not to serve, nor to complain at the end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if settings.print_addresses:
        write_atomic(Path(settings.print_addresses).absolute(), json.dumps(served.addresses) + "\n")
