"""The store of a chaos run that is an etcd member beside each agent: ended, frozen, cut off, and replaced with its node's disk.

The one rule: an etcd that is known to forget entries when it is killed (that of the tests' wheel) is stopped instead, also before
its agent is killed.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.chaos.links import Link, Links
from tests.chaos.store_access import StoreAccess
from tests.support.etcd_nodes import member_marker, member_options, member_pids, survives_kills
from tests.support.waiting import until

from holdfast.testing.server_process import free_port


class _Member:
    """One of them: its ports, the links to them, and the log of its agent, which names its process."""

    def __init__(self, name: str, links: Links, log: Path) -> None:
        self.name, self._log = name, log
        self.peer, self.client = (f"127.0.0.1:{free_port()}" for _ in range(2))
        self.to_peer, self.to_client = (links.to(int(each.rpartition(":")[2])) for each in (self.peer, self.client))

    @property
    def pid(self) -> int:
        """Of its process, the last one."""
        return member_pids(self._log.read_text())[-1]

    def send(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, IndexError, FileNotFoundError):  # it ended with its agent
            os.kill(self.pid, number)


class EmbeddedMembers:
    """The members, by the agents that run them."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._members: dict[str, _Member] = {}
        self._turn = 0
        self._stopped_first = not survives_kills()

    @property
    def direct_url(self) -> str:
        """For commands, past all links."""
        return f"etcd://{','.join(each.client for each in self._members.values())}?unsafe=1"

    def access(self, links: Links, name: str) -> StoreAccess:
        member = self._members[name] = _Member(name, links, self._directory / name / "log")
        advertised = (("peer", member.to_peer), ("client", member.to_client))
        options = (
            *member_options(name, member.peer, member.client),
            *(word for what, link in advertised for word in ("--set", f"etcd.{what}_advertise=127.0.0.1:{link.port}")),
        )
        return StoreAccess("etcd:embedded?unsafe=1", [member.to_client], options)

    def start_options(self, name: str, *, lost_disk: bool) -> tuple[str, ...]:
        others = [each.peer for each in self._members.values() if each.name != name]
        first = next(iter(self._members)) == name
        return (
            *(() if first and not lost_disk else ("--join", ",".join(others))),
            *(("--replace",) if lost_disk else ()),
        )

    def before_kill(self, name: str) -> None:
        if self._stopped_first:
            self._stop(self._members[name])

    def _stop(self, member: _Member) -> None:
        with suppress(IndexError, FileNotFoundError):
            process = Path(f"/proc/{member.pid}")
            member.send(signal.SIGTERM)
            until(lambda: not process.exists(), what=f"etcd member {member.name} stopped")

    def restart(self) -> None:
        """One member ends, and its agent starts it again."""
        member = list(self._members.values())[self._turn % len(self._members)]
        self._turn += 1
        if self._stopped_first:
            self._stop(member)
        else:
            member.send(signal.SIGKILL)

    @contextmanager
    def pause(self) -> Iterator[None]:
        frozen = list(self._members.values())[:2]  # without a majority there is no answer
        for member in frozen:
            member.send(signal.SIGSTOP)
        try:
            yield
        finally:
            for member in frozen:
                member.send(signal.SIGCONT)

    @contextmanager
    def member_cut_off(self, name: str) -> Iterator[None]:
        mine = self._members[name]
        held: list[Link] = [mine.to_peer]
        mine.to_peer.hold()
        try:
            marker = member_marker(mine.peer, name)
            for other in self._members.values():
                if other is not mine:
                    other.to_peer.hold(opening=marker)
                    held.append(other.to_peer)
            yield
        finally:
            for link in held:
                link.release()
