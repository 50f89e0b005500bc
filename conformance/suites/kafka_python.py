"""kafka-python's integration tests, from its source distribution, against the broker in `KAFKA_URI`."""

import sys
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from conformance.model import Case, Workplace
from conformance.programs import build
from conformance.pytest_suite import run_pytest

VERSION: Final = "3.0.12"
KAFKA_VERSION: Final = "4.3.0"  # what the client infers from our API versions
TIMEOUT_S: Final = 1800
FETCH_TIMEOUT_S: Final = 300

# What the distribution leaves out: without the first, `test` is the standard library's; of the second, only what stands
# for a broker that is there already is used here.
_MISSING: Final = {
    "__init__.py": "",
    "service.py": """class ExternalService:
    def __init__(self, host, port):
        self.host, self.port = host, port

    def open(self):
        pass

    def close(self):
        pass

    def stop(self):
        pass


class SpawnedService:
    def __init__(self, *args, **kwargs):
        raise RuntimeError("the broker is there already")
""",
}


class KafkaPython:
    """One pytest run in the unpacked distribution, whose client it uses."""

    name = "kafka-python"
    title = "kafka-python"
    about = (
        f"`test/integration` of its source distribution, told that the broker is Kafka {KAFKA_VERSION}; four partitions per "
        "auto-created topic, as its own broker has, and sessions of a second and more: its members ask for three, where "
        "Kafka's default takes six. Two modules that the distribution leaves out are supplied."
    )
    server_options: Sequence[str] = (
        "--set", "kafka.auto_create_partitions=4",
        "--set", "groups.session_min_ms=1000",
    )  # fmt: skip
    lists_cases = False

    def prepare(self, cache: Path) -> str:
        if not self._folder(cache).exists():
            argv = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
            wanted = f"kafka-python=={VERSION}"
            build([*argv, wanted], cwd=cache, log=cache / "build.log", timeout_s=FETCH_TIMEOUT_S)
            with tarfile.open(cache / f"kafka_python-{VERSION}.tar.gz") as sources:
                sources.extractall(cache, filter="data")
            for name, content in _MISSING.items():
                (self._folder(cache) / "test" / name).write_text(content)
        return VERSION

    def _folder(self, cache: Path) -> Path:
        return cache / f"kafka_python-{VERSION}"

    def run(self, cache: Path, at: Workplace) -> Iterator[Case]:
        env = {
            "KAFKA_URI": f"kafka://{at.broker.bootstrap}",
            "KAFKA_VERSION": KAFKA_VERSION,
            "KAFKA_ROOT": str(at.scratch),  # it must exist; only a broker of its own would be started from there
            "PYTHONPATH": "",
        }
        args = ["--timeout=120", "test/integration"]
        folder = self._folder(cache)
        yield from run_pytest(args, cwd=folder, scratch=at.scratch, log=at.log, timeout_s=TIMEOUT_S, env=env)
