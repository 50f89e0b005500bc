"""`holdfast serve`: run a server until SIGTERM or SIGINT."""

import argparse
import asyncio
import json
import logging
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast import __version__
from holdfast.app.advertised_urls import located
from holdfast.app.config import CATALOGUE, ServeSettings
from holdfast.app.embedded_etcd.place import opened_store_url
from holdfast.cli.output import FAILED, exit_code
from holdfast.cli.settings_flags import add_setting_flags, effective_settings_for
from holdfast.cli.standard_output import OutputError, discard_stdout
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import HoldfastError
from holdfast.vocabulary.random import SystemRandom
from holdfast.vocabulary.redaction import redacted

if TYPE_CHECKING:
    from holdfast.app.server import RunningServer

_log = logging.getLogger(__name__)

SHARED_BY_AGENTS = (
    *("agent.zone", "agent.group", "session.ttl_ms", "membership.shown_ms"),
    *("kafka.sasl", "kafka.tls_cert", "kafka.tls_key", "kafka.client_ca", "security.super_users", "security.audit"),
    *("oauth.jwks", "oauth.issuer", "oauth.audience", "traces.export", "traces.ratio"),
    *("tls.cert", "tls.key", "tls.ca", "http.tls_cert", "http.tls_key", "text.tls_cert", "text.tls_key", "text.tls_ca"),
    *("peers.tls_cert", "peers.tls_key", "peers.tls_ca"),
    *("insecure", "logging.format", "logging.level", "stop_ms"),
)

EPILOG = """\
Every flag is also a variable: --kafka is HOLDFAST_KAFKA, --log-level is HOLDFAST_LOG_LEVEL, and so on; a file is given with
--config or HOLDFAST_CONFIG. Later wins: default, file, variable, flag. `holdfast config show` prints the result and origins.

examples:
  holdfast serve                                       all in ./holdfast-data, on 127.0.0.1: Kafka 9092, HTTP 8080, gRPC 50051
  holdfast serve --data /var/lib/holdfast --kafka 127.0.0.1:0 --http off --print-addresses addresses.json
  holdfast serve --agents 4                            four agents, one for each core, on ports 9092 to 9095
  holdfast serve --store postgresql://me@db/holdfast --objects s3://bucket/prefix --advertise node-1:9092
  holdfast serve --store etcd:embedded --name n2 --join n1:2380 …      its own etcd member, joined to that of n1
"""


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register this family's commands."""
    made = commands.add_parser(
        "serve",
        help="run a server: Kafka, HTTP, pipelines",
        description="Runs one server in this process until SIGTERM or SIGINT, which finish requests in flight, publish "
        "and release leases; a second signal exits at once.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_setting_flags(made)
    made.set_defaults(run=run_serve, loop_factory=fast_loop)


def fast_loop() -> asyncio.AbstractEventLoop:
    """uvloop if it is installed."""
    try:
        import uvloop
    except ModuleNotFoundError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


async def run_serve(args: argparse.Namespace) -> int:
    """Serve until a signal."""
    # Imported here: the help must not wait for a server.
    from holdfast.app.agent_processes import agent_command, warn_of_agents_left_out
    from holdfast.app.log_format import configure_logging
    from holdfast.app.process import ShutdownSignal, raise_open_file_limit, serve, shorten_switch_interval
    from holdfast.vocabulary.tasks import leaf_errors
    from holdfast.vocabulary.time_slice import shorten_time_slice

    effective = effective_settings_for(args)
    settings = effective.settings
    configure_logging(settings.log_format, settings.log_level)
    for notice in effective.notices:
        _log.warning("%s", notice)
    warn_of_agents_left_out(settings)
    raise_open_file_limit()
    shorten_switch_interval()
    shorten_time_slice()
    stop = ShutdownSignal()
    stop.listen()
    try:
        return await serve(
            settings,
            clock=RealClock(),
            random=SystemRandom(),
            announce=lambda served: _announce(settings, served),
            stop=stop,
            further_agents=[agent_command(settings, number, _shared(args)) for number in range(2, settings.agents + 1)],
        )
    except HoldfastError as error:
        _log.error("%s", error)
        return exit_code(error)
    except Exception as error:
        _log.critical("server failed: %s", error, exc_info=error)
        return next((exit_code(each) for each in leaf_errors(error) if isinstance(each, HoldfastError)), FAILED)


def _shared(args: argparse.Namespace) -> list[str]:
    """The flags of this process that the further agents of the host are given, too."""
    given = ["--config", args.config] if args.config else []
    given += [word for assignment in args.assignments for word in ("--set", assignment)]
    for name in SHARED_BY_AGENTS:
        value = getattr(args, name)
        if value is not None:
            given += [CATALOGUE[name].flag] if value is True else [CATALOGUE[name].flag, str(value)]
    return given


def _announce(settings: ServeSettings, served: "RunningServer") -> None:
    from holdfast.app.data_directory import ADDRESSES, write_text

    addresses = json.dumps(served.addresses) + "\n"
    write_text(settings.data / ADDRESSES, addresses)  # for `holdfast clickhouse query` and `holdfast demo`
    try:
        sys.stdout.write("\n".join(banner(settings, served)) + "\n")
        sys.stdout.flush()
    except (OSError, OutputError):  # stdout is closed or full: no reason not to serve, nor to fail at exit
        discard_stdout()
    if settings.print_addresses:
        write_text(Path(settings.print_addresses).absolute(), addresses)


def banner(settings: ServeSettings, served: "RunningServer") -> Iterator[str]:
    """What runs and where; for what is off, why and how to turn it on."""
    yield f"holdfast {__version__}, node {served.node} ({served.name}), cluster {served.cluster_id}"
    yield _line("kafka", f"{served.kafka}" + (f" as {served.advertised}" if served.advertised != served.kafka else ""))
    for each in served.further_agents:
        yield _line("", each)
    if served.bootstrap_token:
        yield _line(
            "admin", f"token {served.bootstrap_token} makes the first administrator, once: POST /api/v1/bootstrap"
        )
    yield _line("http", _off(served, "http") or f"{'https' if settings.http.tls else 'http'}://{served.http}")
    yield _line("grpc", _off(served, "grpc") or f"{served.grpc}")
    yield _line("pipelines", _off(served, "pipelines") or f"on Spark {settings.spark.remote or settings.spark.master}")
    if served.clickhouse is not None:
        password = shlex.quote(str(settings.data / "clickhouse" / "password"))
        yield _line("clickhouse", f'curl http://{served.clickhouse} -u "default:$(cat {password})" -d "SELECT 1"')
        yield _line("", f'holdfast clickhouse query --data {shlex.quote(str(settings.data))} "SELECT 1"')
    else:
        yield _line("clickhouse", _off(served, "clickhouse") or redacted(settings.clickhouse))
    yield _line("data", str(settings.data))
    yield _line("store", located(settings.store))
    if (url := opened_store_url(settings)) != settings.store:
        name, peers = settings.etcd.name or served.name, settings.etcd.peer_listen
        yield _line("", f"{url.partition('?')[0]}, member {name}, peers {peers}")
    yield _line("objects", located(settings.objects))


def _line(name: str, value: str) -> str:
    return f"{name:<11}{value}"


def _off(served: "RunningServer", name: str) -> str:
    reason = served.disabled.get(name)
    return f"off: {reason}" if reason else ""
