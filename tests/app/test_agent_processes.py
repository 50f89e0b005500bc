"""`serve --agents N`: agents of one host share topics, outlive each other's deaths, and die with the process that started them."""

import asyncio
import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.server_process import SHORT_SESSIONS, ServeProcess, create_topic, leaders, produce, read
from tests.support.waiting import async_until, until

from holdfast.app.addresses import Address, AdvertisedAddress
from holdfast.app.agent_processes import AgentCommand, agent_command, running_agents, warn_of_agents_left_out
from holdfast.app.config import ServeSettings
from holdfast.app.data_directory import ADDRESSES
from holdfast.gateways.kafka.settings import KafkaSettings
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.random import SystemRandom
from holdfast.vocabulary.settings import MIB

SETTINGS = ServeSettings(data=Path("/data"), store="postgresql://me:secret@db/holdfast", objects="s3://bucket")
OPTIONS = ("--roles", "api,agent", "--http", "off", "--set", f"wal.file_bytes={8 * MIB}")


def options_of(settings: ServeSettings, number: int) -> dict[str, str]:
    argv = agent_command(settings, number, ("--zone", "a")).argv[4:]
    return dict(zip(argv[::2], argv[1::2], strict=True))


class TestCommand:
    def test_addresses_count_up_and_secrets_are_in_no_command_line(self) -> None:
        settings = replace(
            SETTINGS,
            http_listen=Address("127.0.0.1", 8080),
            grpc_listen=Address("127.0.0.1", 50051),
            advertise=AdvertisedAddress("node", 19092),
            peer_listen=Address("10.0.0.1", 9300),
            peer_advertise=AdvertisedAddress("inside"),
            agent_id="node",
        )
        assert options_of(settings, 3) == {
            "--zone": "a",
            "--agents": "1",
            "--data": "/data/agents/3",
            "--print-addresses": "/data/agents/3/addresses.json",
            "--roles": "api,agent",
            "--kafka": "127.0.0.1:9094",
            "--http": "127.0.0.1:8082",
            "--grpc": "127.0.0.1:50053",
            "--peer": "10.0.0.1:9302",
            "--advertise": "node:19094",
            "--advertise-peer": "inside",
            "--set": "kafka.replication_factor=refuse",
            "--agent-id": "node-3",
        }
        assert options_of(replace(settings, grpc_default=True), 3)["--grpc"] == "off"
        command = agent_command(settings, 3, ())
        assert not any("secret" in word for word in command.argv)
        assert command.environment == {"HOLDFAST_STORE": settings.store, "HOLDFAST_OBJECTS": settings.objects}

    def test_agents_of_one_host_agree_on_replication_factors(self) -> None:
        capping = replace(SETTINGS, agents=2, kafka=KafkaSettings(replication_factor="cap"))
        assert "--set" not in options_of(capping, 2)

    def test_a_free_port_stays_a_free_port(self) -> None:
        settings = replace(SETTINGS, listen=Address("127.0.0.1", 0), advertise=AdvertisedAddress("node"))
        assert {name: options_of(settings, 2)[name] for name in ("--kafka", "--http", "--advertise")} == {
            "--kafka": "127.0.0.1:0",
            "--http": "off",
            "--advertise": "node",
        }

    def test_a_process_that_leads_nothing_has_no_agents(self) -> None:
        with pytest.raises(InvalidError, match="agents"):
            replace(SETTINGS, roles=("api",), agents=2)


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"listen": Address("127.0.0.1", 65_533)}, "must be at most 3 with --kafka 127.0.0.1:65533"),
        (
            {"http_listen": Address("127.0.0.1", 9_095)},
            "must be at most 3 with --kafka 127.0.0.1:9092 and --http 127.0",
        ),
        ({"peer_listen": Address("127.0.0.1", 9_090)}, "must be at most 2 with"),
    ],
)
def test_ports_of_agents_that_would_meet_are_refused(changes: dict[str, Address], refusal: str) -> None:
    assert replace(SETTINGS, agents=2, **changes).agents == 2  # type: ignore[arg-type]
    with pytest.raises(InvalidError, match=refusal):
        replace(SETTINGS, agents=4, **changes)  # type: ignore[arg-type]


def test_agents_that_are_not_started_any_more_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for number in (2, 3, 10):
        (tmp_path / "agents" / str(number) / "wal").mkdir(parents=True)
    warn_of_agents_left_out(replace(SETTINGS, data=tmp_path, agents=3))
    (line,) = caplog.messages
    assert str(tmp_path / "agents" / "10") in line


def test_three_agents_of_one_host(tmp_path: Path) -> None:
    server = ServeProcess(tmp_path / "host", *OPTIONS, *SHORT_SESSIONS, "--agents", "3")
    server.port = 0  # the ports behind any other one may be somebody's
    try:
        server.start()
        addresses = json.loads(server.addresses.read_text())["agents"].split(",")
        assert len(set(addresses)) == 3
        assert all(address in server.out for address in addresses)
        create_topic(server.kafka, "orders", 6)
        until(lambda: len({*leaders(server.kafka, "orders").values()} - {-1}) == 3, what="three lead some")
        for number in range(6):
            produce(server.kafka, "orders", "a", "b", partition=number)
        # One is killed: it is started again over its WAL, and nothing is lost.
        data = server.data / "agents" / "2"
        killed = holder_of(data)
        os.kill(killed, signal.SIGKILL)
        until(lambda: holder_of(data) not in (0, killed), what="it is started again")
        for number in range(6):
            assert read(server.kafka, "orders", 2, partition=number) == ["a", "b"]
        others = [holder_of(server.data / "agents" / name) for name in ("2", "3")]
        # The first is killed: the others end with it, and the next one starts them again.
        server.kill()
        until(lambda: not any(map(is_running, others)), what="the others end with it")
        server.port = 0
        server.start()
        for number in range(6):
            assert read(server.kafka, "orders", 2, partition=number) == ["a", "b"]
        others = [holder_of(server.data / "agents" / name) for name in ("2", "3")]
        # As a service manager does: the signal goes to every process, and each of them stops gracefully all the same.
        for process in (*others, server.process.pid):
            os.kill(process, signal.SIGTERM)
        assert server.ended() == 0
        assert not any(map(is_running, others))
        assert "second SIG" not in server.log
        assert server.log.count("INFO holdfast.app.process: stopped") == 3
    finally:
        if server.process.poll() is None:
            server.kill()


SLEEPS = (sys.executable, "-c", "import time; time.sleep(600)")
LISTENS = (
    *(sys.executable, "-c"),
    "import json, pathlib, sys, time; pathlib.Path(sys.argv[1]).write_text(json.dumps({'kafka': 'here'})); time.sleep(600)",
)


async def test_one_that_cannot_be_started_now_is_started_later_and_ends_no_other(tmp_path: Path) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("no directory")
    commands = [AgentCommand(data, (*LISTENS, str(data / ADDRESSES)), {}) for data in (tmp_path / "2", blocked / "3")]
    async with running_agents(commands, clock=RealClock(), random=SystemRandom(), stop_ms=1_000) as agents:
        starting = asyncio.ensure_future(agents.start())
        await async_until((tmp_path / "2" / ADDRESSES).exists)
        blocked.unlink()
        assert await starting == ("here", "here")


async def test_a_start_that_takes_long_can_be_stopped_and_does_not_take_addresses_of_the_last(tmp_path: Path) -> None:
    commands = [AgentCommand(tmp_path / "2", SLEEPS, {})]
    (tmp_path / "2").mkdir()
    (tmp_path / "2" / ADDRESSES).write_text('{"kafka": "where it was"}')
    async with running_agents(commands, clock=RealClock(), random=SystemRandom(), stop_ms=1_000) as agents:
        starting = asyncio.ensure_future(agents.start())
        await async_until(lambda: not (tmp_path / "2" / ADDRESSES).exists())
        agents.stop()
        assert await starting == ()


def holder_of(data: Path) -> int:
    """The process that runs an agent, from its command line; 0 if there is none."""
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().split(b"\0")
        except OSError:
            continue
        if str(data).encode() in words and b"exec_with_parent.py" not in b"".join(words):
            return int(entry.parent.name)
    return 0


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
