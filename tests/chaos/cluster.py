"""Three agents as processes, each with links to its peers, to the store, to objects and to clients that can be cut one by one."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Final

from tests.chaos.agent_faults import AgentFaults
from tests.chaos.links import Link, Links
from tests.chaos.stores import STORES, ChaosStore
from tests.support.object_engines.moto import MotoServer
from tests.support.object_engines.s3 import s3_url
from tests.support.object_engines.seaweedfs import SeaweedServer
from tests.support.server_process import BROKER_ONLY, ServeProcess, environment
from tests.support.waiting import until

from holdfast.testing.server_process import ServerProcess, free_port

ZONES: Final = ("a", "b", "a")
NAMES: Final = ("ann", "bob", "carol", "dave")  # the last one joins and leaves
OBJECT_SERVERS: Final[dict[str, type[ServerProcess]]] = {"moto": MotoServer, "seaweedfs": SeaweedServer}

# So that upkeep and publication are at work during the faults, and nothing waits for a tick.
BRISK: Final = (
    *("--set", "planner.settle_ms=100", "--set", "planner.tick_ms=2000", "--set", "follower.tick_ms=2000"),
    *("--set", "agent.open_retry_ms=500", "--set", "agent.rejoin_ms=200", "--set", "agent.publish_backoff_max_ms=1000"),
    *("--set", "log.reserve_offsets=2000", "--set", "membership.wait_for_id_ms=20000"),
    *("--set", "upkeep.orphan_grace_ms=1000", "--set", "upkeep.orphan_interval_ms=1000"),
    *("--set", "upkeep.trash_interval_ms=1000", "--set", "upkeep.unproven_keep_ms=1000"),
    *(
        "--set",
        "upkeep.index_interval_ms=1000",
        "--set",
        "upkeep.merge_interval_ms=1000",
        "--set",
        "upkeep.lease_retry_ms=1000",
    ),
)


class ChaosAgent:
    """One agent, and everything it is connected by."""

    def __init__(self, cluster: "ChaosCluster", name: str, zone: str) -> None:
        links, directory = cluster.links, cluster.directory / name
        self.name, self.zone, self.faults = name, zone, AgentFaults(directory / "faults")
        kafka_port, peer_port = free_port(), free_port()
        self.clients, self.peers = links.to(kafka_port), links.to(peer_port)
        store_url, self.store, of_store = cluster.store.access(links, name)
        self._cluster, self._lost_disk = cluster, False
        self.objects: list[Link] = []
        objects_url = f"file://{cluster.directory}/objects"
        if cluster.object_server is not None:
            self.objects = [links.to(cluster.object_server.port)]
            objects_url = s3_url(self.objects[0].port, "chaos")
        self.process = ServeProcess(
            directory,
            *BROKER_ONLY,
            *("--agent-id", name, "--zone", zone, "--store", store_url, "--objects", objects_url),
            *("--advertise", f"127.0.0.1:{self.clients.port}"),
            *("--peer", f"127.0.0.1:{peer_port}", "--advertise-peer", f"127.0.0.1:{self.peers.port}"),
            *("--lease-ttl", str(cluster.ttl_ms), *cluster.options, *of_store),
            env=self.faults.environment,
            keep_logs=True,
        )
        self._node: int | None = None
        self.process.port, self._options = kafka_port, self.process.options
        self.alive = False

    @property
    def bootstrap(self) -> str:
        """Where clients reach it."""
        return f"127.0.0.1:{self.clients.port}"

    @property
    def node(self) -> int:
        """Its number, as Kafka's clients know it, from the first time that it started."""
        if self._node is None:
            told = until(lambda: self.process.out.partition(", node ")[2].partition(" ")[0], what="it says its number")
            self._node = int(told)
        return self._node

    @property
    def inbound(self) -> tuple[Link, Link]:
        """The links to this agent's own ports."""
        return self.clients, self.peers

    def start(self) -> None:
        """Start it, if it does not run; return when it serves."""
        if not self.alive:
            for link in self.inbound:
                link.set_listening(True)
            at_start = self._cluster.store.start_options(self.name, lost_disk=self._lost_disk)
            self.process.options = (*self._options, *at_start)
            self.process.start()
            self.alive, self._lost_disk = True, False

    def kill(self) -> None:
        """SIGKILL; its ports refuse from now on."""
        if self.alive:
            self._cluster.store.before_kill(self.name)
            self.process.kill()
            self._gone()

    def stop(self) -> int:
        """SIGTERM; its exit code."""
        code = self.process.terminate()
        self._gone()
        return code

    def _gone(self) -> None:
        self.alive = False
        for link in self.inbound:
            link.set_listening(False)

    def lose_disk(self) -> None:
        """Of a dead agent: everything but its name."""
        shutil.rmtree(self.process.data)
        self._lost_disk = True


class ChaosCluster:
    """Store, objects and agents. Made by `running`."""

    def __init__(
        self,
        directory: Path,
        links: Links,
        store: ChaosStore,
        object_server: ServerProcess | None,
        *,
        ttl_ms: int,
        options: tuple[str, ...] = (),
    ) -> None:
        self.directory, self.links, self.store, self.object_server = directory, links, store, object_server
        self.ttl_ms, self.options = ttl_ms, options
        self.copies_needed = 1  # of every partition, before a disk may be lost
        self.topics: tuple[str, ...] = ()  # whose partitions these are
        self.burst: Callable[[], AbstractContextManager[object]] = nullcontext  # a producer that sends a lot at once
        self.agents = [ChaosAgent(self, name, zone) for name, zone in zip(NAMES, ZONES, strict=False)]

    @classmethod
    @contextmanager
    def running(
        cls,
        directory: Path,
        *,
        store: str = "sqlite",
        objects: str = "moto",
        ttl_ms: int = 2_000,
        brisk: bool = True,
        options: tuple[str, ...] = (),
        planted: str = "",
    ) -> "Iterator[ChaosCluster]":
        """The cluster, started, for the body. `brisk`: not with the default timings; `options`: of every agent.

        `planted`: a bug in every agent.
        """
        directory.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            engine = stack.enter_context(STORES[store](directory))
            server = None
            if objects != "folder":
                server = stack.enter_context(OBJECT_SERVERS[objects](directory / objects).running())
            links = stack.enter_context(Links.running())
            cluster = cls(
                directory, links, engine, server, ttl_ms=ttl_ms, options=(*(BRISK if brisk else ()), *options)
            )
            stack.callback(cluster.kill_all)
            for agent in cluster.agents:
                if planted:
                    agent.faults.plant(planted)
            cluster.start_all()
            yield cluster

    @property
    def bootstrap(self) -> str:
        """Every agent, for clients."""
        return ",".join(agent.bootstrap for agent in self.agents)

    def start_all(self) -> None:
        """Start every agent that does not run."""
        with ThreadPoolExecutor(len(self.agents)) as starting:
            list(starting.map(ChaosAgent.start, self.agents))

    def restart_all(self) -> None:
        """Kill every agent, and start them again: nobody remembers anything."""
        for agent in self.agents:
            agent.kill()
        self.start_all()

    def kill_all(self) -> None:
        """At the end, whatever happened."""
        for agent in self.agents:
            if hasattr(agent.process, "process"):
                agent.process.kill()

    def join(self) -> ChaosAgent:
        """A further agent, started."""
        agent = ChaosAgent(self, NAMES[len(ZONES)], "b")
        self.agents.append(agent)
        agent.start()
        return agent

    def command(self, *argv: str) -> list[dict[str, object]]:
        """A command of an operator, with `--json`; what it printed. Raises `CalledProcessError`."""
        called = [sys.executable, "-m", "holdfast", *argv, "--json", "--store", self.store.direct_url]
        done = subprocess.run(called, env=environment(), capture_output=True, text=True, check=True, timeout=60)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def heal(self) -> None:
        """Every link forwards, every disk has room, every clock is right, every agent runs."""
        for agent in self.agents:
            for link in (*agent.inbound, *agent.store, *agent.objects):
                link.release()
                link.slow_down(False)
            agent.faults.disk_full(False)
            agent.faults.clock_offset_ms(0)
        self.start_all()
