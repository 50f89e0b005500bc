"""Apache ZooKeeper from the jars that PySpark brings, and embedded ClickHouse servers that have it as their Keeper."""

import importlib.util
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from holdfast.spark.java import find_java
from holdfast.testing.clickhouse import ClickHouseServer
from holdfast.testing.server_process import ServerProcess


class ZooKeeper(ServerProcess):
    """One server, in memory and on disk under `directory`."""

    name = "zookeeper"
    start_timeout_ms = 60_000

    def argv(self) -> list[str]:
        spark = importlib.util.find_spec("pyspark")
        assert spark is not None
        assert spark.origin is not None
        jars = Path(spark.origin).parent / "jars"
        java = find_java(environment=os.environ).home / "bin" / "java"  # noqa: TID251 (a test starts processes as an operator would)
        main = "org.apache.zookeeper.server.ZooKeeperServerMain"
        return [str(java), "-Xmx96m", "-XX:+UseSerialGC", "-cp", f"{jars}/*", main, str(self.directory / "zoo.cfg")]

    def prepare(self) -> None:
        super().prepare()
        (self.directory / "zoo.cfg").write_text(
            f"dataDir={self.data}\nclientPort={self.port}\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\n"
            "4lw.commands.whitelist=srvr\nforceSync=no\ntickTime=6000\n"  # sessions may last 20 ticks: the machine may be busy
        )

    def ready(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
            connection.sendall(b"srvr")
            return b"Mode: standalone" in b"".join(iter(lambda: connection.recv(4096), b""))
        return False


class KeeperClickHouse(ClickHouseServer):
    """The embedded ClickHouse with a Keeper."""

    def __init__(self, directory: Path, keeper: ZooKeeper) -> None:
        super().__init__(directory, options=("--confined", "false"))
        self._keeper = keeper

    def argv(self) -> list[str]:
        program, _, _, *rest = super().argv()
        return [program, "-m", "tests.support.keeper_clickhouse", f"127.0.0.1:{self._keeper.port}", *rest]


@contextmanager
def clickhouse_pair(directory: Path) -> Iterator[tuple[KeeperClickHouse, KeeperClickHouse]]:
    """Two servers with one Keeper."""
    places = [directory / name for name in ("zookeeper", "first", "second")]
    for place in places:
        place.mkdir()
    with (
        ZooKeeper(places[0]).running() as keeper,
        KeeperClickHouse(places[1], keeper).running() as first,
        KeeperClickHouse(places[2], keeper).running() as second,
    ):
        yield first, second
