"""moto as an S3 server in memory: a second opinion on the protocol. Its data do not survive a restart."""

import importlib.util
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.object_engines import NewObjectsHarness
from tests.support.object_engines.s3 import BUCKET, harnesses

from holdfast.testing.server_process import ServerProcess


class MotoServer(ServerProcess):
    """moto's own server; any credentials will do."""

    name = "moto"

    def argv(self) -> list[str]:
        for module in ("moto", "flask"):
            if importlib.util.find_spec(module) is None:
                raise ModuleNotFoundError(f"no module {module}", name=module)
        return [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]

    def ready(self) -> bool:
        """It is, once it has made our bucket."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/{BUCKET}", method="PUT")
        try:
            urllib.request.urlopen(request, timeout=5).close()
        except OSError:
            return False
        return True


@contextmanager
def serving(directory: Path) -> Iterator[NewObjectsHarness]:
    """One server for all; each harness has a prefix of its own."""
    with MotoServer(directory).running() as server:
        yield harnesses(server)
