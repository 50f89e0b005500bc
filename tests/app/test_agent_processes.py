"""`serve --agents N`: agents of one host share topics, outlive each other's deaths, and die with the process that started them."""

import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.server_process import SHORT_SESSIONS, ServeProcess, create_topic, leaders, produce, read
from tests.support.waiting import until

from holdfast.app.addresses import Address, AdvertisedAddress
from holdfast.app.agent_processes import agent_command
from holdfast.app.config import ServeSettings
from holdfast.vocabulary.errors import InvalidError
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
            "--peer": "10.0.0.1:9302",
            "--advertise": "node:19094",
            "--advertise-peer": "inside",
            "--agent-id": "node-3",
        }
        command = agent_command(settings, 3, ())
        assert not any("secret" in word for word in command.argv)
        assert command.environment == {"HOLDFAST_STORE": settings.store, "HOLDFAST_OBJECTS": settings.objects}

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


def test_three_agents_of_one_host(tmp_path: Path) -> None:
    server = ServeProcess(tmp_path / "host", *OPTIONS, *SHORT_SESSIONS, "--agents", "3")
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
        server.start()
        for number in range(6):
            assert read(server.kafka, "orders", 2, partition=number) == ["a", "b"]
        others = [holder_of(server.data / "agents" / name) for name in ("2", "3")]
        # As Ctrl-C does: the signal goes to the whole group, and every agent stops gracefully all the same.
        os.killpg(server.process.pid, signal.SIGINT)
        assert server.process.wait(60) == 0
        assert not any(map(is_running, others))
        assert "second SIG" not in server.log
        assert server.log.count("INFO holdfast.app.process: stopped") == 3
    finally:
        if server.process.poll() is None:
            server.kill()


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
