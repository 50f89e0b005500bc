"""Nodes with an etcd member each, on loopback, on one folder of objects.

The wheel's etcd is accepted with `?unsafe=1`; it may forget applied entries when it is killed, so its members are stopped instead
where their data are used again. With 3.5.6 or newer on PATH, they are killed.
"""

import asyncio
import os
import re
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.server_process import BROKER_ONLY, ServeProcess
from tests.support.store_engines.etcd import program
from tests.support.waiting import until

from holdfast.app.addresses import Address
from holdfast.app.config.etcd_member import EtcdMemberSettings
from holdfast.app.embedded_etcd.peer_members import members_at
from holdfast.app.embedded_etcd.program import program_version
from holdfast.stores.etcd.versions import known_fault, parse_version
from holdfast.testing.server_process import free_port

SESSIONS = ("--set", "session.ttl_ms=4000", "--set", "session.renew_ms=500", "--set", "session.margin_ms=500")


def survives_kills() -> bool:
    """Whether the etcd of the tests may be killed without losing anything."""
    return not known_fault(parse_version(program_version(str(program()))))


def member_options(name: str, peer: str, client: str) -> tuple[str, ...]:
    """What the command line of a server says of its member."""
    return (
        *("--set", f"etcd.program={program()}", "--name", name),
        *("--etcd-peer", peer, "--etcd-client", client),
    )


def member_pids(log: str) -> list[int]:
    """The processes of a server's member, from the server's log, the last one last."""
    return [int(pid) for pid in re.findall(r"etcd member runs pid=(\d+)", log)]


def member_marker(peer: str, name: str) -> str:
    """What the first request of every connection from this member to another one contains: whose it is."""
    listed = asyncio.run(members_at(Address.parse("peer", peer), EtcdMemberSettings()))
    assert listed is not None
    return next(f"X-Server-From: {member.id:x}\r\n" for member in listed.members if member.name == name)


class EtcdNode(ServeProcess):
    """A server with a member of its own."""

    def __init__(self, directory: Path, name: str, *options: str, env: dict[str, str] | None = None) -> None:
        self.name, self.peer, self.client = name, f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
        self.joins: str = ""
        of_member = (
            *("--store", "etcd:embedded?unsafe=1", "--agent-id", name),
            *member_options(name, self.peer, self.client),
        )
        objects = ("--objects", f"file://{directory}/objects")
        super().__init__(directory / name, *BROKER_ONLY, *SESSIONS, *of_member, *objects, *options, env=env)

    def argv(self) -> list[str]:
        return [*super().argv(), *(("--join", self.joins) if self.joins else ())]

    @property
    def member_pids(self) -> list[int]:
        """The processes of its member since the server started, the last one last."""
        return member_pids(self.log)

    def end_member(self) -> None:
        """Kill its member; ask it to stop where killing is known to lose data."""
        os.kill(self.member_pids[-1], signal.SIGKILL if survives_kills() else signal.SIGTERM)

    def lose_disk(self) -> None:
        """Kill the node, and everything that it had."""
        self.kill()
        pid = self.member_pids[-1]
        until(lambda: not Path(f"/proc/{pid}").exists(), what="its member died with it")
        shutil.rmtree(self.data)


def etcd_nodes(directory: Path, *names: str, options: tuple[str, ...] = ()) -> list[EtcdNode]:
    """Nodes of one cluster: the first begins it, the others join it through any of those before them."""
    nodes: list[EtcdNode] = []
    for name in names:
        node = EtcdNode(directory, name, *options)
        node.joins = ",".join(each.peer for each in nodes)
        nodes.append(node)
    return nodes


@contextmanager
def running(*nodes: ServeProcess) -> Iterator[None]:
    """The nodes, started all at once, for the body; killed at the end if they still run."""
    try:
        start_all(*nodes)
        yield
    finally:
        for node in nodes:
            if hasattr(node, "process"):
                node.kill()


def start_all(*nodes: ServeProcess) -> None:
    """Start them at once: a member alone has no majority, and its server does not listen."""
    for node in nodes:
        node.launch()
    for node in nodes:
        node.listening()


def stop_all(*nodes: ServeProcess) -> None:
    """SIGTERM to all, then wait for all."""
    for node in nodes:
        node.process.send_signal(signal.SIGTERM)
    for node in nodes:
        node.ended()
