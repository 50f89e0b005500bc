"""The Java client, its Admin and Kafka's command line tools: our own scenarios in tests/clients, as a suite of this page."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tests.support.apache_kafka import VERSION, kafka_classpath

from conformance.model import Case, Workplace
from conformance.programs import require
from conformance.pytest_suite import run_pytest

ROOT: Final = Path(__file__).parents[2]
TIMEOUT_S: Final = 3600


class JavaClients:
    """`pytest tests/clients/test_java*.py`; it starts servers of its own, since it kills and freezes them."""

    name = "java-clients"
    title = "Java client and tools"
    about = (
        "`tests/clients/test_java*.py`: scenarios of our own around the Java producer, consumer and Admin, members that are killed "
        "and frozen, restarts of the server, and Kafka's command line tools."
    )
    server_options: Sequence[str] = ()
    lists_cases = False

    def prepare(self, cache: Path) -> str:
        require("javac", used_for="to compile the scenarios")
        kafka_classpath()
        return VERSION

    def run(self, cache: Path, at: Workplace) -> Iterator[Case]:
        tests = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests" / "clients").glob("test_java*.py"))
        args = ["-m", "long or not long", *tests]
        yield from run_pytest(args, cwd=ROOT, scratch=at.scratch, log=at.log, timeout_s=TIMEOUT_S)
