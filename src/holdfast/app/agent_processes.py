"""The further agents of a host (`serve --agents N`), each a server process of its own with one address, one WAL and one session.

A partition is led by one process, and a process uses one core: N agents use N. Each is as independent as on a machine of its own.
This process starts them, starts one that has ended again, and stops them when it stops. They die with it, even with one that was
killed: the next one will need their data directories.
"""

import asyncio
import logging
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from holdfast.app.addresses import Address, AdvertisedAddress
from holdfast.app.config import ServeSettings
from holdfast.app.data_directory import ADDRESSES
from holdfast.app.embedded_etcd.place import opened_store_url
from holdfast.app.master_keys import key_file
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import UnavailableError
from holdfast.vocabulary.random import Random, backoff_ms
from holdfast.vocabulary.tasks import background_tasks, task_group
from holdfast.vocabulary.with_parent import STOP_SIGNAL, with_parent

_log: Final = logging.getLogger(__name__)

_AnyAddress = TypeVar("_AnyAddress", Address, AdvertisedAddress)

_LISTEN_WITHIN_MS: Final = 60_000
_POLL_MS: Final = 20
_KILL_AFTER_MS: Final = 5_000  # beyond what a graceful stop may take
_STEADY_MS: Final = 60_000  # who ran so long is restarted at once


@dataclass(frozen=True, slots=True)
class AgentCommand:
    """How to start an agent: the command and what it adds to the environment, where nobody sees its secrets."""

    data: Path
    argv: tuple[str, ...]
    environment: Mapping[str, str]


def agent_command(settings: ServeSettings, number: int, options: Sequence[str]) -> AgentCommand:
    """The command of agent `number` of this host; 1 is this process. `options`: what it shares with this process."""
    data = settings.data / "agents" / str(number)
    argv = [
        *(sys.executable, "-m", "holdfast", "serve", *options),
        *("--agents", "1", "--data", str(data), "--roles", "api,agent", "--print-addresses", str(data / ADDRESSES)),
        *("--kafka", str(_moved(settings.listen, number - 1))),
        *("--http", "off" if settings.http_listen is None else str(_moved(settings.http_listen, number - 1))),
    ]
    grpc = None if settings.grpc_default else settings.grpc_listen  # the default address is the first agent's
    argv += ["--grpc", "off" if grpc is None else str(_moved(grpc, number - 1))]
    if settings.text_listen is not None:
        argv += ["--text", str(_moved(settings.text_listen, number - 1))]
    if settings.peer_listen is not None:
        argv += ["--peer", str(_moved(settings.peer_listen, number - 1))]
    for flag, advertised in (
        ("--advertise", settings.advertise),
        ("--advertise-peer", settings.peer_advertise),
        ("--advertise-text", settings.text_advertise),
    ):
        if advertised != AdvertisedAddress():
            argv += [flag, str(_moved(advertised, number - 1))]
    if settings.kafka.replication_factor == "auto":
        argv += [
            "--set",
            "kafka.replication_factor=refuse",
        ]  # `cap` is for an agent that is alone, as each would believe
    if settings.agent_id:
        argv += ["--agent-id", f"{settings.agent_id}-{number}"]
    environment = {"HOLDFAST_STORE": opened_store_url(settings), "HOLDFAST_OBJECTS": settings.objects}
    if settings.master_key:
        environment["HOLDFAST_MASTER_KEY"] = settings.master_key
    elif path := key_file(settings):
        environment["HOLDFAST_MASTER_KEY_FILE"] = path
    return AgentCommand(data, tuple(argv), environment)


def warn_of_agents_left_out(settings: ServeSettings) -> None:
    """Log the data directories of agents that an earlier start had and this one has not (docs/safety.md, rule 29)."""
    for data in sorted((settings.data / "agents").glob("*/wal")):
        number = data.parent.name
        if number.isdigit() and int(number) > settings.agents:
            _log.warning(
                "the agent in %s is not started with --agents %d: records that it has not published stay offline until it is",
                data.parent,
                settings.agents,
            )


def _moved(address: _AnyAddress, ports: int) -> _AnyAddress:
    """The address so many ports further on; a free port, or none, stays what it is."""
    return replace(address, port=address.port + ports if address.port else 0)


class AgentProcesses:
    """The further agents of this host. Made by `running_agents`."""

    def __init__(self, commands: Sequence[AgentCommand], *, clock: Clock, random: Random, stop_ms: int) -> None:
        self._commands, self._clock, self._random, self._stop_ms = commands, clock, random, stop_ms
        self._processes: dict[Path, subprocess.Popen[bytes]] = {}
        self._started, self._stopping = asyncio.Event(), False

    async def start(self) -> tuple[str, ...]:
        """Start them. Where they listen for Kafka's clients, once all of them do, or all that do when they are to stop.

        `UnavailableError`: one does not.
        """
        for command in self._commands:
            with suppress(OSError):
                (command.data / ADDRESSES).unlink()  # of agents that were killed
        self._started.set()
        until_ms = self._clock.boot_ms() + _LISTEN_WITHIN_MS
        found: dict[Path, str] = {}
        while len(found) < len(self._commands) and not self._stopping:
            for command in self._commands:
                if command.data not in found and (listening := _listening(command.data)):
                    found[command.data] = listening
            if len(found) < len(self._commands) and self._clock.boot_ms() >= until_ms:
                raise UnavailableError(
                    "agents of this host", f"some do not listen after {_LISTEN_WITHIN_MS} ms: see the log"
                )
            await self._clock.sleep_ms(_POLL_MS)
        return tuple(found[command.data] for command in self._commands if command.data in found)

    def stop(self) -> None:
        """Ask all of them to stop gracefully, at the same time as this process: what they lead moves nowhere."""
        self._stopping = True
        for process in self._processes.values():
            if process.poll() is None:
                process.send_signal(STOP_SIGNAL)

    async def supervise(self) -> None:
        """Start them when that is asked for, and those that end again; until cancelled."""
        await self._started.wait()
        async with task_group() as group:
            for command in self._commands:
                group.create_task(self._keep_running(command))

    async def ended(self) -> None:
        """Wait for the end of all; who does not end in time is killed."""
        until_ms = self._clock.boot_ms() + self._stop_ms + _KILL_AFTER_MS
        while any(process.poll() is None for process in self._processes.values()):
            if self._clock.boot_ms() >= until_ms:
                for process in self._processes.values():
                    process.kill()
            await self._clock.sleep_ms(_POLL_MS)

    async def _keep_running(self, command: AgentCommand) -> None:
        attempt = 0
        while not self._stopping:
            started_ms = self._clock.boot_ms()
            ended = await self._run(command)
            if self._stopping:
                return
            attempt = 0 if self._clock.boot_ms() - started_ms >= _STEADY_MS else attempt + 1
            pause_ms = backoff_ms(attempt, base_ms=500, max_ms=30_000, random=self._random)
            _log.error("agent in %s %s: starting it again in %d ms", command.data, ended, pause_ms)
            await self._clock.sleep_ms(pause_ms)

    async def _run(self, command: AgentCommand) -> str:
        """Run it to its end; how it ended."""
        try:
            process = self._processes[command.data] = _start(command)
        except OSError as error:  # no memory, no process left, a full disk: no reason to end those that run
            return f"was not started ({error})"
        while process.poll() is None:
            await self._clock.sleep_ms(_POLL_MS)
        return f"ended with {process.returncode}"


def _start(command: AgentCommand) -> "subprocess.Popen[bytes]":
    command.data.mkdir(parents=True, exist_ok=True, mode=0o700)
    (command.data / ADDRESSES).unlink(missing_ok=True)
    environment = {**os.environ, **command.environment}  # noqa: TID251 (what a child process is given)
    return subprocess.Popen(  # noqa: S603 (our own command)
        with_parent(command.argv),
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is this process's
    )


def _listening(data: Path) -> str:
    try:
        return str(msgspec.json.decode((data / ADDRESSES).read_bytes(), type=dict[str, str])["kafka"])
    except (OSError, msgspec.DecodeError, KeyError):
        return ""


@asynccontextmanager
async def running_agents(
    commands: Sequence[AgentCommand], *, clock: Clock, random: Random, stop_ms: int
) -> AsyncIterator[AgentProcesses]:
    """The further agents for the body. Leaving it stops them and waits."""
    agents = AgentProcesses(commands, clock=clock, random=random, stop_ms=stop_ms)
    try:
        async with background_tasks(agents.supervise()):
            yield agents
    finally:
        agents.stop()
        await agents.ended()
